//! [`Multiplexer`]: a shared connection that reconnects automatically.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::deadline::Deadline;
use super::queue::RequestQueue;
use super::request::Request;
use super::state::{MultiplexerState, PushHook};
use super::submit::{Claim, Pushed};
use super::task::{ConnectionTask, DriverSlot, ReconnectPolicy};
use crate::connection::RawConnection;
use crate::error::Error;
use crate::events::EventReporter;

/// The clients' handle. The connection task ends when it is dropped.
pub(crate) struct Multiplexer {
    queue: Arc<RequestQueue>,
    offline_timeout: Option<Duration>,
    slot: Arc<DriverSlot>,
    pub(crate) state: Arc<MultiplexerState>,
}

impl Multiplexer {
    /// Starts the task. Must run inside a runtime.
    pub(crate) fn start(
        raw: RawConnection,
        peer: Arc<str>,
        policy: Option<ReconnectPolicy>,
        pushes: Option<PushHook>,
        events: EventReporter,
    ) -> Self {
        let queue = Arc::new(RequestQueue::new());
        let offline_timeout = policy.as_ref().and_then(|policy| policy.offline_timeout);
        let state = Arc::new(MultiplexerState::new(peer, &raw, pushes, events));
        let slot = Arc::new(DriverSlot::default());
        let task = ConnectionTask { queue: queue.clone(), slot: slot.clone(), state: state.clone(), policy };
        tokio::spawn(task.run(raw));
        Self { queue, offline_timeout, slot, state }
    }

    /// Sends the request, or queues it. Returns it if the queue is full: then it has to
    /// [wait](Self::send_when_room). A request without any time fails, and is not sent.
    pub(crate) fn try_send(&self, request: Request) -> Result<Option<Request>, Error> {
        if let Some(deadline) = request.deadline
            && deadline.is_at_once()
        {
            return Err(refused(request, self.late(deadline)));
        }
        self.pushed(self.queue.submitted.push(request, Claim::New))
    }

    /// Queues a request when the queue has room. Waits no longer than the request itself may wait.
    pub(crate) async fn send_when_room(&self, mut request: Request) -> Result<(), Error> {
        let mut patience = self.offline_timeout.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let late = match self.queue.push_when_room(request, patience).await {
                Ok(pushed) => return self.pushed(pushed).map(drop),
                Err(late) => late,
            };
            let now = Instant::now();
            match (late.deadline, self.state.disconnect_reason()) {
                (Some(deadline), _) if deadline.at <= now => {
                    return Err(refused(late, self.late(deadline)));
                }
                (_, Some(why)) => return Err(refused(late, why)),
                // Connected: it waits up to its own deadline.
                (_, None) => (request, patience) = (late, None),
            }
        }
    }

    /// The error for a request that was not sent in time, which is counted.
    pub(crate) fn late(&self, deadline: Deadline) -> Error {
        self.state.counters.timed_out();
        self.state.timed_out(deadline.limit, false)
    }

    /// Does what a push asks of its caller.
    fn pushed(&self, pushed: Pushed<Request>) -> Result<Option<Request>, Error> {
        match pushed {
            Pushed::Queued => Ok(None),
            Pushed::MustSend => {
                if !self.slot.send_inline() {
                    self.queue.submitted.wake();
                }
                Ok(None)
            }
            Pushed::Full(request) => Ok(Some(request)),
            Pushed::Closed(request) => Err(refused(request, self.state.error_for_unanswered(false))),
        }
    }

    /// The error for a request that was taken and dropped without a reply.
    pub(crate) fn unanswered(&self) -> Error {
        self.state.error_for_unanswered(true)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.queue.submitted.is_finished()
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        self.queue.submitted.len()
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

/// Fails a request that was not sent. Returns the reason.
fn refused(request: Request, why: Error) -> Error {
    request.fail(why.clone());
    why
}

impl Drop for Multiplexer {
    fn drop(&mut self) {
        drop(self.queue.submitted.abandon());
    }
}
