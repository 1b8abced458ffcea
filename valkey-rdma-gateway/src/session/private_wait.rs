//! A private connection for a client, which waits for it as long as the server is away.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::sleep;

use super::{Closed, Session};
use crate::upstream::open_error::OpenError;
use crate::upstream::private::Private;

impl Session {
    /// A private connection. If the server is away, the client waits as commands on a shared connection do, unless it leaves. Nothing
    /// may be in flight.
    pub(super) async fn private(&mut self) -> Result<Result<Private, OpenError>, Closed> {
        let name = self.client.details().name.clone();
        let (pool, identity) = (self.route.backend.pool.clone(), self.identity.clone());
        let (limit, is_missed) = (self.core.limits().offline(), AtomicBool::new(false));
        let mut opening = pin!(pool.private_within(limit, &identity, &name, &is_missed));
        let mut usual = pin!(sleep(USUAL));
        poll_fn(|cx| match opening.as_mut().poll(cx) {
            Poll::Ready(opened) => Poll::Ready(Ok(opened)),
            Poll::Pending => {
                let is_missed = is_missed.load(Ordering::Relaxed) || usual.as_mut().poll(cx).is_ready();
                self.poll_left(cx, is_missed).map(Err)
            }
        })
        .await
    }

    /// Ready if the client ends while it waits for a connection. `is_missed`: there is no server, or it is not ready. A client that has
    /// closed its side gave up then, and may have sent the same again. An element that the server removes for it would be lost.
    fn poll_left(&mut self, cx: &mut Context<'_>, is_missed: bool) -> Poll<Closed> {
        if let Some(why) = self.poll_end(cx) {
            self.report_end(why);
            return Poll::Ready(Closed);
        }
        let broken = self.poll_read_ahead(cx, &self.core.limits());
        if broken.is_pending() && self.client.inbox.has_left() && is_missed {
            self.metrics().not_sent.add(1);
            return Poll::Ready(Closed);
        }
        broken
    }
}

/// An attempt that takes longer has met a server that is away, or reads its data.
const USUAL: Duration = Duration::from_millis(500);
