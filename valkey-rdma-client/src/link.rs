//! [`Link`]: a connection that comes back. One task drives the connection there is, then makes the next.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError, mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout_at};
use tracing::{Instrument, debug, debug_span, info, warn};

use crate::backlog::{Backlog, ROOM, Stop};
use crate::connect::Connector;
use crate::driver::Driver;
use crate::error::{Error, LostCause};
use crate::info::Purpose;
use crate::reconnect::{Backoff, STABLE_AFTER};
use crate::request::{Message, Request};
use crate::seat::Seat;
use crate::shared::{PushHook, Shared};
use crate::wire::Wire;

/// The clients' end of it. The task ends when every link to it is dropped.
pub(crate) struct Link {
    messages: mpsc::UnboundedSender<Message>,
    /// The places in the queue that are left.
    room: Arc<Semaphore>,
    patience: Option<Duration>,
    seat: Arc<Seat>,
    pub(crate) shared: Arc<Shared>,
}

/// How a link comes back.
#[derive(Clone)]
pub(crate) struct Revival {
    pub(crate) connector: Arc<Connector>,
    pub(crate) backoff: Backoff,
    pub(crate) patience: Option<Duration>,
    pub(crate) retries: u32,
}

impl Link {
    /// Starts the task. Must run inside a runtime.
    pub(crate) fn start(
        wire: Wire,
        peer: Arc<str>,
        revival: Option<Revival>,
        pushes: Option<PushHook>,
    ) -> Self {
        let (messages, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(ROOM));
        let patience = revival.as_ref().and_then(|revival| revival.patience);
        let shared = Arc::new(Shared::new(peer, &wire, pushes));
        let seat = Arc::new(Seat::default());
        let task = Task { seat: seat.clone(), shared: shared.clone(), revival };
        tokio::spawn(task.run(wire, Backlog::new(queue, room.clone())));
        Self { messages, room, patience, seat, shared }
    }

    /// Hands a request over, or gives it back if the queue is full: then it has to [wait](Self::send_late).
    ///
    /// This much is no future, in and out of which requests would be copied.
    pub(crate) fn send(&self, request: Request) -> Result<Option<Request>, Error> {
        let Some(request) = self.seat.send(request) else { return Ok(None) };
        match self.room.try_acquire() {
            Ok(place) => self.queue(request, place).map(|()| None),
            Err(TryAcquireError::Closed) => Err(self.shared.dropped(false)),
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
        request.has_place = true;
        self.messages.send(Message::Request(request)).map_err(|_| self.shared.dropped(false))
    }

    /// Waits for a place in the queue.
    async fn place(&self, request: &mut Request) -> Result<SemaphorePermit<'_>, Error> {
        request.give_up = self.patience.and_then(|patience| Instant::now().checked_add(patience));
        let acquire = self.room.acquire();
        tokio::pin!(acquire);
        loop {
            let place = match request.due() {
                None => acquire.await,
                Some(due) => match timeout_at(due, &mut acquire).await {
                    Ok(place) => place,
                    Err(_) => match (request.deadline, self.shared.outage()) {
                        (Some(deadline), _) if deadline.at <= due => {
                            self.shared.tally.timed_out();
                            return Err(self.shared.timed_out(deadline.limit, false));
                        }
                        (_, Some(why)) => return Err(why),
                        (_, None) => {
                            request.give_up = None;
                            continue;
                        }
                    },
                },
            };
            return place.map_err(|_| self.shared.dropped(false));
        }
    }

    /// Waits for what was asked for.
    pub(crate) async fn receive<T>(&self, answer: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        answer.await.unwrap_or_else(|_| Err(self.shared.dropped(true)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.messages.is_closed()
    }

    #[cfg(test)]
    pub(crate) fn queued(&self) -> usize {
        ROOM - self.room.available_permits()
    }

    /// Refuses new requests, and ends the link after the replies to everything sent so far, or at the deadline. The
    /// sender of the receiver returned is dropped then.
    pub(crate) fn close(&self, deadline: Option<Instant>) -> oneshot::Receiver<()> {
        let (done, ended) = oneshot::channel();
        self.shared.closing.get_or_init(|| deadline);
        self.room.close();
        // If there is no task any more, it is done already.
        drop(self.messages.send(Message::Close(done)));
        ended
    }
}

/// The other end.
struct Task {
    seat: Arc<Seat>,
    shared: Arc<Shared>,
    revival: Option<Revival>,
}

impl Task {
    async fn run(self, mut wire: Wire, mut backlog: Backlog) {
        let _ends = EndsOnDrop { shared: &self.shared, room: backlog.room() };
        let retries = self.revival.as_ref().map(|revival| revival.retries);
        let mut attempt = 0;
        loop {
            let span = debug_span!("connection", peer = %self.shared.peer, transport = %wire.info.transport);
            let born = Instant::now();
            let driver = Driver::new(wire, backlog, self.shared.clone(), retries);
            let cause;
            (cause, backlog) = self.seat.drive(driver).instrument(span).await;
            let revival = match &self.revival {
                Some(revival) if !matches!(*cause, LostCause::Closed) => revival.clone(),
                _ => return self.end(&mut backlog, &cause),
            };
            self.shared.disconnected(&cause);
            warn!(peer = %self.shared.peer, %cause, "connection lost");
            // A server that ends connections at once gets the growing waits too.
            attempt = if born.elapsed() > STABLE_AFTER { 0 } else { attempt + 1 };
            match self.revive(&mut backlog, &revival, &cause, attempt).await {
                Some(next) => wire = next,
                None => return,
            }
            self.shared.connected(&wire);
            info!(peer = %self.shared.peer, connection = %wire.info, "connected again");
        }
    }

    /// Tries to connect until it works. None: nobody wants it any more, and everybody was told.
    async fn revive(
        &self,
        backlog: &mut Backlog,
        revival: &Revival,
        cause: &Arc<LostCause>,
        first: u32,
    ) -> Option<Wire> {
        let why = |request: &Request| match self.shared.outage() {
            Some(why) if !request.may_have_run => why,
            _ => self.shared.lost(cause, request.may_have_run),
        };
        for attempt in first.. {
            let offline = backlog.wait_offline(revival.patience, why);
            tokio::select! {
                stop = offline => return self.stop(backlog, stop),
                () = sleep(revival.backoff.wait(attempt)) => {}
            }
            let offline = backlog.wait_offline(revival.patience, why);
            let connected = tokio::select! {
                connected = revival.connector.connect(Purpose::Shared) => connected,
                stop = offline => return self.stop(backlog, stop),
            };
            match connected {
                Ok(wire) => return Some(wire),
                Err(error) => {
                    debug!(%error, attempt, "not connected");
                    self.shared.not_connected(error.into());
                }
            }
        }
        None
    }

    fn stop(&self, backlog: &mut Backlog, stop: Stop) -> Option<Wire> {
        self.end(backlog, &Arc::new(LostCause::Closed));
        match stop {
            Stop::Close(done) => drop(done),
            Stop::Abandoned => {}
        }
        None
    }

    /// Ends the link for good and tells everybody who waits.
    fn end(&self, backlog: &mut Backlog, cause: &Arc<LostCause>) {
        let cause = self.shared.end(cause.clone());
        backlog.close(|request| self.shared.lost(&cause, request.may_have_run));
    }
}

/// Marks the link as closed when its task ends, also if it panics or is dropped with its runtime. The first cause
/// stands, so this changes nothing after an end in good order.
struct EndsOnDrop<'a> {
    shared: &'a Shared,
    room: Arc<Semaphore>,
}

impl Drop for EndsOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.stopped();
        self.room.close();
    }
}

#[cfg(test)]
pub(crate) mod tests;
