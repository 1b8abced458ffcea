//! The end of a connection: the server's final error, and what happens to the requests.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use tracing::debug;

use super::{Driver, READS_PER_TURN};
use crate::error::LostCause;
use crate::link::Outstanding;
use crate::link::state::Push;
use crate::link::submit::Submit;

impl Driver {
    /// Reads what a server said before it stopped reading, such as "max number of clients reached".
    pub(super) fn read_final_error(&mut self, cx: &mut Context<'_>, error: io::Error) -> LostCause {
        // All replies at once: nothing is sent any more.
        let mut delivered = self.deliver_replies(usize::MAX);
        for _ in 0..READS_PER_TURN {
            match self.raw.fill_last(cx) {
                Poll::Ready(Ok(())) if delivered.is_ok() => delivered = self.deliver_replies(usize::MAX),
                Poll::Ready(Err(LostCause::PeerClosed)) => return LostCause::PeerClosed,
                _ => break,
            }
        }
        LostCause::Io(error)
    }

    /// Requeues requests that another connection may take over, and fails the others.
    pub(super) fn end(&mut self, cause: LostCause) -> Arc<LostCause> {
        debug!(%cause, "connection ended");
        // Before any request fails: a caller that learns of the end must find nothing left that relied on push
        // messages.
        if let Some(hook) = &self.state.pushes {
            hook(Push::Gap);
        }
        self.state.counters.ended();
        if let LostCause::Closed | LostCause::Moved = &cause {
            // The server answers the commands that left completely. The rest is never sent.
            self.raw.outstanding =
                Outstanding::Replies(self.in_flight.outstanding(self.raw.write_buffer.written()));
            self.raw.write_buffer.discard();
        }
        let cause = Arc::new(cause);
        let retries = if matches!(*cause, LostCause::Closed) { None } else { self.retries };
        let mut again = Vec::new();
        for (mut request, ran) in self.in_flight.drain(self.raw.write_buffer.written()) {
            request.may_have_run |= ran;
            let harmless = !request.may_have_run || request.may_run_twice();
            let may_retry = harmless && retries.is_some_and(|retries| request.attempts <= retries);
            if may_retry && request.is_wanted() && request.sink.restart() {
                again.push(request);
            } else {
                let error = self.state.lost_error(&cause, request.may_have_run);
                request.fail(error);
            }
        }
        self.state.counters.retried(again.len());
        self.queue.put_back(again.into_iter());
        cause
    }
}
