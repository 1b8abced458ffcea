//! The last replies to a client of which it is not known how many are missing.

use std::future::poll_fn;
use std::task::{Context, Poll};

use tokio::time::timeout;

use super::super::slow_reader::MUCH;
use super::super::{Closed, Session};
use crate::session::pipe::{LAST_REPLIES_RDMA, LAST_REPLIES_TCP};
use crate::upstream::private::Private;

impl Session {
    /// Passes on what the server still answers, if the replies that it owes are not counted: to its end, or as long as there is time. All
    /// commands of the client are with the connection. If RESET is among them, its reply is the last.
    pub(super) async fn pass_last_replies(&mut self, private: &mut Private) {
        if private.tracker.counts_replies() {
            return;
        }
        let limit = if private.keeps_half_open() { LAST_REPLIES_TCP } else { LAST_REPLIES_RDMA };
        let passed = poll_fn(|cx| self.poll_last_replies(cx, private));
        // The end comes in both cases.
        let _ = timeout(limit, passed).await;
    }

    fn poll_last_replies(&mut self, cx: &mut Context<'_>, private: &mut Private) -> Poll<()> {
        loop {
            let found = self.client.inbox.poll_take(cx, &mut Default::default());
            let lost = private.poll_replies(cx, &mut self.out, MUCH);
            for event in private.take_events() {
                self.apply(event);
            }
            let flushed = self.poll_flush(cx);
            let is_over = found.end.is_some()
                || matches!(flushed, Poll::Ready(Err(Closed)))
                || lost.is_ready()
                || private.tracker.was_reset()
                || private.tracker.may_have_reset();
            if is_over || private.poll_finish(cx).is_ready() {
                return Poll::Ready(());
            }
            self.drive_unread(cx);
            // Room for replies was made: the device or socket was not asked while there was none.
            if flushed.is_pending() {
                return Poll::Pending;
            }
        }
    }
}
