//! [`Multiplexer`]: a connection that many callers share, and that reconnects automatically. [`Sent`]: what one of them has sent.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connect::Connector;
use super::queue::{Pushed, SubmitQueue};
use super::reply_slot::{Delivery, Outcome, ReplyReceiver};
use super::request::{Deadline, Request};
use super::state::{MultiplexerState, PushHook};
use super::task::{ConnectionTask, DriverSlot};
use crate::command::{Commands, Reply};
use crate::error::Error;
use crate::events::EventReporter;
use crate::link::RawConnection;
use crate::spans;

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

    /// Sends commands together, or queues them. Those without any time fail, and are not sent.
    pub(crate) fn send(
        &self,
        commands: Commands,
        delivery: Delivery,
        deadline: Option<Deadline>,
    ) -> Sent<'_> {
        let (request, replies) = Request::new(commands, delivery, deadline);
        match deadline {
            Some(deadline) if deadline.is_at_once() => request.fail(self.late(deadline)),
            _ => match self.queue.push(request) {
                Pushed::Queued => {}
                Pushed::MustSend => {
                    if !self.slot.send_inline() {
                        self.queue.wake();
                    }
                }
                Pushed::Closed(request) => request.fail(self.state.error_for_unanswered(false)),
            },
        }
        Sent { multiplexer: self, replies }
    }

    /// The error for a request that was not sent in time, which is counted.
    pub(crate) fn late(&self, deadline: Deadline) -> Error {
        self.state.counters.timed_out();
        self.state.timed_out(deadline.limit, false)
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

/// Commands that were sent together: a future of what becomes of them. Dropping it discards the replies.
#[must_use = "dropping it discards the replies"]
pub(crate) struct Sent<'a> {
    multiplexer: &'a Multiplexer,
    replies: ReplyReceiver,
}

impl Sent<'_> {
    /// Takes the replies to a streamed pipeline as they arrive; `replies` must be empty. Returns true when no more will come: then the future is
    /// ready.
    ///
    /// Cancel safe.
    pub(crate) async fn arrived(&mut self, replies: &mut Vec<Reply>) -> bool {
        poll_fn(|cx| self.replies.poll_arrived(cx, replies)).await
    }
}

impl Future for Sent<'_> {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let outcome = ready!(self.replies.poll(cx));
        spans::used(|| self.multiplexer.state.info());
        Poll::Ready(outcome.unwrap_or_else(|| {
            let error = self.multiplexer.state.error_for_unanswered(true);
            Outcome::Failed(error.into())
        }))
    }
}

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        if self.replies.is_waiting() {
            self.multiplexer.queue.caller_gone();
        }
    }
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        drop(self.queue.abandon());
    }
}
