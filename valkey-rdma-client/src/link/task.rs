//! [`ConnectionTask`]: drives the current connection, then makes the next one. [`DriverSlot`]: its driver, shared with callers.
//!
//! A caller that finds nothing in flight sends its request directly: the connection task, perhaps on another thread, is
//! not woken. The [queue](super::queue) decides which caller that is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use tokio::task::coop::unconstrained;
use tracing::{Instrument, debug, debug_span, info, warn};

use super::driver::Driver;
use super::queue::SubmitQueue;
use super::request::Request;
use super::state::MultiplexerState;
use crate::error::{Chain, LostCause};
use crate::link::{Connector, RawConnection, Redialer};
use crate::stats::Purpose;
use valkey_rdma_transport::sync::{Mutex, lock};

/// The task behind a [`Multiplexer`](super::Multiplexer).
pub(super) struct ConnectionTask {
    pub(super) queue: Arc<SubmitQueue<Request>>,
    pub(super) slot: Arc<DriverSlot>,
    pub(super) state: Arc<MultiplexerState>,
    /// Makes the next connections. `None`: a lost connection stays lost.
    pub(super) connector: Option<Arc<Connector>>,
}

impl ConnectionTask {
    pub(super) async fn run(self, mut raw: RawConnection) {
        let connector = self.connector.clone();
        let mut redialer = connector.as_deref().and_then(Redialer::of);
        redialer.iter_mut().for_each(Redialer::connected);
        loop {
            let span = debug_span!("connection", peer = %self.state.peer, transport = %raw.info.transport);
            // The driver itself notices that the name means another server.
            let located = connector.as_ref().and_then(|connector| connector.whereabouts(&raw));
            let moved = located.map(|located| located.moved());
            let driver = Driver::new(raw, self.queue.clone(), self.state.clone(), connector.clone());
            let drive = self.slot.drive(driver).instrument(span);
            let cause = match moved {
                None => drive.await,
                Some(moved) => self.drive_until(drive, moved).await,
            };
            let (Some(connector), Some(redialer)) = (&connector, &mut redialer) else {
                return self.end(cause);
            };
            match *cause {
                LostCause::Closed => return self.end(cause),
                LostCause::Moved => redialer.moved(),
                _ => redialer.lost(),
            }
            self.state.disconnected(&cause);
            warn!(peer = %self.state.peer, cause = %Chain(&*cause), "connection lost");
            match self.reconnect(connector, redialer, &cause).await {
                Some(next) => raw = next,
                None => return self.end(Arc::new(LostCause::Closed)),
            }
            self.state.connected(&raw);
            info!(peer = %self.state.peer, connection = %raw.info, "connected again");
        }
    }

    /// Drives a connection to its end, or until the primary has moved.
    async fn drive_until(
        &self,
        drive: impl Future<Output = Arc<LostCause>>,
        moved: impl Future<Output = ()>,
    ) -> Arc<LostCause> {
        let mut drive = pin!(drive);
        tokio::select! {
            biased;
            cause = &mut drive => return cause,
            () = moved => self.slot.give_up(),
        }
        drive.await
    }

    /// Tries until a connection is made. `None`: no connection is needed any more.
    async fn reconnect(
        &self,
        connector: &Connector,
        redialer: &mut Redialer,
        cause: &Arc<LostCause>,
    ) -> Option<RawConnection> {
        let why = |request: &Request| self.state.not_restored(cause, request.may_have_run);
        for attempt in 1.. {
            let offline = self.queue.wait_offline(connector.config.offline_timeout, why);
            let next = redialer.next_loaded(|| self.queue.has_waiting(), connector, Purpose::Shared);
            let connected = tokio::select! {
                connected = next => connected,
                () = offline => return None,
            };
            match connected {
                Ok(raw) => return Some(raw),
                Err(error) => {
                    debug!(error = %format_args!("{error:#}"), attempt, "not connected");
                    let refuses_login = error.refuses_login();
                    self.state.reconnect_failed(attempt, error);
                    if refuses_login {
                        // The server is there, and commands that wait longer would not run either.
                        self.queue.fail_waiting(why);
                    }
                }
            }
        }
        None
    }

    /// Ends the multiplexer for good and fails every waiting request. The first cause stands.
    fn end(&self, cause: Arc<LostCause>) {
        let cause = self.state.end(cause);
        if let Some(connector) = &self.connector {
            // A call that waits for the server finds out that this does not.
            connector.server_is_back.send_replace(());
        }
        self.queue.fail_and_finish(|request| self.state.lost_error(&cause, request.may_have_run));
    }
}

/// Ends the multiplexer when its task ends, also if it panics or is dropped with its runtime, even before it was polled.
impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.end(Arc::new(LostCause::Stopped));
    }
}

/// The driver of the current connection, if there is one.
#[derive(Default)]
pub(crate) struct DriverSlot(Mutex<Option<Box<Driver>>>);

impl DriverSlot {
    /// Polls a driver to the end of its connection, on the connection task. If the future is dropped, the connection
    /// ends, and waiting requests fail.
    pub(crate) async fn drive(&self, driver: Driver) -> Arc<LostCause> {
        let _clears = ClearOnDrop(self);
        self.0.clear_poison();
        *lock(&self.0) = Some(Box::new(driver));
        // It limits its turns itself. A stream whose budget is used up would say that there is nothing to read, and wake the
        // driver only when this worker has run what is ready.
        unconstrained(poll_fn(|cx| {
            // A driver that panicked on a caller's task is about to end.
            let mut slot = lock(&self.0);
            let Some(driver) = &mut *slot else { unreachable!("only this future empties it") };
            let cause = ready!(driver.poll(cx));
            // Callers that come from here on leave their requests to the next connection.
            let ended = slot.take();
            drop(slot);
            drop(ended);
            Poll::Ready(cause)
        }))
        .await
    }

    /// Ends the connection because its server is no longer the one to talk to. `drive` returns soon after.
    pub(crate) fn give_up(&self) {
        if let Some(driver) = lock(&self.0).as_mut() {
            driver.give_up();
        }
    }

    /// Sends what waits, on the task of a caller. Returns false if the driver is in use or there is none: then it must
    /// be woken.
    pub(crate) fn send_inline(&self) -> bool {
        let Ok(mut slot) = self.0.try_lock() else { return false };
        slot.as_mut().is_some_and(|driver| {
            driver.send_inline();
            true
        })
    }
}

/// Empties the slot when the connection task stops driving, for whatever reason.
struct ClearOnDrop<'a>(&'a DriverSlot);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        let driver = lock(&self.0.0).take();
        // Dropped after the lock is released: this fails requests, which wakes callers.
        drop(driver);
    }
}
