//! [`Multiplexer`]: a connection that comes back. One task drives the connection there is, then makes the next.

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

/// The clients' end of it. The task ends when every multiplexer to it is dropped.
pub(crate) struct Multiplexer {
    messages: mpsc::UnboundedSender<Message>,
    /// The places in the queue that are left.
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

    /// Hands a request over, or gives it back if the queue is full: then it has to [wait](Self::send_late).
    ///
    /// This much is no future, in and out of which requests would be copied.
    pub(crate) fn send(&self, request: Request) -> Result<Option<Request>, Error> {
        let Some(request) = self.slot.send(request) else { return Ok(None) };
        match self.room.try_acquire() {
            Ok(place) => self.queue(request, place).map(|()| None),
            Err(TryAcquireError::Closed) => Err(self.state.error_for_unanswered(false)),
            Err(TryAcquireError::NoPermits) => Ok(Some(request)),
        }
    }

    /// Hands a request over when there is a place for it in the queue. Waits no longer than it would wait in there.
    pub(crate) async fn send_late(&self, mut request: Request) -> Result<(), Error> {
        let place = self.place(&mut request).await?;
        self.queue(request, place)
    }

    fn queue(&self, mut request: Request, place: SemaphorePermit<'_>) -> Result<(), Error> {
        place.forget();
        request.holds_permit = true;
        self.messages.send(Message::Request(request)).map_err(|_| self.state.error_for_unanswered(false))
    }

    /// Waits for a place in the queue.
    async fn place(&self, request: &mut Request) -> Result<SemaphorePermit<'_>, Error> {
        request.offline_deadline =
            self.offline_timeout.and_then(|offline_timeout| Instant::now().checked_add(offline_timeout));
        let acquire = self.room.acquire();
        tokio::pin!(acquire);
        loop {
            let place = match request.due() {
                None => acquire.await,
                Some(due) => match timeout_at(due, &mut acquire).await {
                    Ok(place) => place,
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
            return place.map_err(|_| self.state.error_for_unanswered(false));
        }
    }

    /// Waits for what was asked for.
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
        // If there is no task any more, it is done already.
        drop(self.messages.send(Message::Close(done)));
        ended
    }
}
