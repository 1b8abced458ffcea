//! [`ConnectionTask`]: drives the current connection, then makes the next one. [`DriverSlot`]: its driver, shared with callers.
//!
//! A caller that finds nothing in flight sends its request directly: the connection task, perhaps on another thread, is
//! not woken. The [queue](super::queue) decides which caller that is.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, debug, debug_span, info, warn};

use super::driver::Driver;
use super::queue::SubmitQueue;
use super::request::Request;
use super::state::MultiplexerState;
use crate::config::{Backoff, STABLE_AFTER};
use crate::error::{Chain, LostCause};
use crate::link::{Connector, LONGEST_WAIT_FOR_DATA, RawConnection};
use crate::stats::Purpose;
use crate::sync::{Mutex, lock};

/// When and how to reconnect.
#[derive(Clone)]
pub(crate) struct ReconnectPolicy {
    pub(crate) connector: Arc<Connector>,
    pub(crate) backoff: Backoff,
}

/// The task behind a [`Multiplexer`](super::Multiplexer).
pub(super) struct ConnectionTask {
    pub(super) queue: Arc<SubmitQueue<Request>>,
    pub(super) slot: Arc<DriverSlot>,
    pub(super) state: Arc<MultiplexerState>,
    pub(super) policy: Option<ReconnectPolicy>,
}

impl ConnectionTask {
    pub(super) async fn run(self, mut raw: RawConnection) {
        let retries = self.policy.as_ref().map(|policy| policy.connector.config.retries);
        let mut attempt = 0;
        loop {
            let span = debug_span!("connection", peer = %self.state.peer, transport = %raw.info.transport);
            let born = Instant::now();
            let moved = self.policy.as_ref().and_then(|policy| policy.connector.moved(&raw));
            let driver = Driver::new(raw, self.queue.clone(), self.state.clone(), retries);
            let drive = self.slot.drive(driver).instrument(span);
            let cause = match moved {
                None => drive.await,
                Some(moved) => self.drive_until(drive, moved).await,
            };
            let policy = match &self.policy {
                Some(policy) if !matches!(*cause, LostCause::Closed) => policy.clone(),
                _ => return self.end(cause),
            };
            self.state.disconnected(&cause);
            warn!(peer = %self.state.peer, cause = %Chain(&*cause), "connection lost");
            // A server that ends each connection at once gets growing waits too.
            attempt = if born.elapsed() > STABLE_AFTER { 0 } else { attempt + 1 };
            match self.reconnect(&policy, &cause, attempt).await {
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
        policy: &ReconnectPolicy,
        cause: &Arc<LostCause>,
        first: u32,
    ) -> Option<RawConnection> {
        let why = |request: &Request| self.state.not_restored(cause, request.may_have_run);
        let offline_timeout = policy.connector.config.offline_timeout;
        let mut reached = policy.connector.reached.subscribe();
        // Not behind a server that ends connections as soon as they are made: they would drive each other.
        let is_first_outage = first <= 1;
        let mut loading = None;
        for attempt in first.. {
            let offline = self.queue.wait_offline(offline_timeout, why);
            let wait = policy.backoff.wait(attempt);
            let wait = if loading.is_some() { wait.min(LONGEST_WAIT_FOR_DATA) } else { wait };
            tokio::select! {
                () = offline => return None,
                () = self.pause(wait, policy) => {}
                // The server is there.
                _ = reached.changed(), if is_first_outage => {}
            }
            let offline = self.queue.wait_offline(offline_timeout, why);
            let connected = tokio::select! {
                connected = policy.connector.connect_loaded(Purpose::Shared, &mut loading) => connected,
                () = offline => return None,
            };
            match connected {
                Ok(raw) => return Some(raw),
                Err(error) => {
                    debug!(error = %format_args!("{error:#}"), attempt, "not connected");
                    let refuses_login = error.refuses_login();
                    self.state.reconnect_failed(attempt - first + 1, error);
                    if refuses_login {
                        // The server is there, and commands that wait longer would not run either.
                        self.queue.fail_waiting(why);
                    }
                }
            }
        }
        None
    }

    /// Waits before an attempt: less while a request waits that would fail before the attempt.
    async fn pause(&self, mut wait: Duration, policy: &ReconnectPolicy) {
        if let Some(patience) = policy.connector.config.patience() {
            let step = policy.backoff.step(patience);
            while wait > step {
                sleep(step).await;
                wait -= step;
                if self.queue.has_waiting() {
                    return;
                }
            }
        }
        sleep(wait).await;
    }

    /// Ends the multiplexer for good and fails every waiting request. The first cause stands.
    fn end(&self, cause: Arc<LostCause>) {
        let cause = self.state.end(cause);
        if let Some(policy) = &self.policy {
            // A call that waits for the server finds out that this does not.
            policy.connector.reached.send_replace(());
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
