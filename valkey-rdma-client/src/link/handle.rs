//! [`Multiplexer`]: a shared connection that reconnects automatically.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connect::Connector;
use super::deadline::Deadline;
use super::request::Request;
use super::state::{MultiplexerState, PushHook};
use super::submit::{Pushed, SubmitQueue};
use super::task::{ConnectionTask, DriverSlot};
use crate::error::Error;
use crate::events::EventReporter;
use crate::link::RawConnection;

/// The clients' handle. The connection task ends when it is dropped.
pub(crate) struct Multiplexer {
    queue: Arc<SubmitQueue<Request>>,
    slot: Arc<DriverSlot>,
    pub(crate) state: Arc<MultiplexerState>,
}

impl Multiplexer {
    /// Starts the task. Must run inside a runtime. `connector` makes the next connections; without one, a lost connection stays lost.
    pub(crate) fn start(
        raw: RawConnection,
        peer: Arc<str>,
        connector: Option<Arc<Connector>>,
        pushes: Option<PushHook>,
        events: EventReporter,
    ) -> Self {
        let queue = Arc::new(SubmitQueue::new());
        let state = Arc::new(MultiplexerState::new(peer, &raw, pushes, events));
        let slot = Arc::new(DriverSlot::default());
        let task =
            ConnectionTask { queue: queue.clone(), slot: slot.clone(), state: state.clone(), connector };
        tokio::spawn(task.run(raw));
        Self { queue, slot, state }
    }

    /// Sends the request, or queues it. One without any time fails, and is not sent.
    pub(crate) fn send(&self, request: Request) -> Result<(), Error> {
        if let Some(deadline) = request.deadline
            && deadline.is_at_once()
        {
            return Err(refused(request, self.late(deadline)));
        }
        match self.queue.push(request) {
            Pushed::Queued => {}
            Pushed::MustSend => {
                if !self.slot.send_inline() {
                    self.queue.wake();
                }
            }
            Pushed::Closed(request) => {
                return Err(refused(request, self.state.error_for_unanswered(false)));
            }
        }
        Ok(())
    }

    /// A caller waits for the reply to what it has sent: to be [answered](Waits::answered), or dropped with the caller's future.
    pub(crate) fn waits(&self) -> Waits<'_> {
        Waits(Some(self))
    }

    /// A caller goes away without its reply.
    pub(crate) fn leave(&self) {
        self.queue.leave();
    }

    /// The error for a request that was not sent in time, which is counted.
    pub(crate) fn late(&self, deadline: Deadline) -> Error {
        self.state.counters.timed_out();
        self.state.timed_out(deadline.limit, false)
    }

    /// The error for a request that was taken and dropped without a reply.
    pub(crate) fn unanswered(&self) -> Error {
        self.state.error_for_unanswered(true)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.is_finished()
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Ends the current connection because its server is no longer the one to talk to.
    pub(crate) fn give_up(&self) {
        self.slot.give_up();
    }

    /// Refuses new requests, and ends the multiplexer after the replies to everything sent so far, or at the deadline. The
    /// sender of the receiver returned is dropped then.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> oneshot::Receiver<()> {
        let (at_end, ended) = oneshot::channel();
        self.state.closing.get_or_init(|| deadline);
        self.queue.close(at_end);
        ended
    }
}

/// A caller that waits for a reply.
pub(crate) struct Waits<'a>(Option<&'a Multiplexer>);

impl Waits<'_> {
    pub(crate) fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(multiplexer) = self.0 {
            multiplexer.leave();
        }
    }
}

/// Fails a request that was not sent. Returns the reason.
fn refused(request: Request, why: Error) -> Error {
    request.fail(why.clone());
    why
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        drop(self.queue.abandon());
    }
}
