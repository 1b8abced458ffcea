//! [`Multiplexer`]: a shared connection that reconnects automatically.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::inline::DriverSlot;
use super::queue::{QUEUE_CAPACITY, RequestQueue};
use super::request::{Message, Request};
use super::state::{MultiplexerState, PushHook};
use super::task::{ConnectionTask, ReconnectPolicy};
use crate::connection::RawConnection;
use crate::error::Error;

/// The clients' handle. The connection task ends when every handle is dropped.
pub(crate) struct Multiplexer {
    messages: mpsc::UnboundedSender<Message>,
    /// Permits left in the queue.
    room: Arc<Semaphore>,
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
    ) -> Self {
        let (messages, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(QUEUE_CAPACITY));
        let offline_timeout = policy.as_ref().and_then(|policy| policy.offline_timeout);
        let state = Arc::new(MultiplexerState::new(peer, &raw, pushes));
        let slot = Arc::new(DriverSlot::default());
        let task = ConnectionTask { slot: slot.clone(), state: state.clone(), policy };
        tokio::spawn(task.run(raw, RequestQueue::new(queue, room.clone())));
        Self { messages, room, offline_timeout, slot, state }
    }

    /// Takes the request, to send it at once or to queue it. Leaves it if the queue is full: then it has to
    /// [wait](Self::send_when_room).
    pub(crate) fn try_send(&self, request: &mut Option<Request>) -> Result<(), Error> {
        self.slot.try_send_inline(request);
        if request.is_none() {
            return Ok(());
        }
        match self.room.try_acquire() {
            Ok(permit) => request.take().map_or(Ok(()), |request| self.queue(request, permit)),
            Err(TryAcquireError::Closed) => Err(self.state.error_for_unanswered(false)),
            Err(TryAcquireError::NoPermits) => Ok(()),
        }
    }

    /// Queues a request when the queue has room. Waits no longer than the request itself may wait.
    pub(crate) async fn send_when_room(&self, mut request: Request) -> Result<(), Error> {
        let permit = self.permit(&mut request).await?;
        self.queue(request, permit)
    }

    fn queue(&self, mut request: Request, permit: SemaphorePermit<'_>) -> Result<(), Error> {
        permit.forget();
        request.holds_permit = true;
        self.messages.send(Message::Request(request)).map_err(|_| self.state.error_for_unanswered(false))
    }

    /// Waits for room in the queue.
    async fn permit(&self, request: &mut Request) -> Result<SemaphorePermit<'_>, Error> {
        request.offline_deadline = self.offline_timeout.and_then(|limit| Instant::now().checked_add(limit));
        let acquire = self.room.acquire();
        tokio::pin!(acquire);
        loop {
            let permit = match request.due() {
                None => acquire.await,
                Some(due) => match timeout_at(due, &mut acquire).await {
                    Ok(permit) => permit,
                    Err(_) => match (request.deadline, self.state.disconnect_reason()) {
                        (Some(deadline), _) if deadline.at <= due => {
                            self.state.counters.timed_out();
                            return Err(self.state.timed_out(deadline.limit, false));
                        }
                        (_, Some(why)) => return Err(why),
                        (_, None) => {
                            request.offline_deadline = None;
                            continue;
                        }
                    },
                },
            };
            return permit.map_err(|_| self.state.error_for_unanswered(false));
        }
    }

    /// Waits for the reply.
    pub(crate) async fn receive<T>(&self, answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        answer.await.unwrap_or_else(|_| Err(self.state.error_for_unanswered(true)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        QUEUE_CAPACITY - self.room.available_permits()
    }

    /// Refuses new requests, and ends the multiplexer after the replies to everything sent so far, or at the deadline. The
    /// sender of the receiver returned is dropped then.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        self.state.closing.get_or_init(|| deadline);
        self.room.close();
        // If the task has ended, the receiver is done already.
        drop(self.messages.send(Message::Close(done)));
        ended
    }
}
