//! [`MultiplexerState`]: shared by clients, the connection task and its drivers.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;
use valkey_rdma_resp::Value;
use valkey_rdma_transport::Monitor;

use crate::error::{ConnectError, Error, LostCause, LostConnection, TimedOut};
use crate::events::EventReporter;
use crate::link::RawConnection;
use crate::stats::AtomicCounters;
use crate::stats::{ConnectionInfo, ConnectionStatus, Purpose, State};
use valkey_rdma_transport::sync::{Mutex, MutexGuard, lock};

/// Receives push messages on the driver's task, before any later reply is delivered.
pub(crate) type PushHook = Arc<dyn Fn(Push<'_>) + Send + Sync>;

/// An event for a [`PushHook`].
pub(crate) enum Push<'a> {
    Message(&'a [Value]),
    /// Messages may be missed from here on, because the connection has ended.
    Gap,
}

pub(crate) struct MultiplexerState {
    pub(crate) peer: Arc<str>,
    pub(crate) counters: AtomicCounters,
    pub(crate) pushes: Option<PushHook>,
    events: EventReporter,
    /// Set when `close` is called: requests are refused although the connection may still live. The moment at which
    /// closing gives up waiting for replies; `None`: never.
    pub(crate) closing: OnceLock<Option<Instant>>,
    /// True while connected.
    online: AtomicBool,
    current: Mutex<Current>,
    /// The cause that ended the multiplexer for good.
    cause: OnceLock<Arc<LostCause>>,
}

/// The current connection, or the last one.
struct Current {
    info: Arc<ConnectionInfo>,
    /// Reads the transport's counters, where the transport is ours.
    monitor: Option<Monitor>,
    /// The reason for being disconnected; `None` while connected.
    outage: Option<Error>,
}

impl MultiplexerState {
    pub(crate) fn new(
        peer: Arc<str>,
        raw: &RawConnection,
        pushes: Option<PushHook>,
        events: EventReporter,
    ) -> Self {
        Self {
            peer,
            events,
            counters: AtomicCounters::default(),
            pushes,
            closing: OnceLock::new(),
            online: AtomicBool::new(true),
            current: Mutex::new(Current {
                info: raw.info.clone(),
                monitor: raw.monitor.clone(),
                outage: None,
            }),
            cause: OnceLock::new(),
        }
    }

    pub(crate) fn connected(&self, raw: &RawConnection) {
        *self.current() = Current { info: raw.info.clone(), monitor: raw.monitor.clone(), outage: None };
        self.counters.reconnected();
        self.online.store(true, Ordering::Relaxed);
        self.events.reconnected(&raw.info);
    }

    pub(crate) fn disconnected(&self, cause: &Arc<LostCause>) {
        self.online.store(false, Ordering::Relaxed);
        self.current().outage = Some(self.lost_error(cause, false));
        self.events.lost(cause);
    }

    /// Records the latest reason for being disconnected.
    pub(crate) fn reconnect_failed(&self, attempt: u32, error: ConnectError) {
        let error = error.into();
        self.events.connect_failed(attempt, &error);
        self.current().outage = Some(error);
    }

    /// The reason for being disconnected; `None` while connected.
    pub(crate) fn disconnect_reason(&self) -> Option<Error> {
        self.current().outage.clone()
    }

    pub(crate) fn is_online(&self) -> bool {
        self.online.load(Ordering::Relaxed)
    }

    /// Records the end of the multiplexer. The first cause stands.
    pub(crate) fn end(&self, cause: Arc<LostCause>) -> Arc<LostCause> {
        self.online.store(false, Ordering::Relaxed);
        if self.cause.set(cause.clone()).is_ok() {
            self.events.closed(&cause);
        }
        self.cause.get().cloned().unwrap_or(cause)
    }

    pub(crate) fn info(&self) -> Arc<ConnectionInfo> {
        self.current().info.clone()
    }

    pub(crate) fn state(&self) -> State {
        if self.cause.get().is_some() {
            State::Closed
        } else if self.is_online() {
            State::Connected
        } else {
            State::Reconnecting
        }
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        ConnectionStatus {
            purpose: Purpose::Shared,
            state: self.state(),
            info: self.info(),
            counters: self.counters.read(),
            stats: self.current().monitor.as_ref().map(Monitor::stats),
        }
    }

    pub(crate) fn lost_error(&self, cause: &Arc<LostCause>, may_have_run: bool) -> Error {
        LostConnection::new(self.peer.clone(), cause.clone(), may_have_run).into()
    }

    /// The error for a request whose wait for another connection is over.
    pub(crate) fn not_restored(&self, cause: &Arc<LostCause>, may_have_run: bool) -> Error {
        match self.disconnect_reason() {
            Some(why) if !may_have_run => why,
            why => {
                let mut lost = LostConnection::new(self.peer.clone(), cause.clone(), may_have_run);
                if let Some(Error::Connect(why)) = why {
                    lost.not_restored = Some(Arc::new(why));
                }
                lost.into()
            }
        }
    }

    pub(crate) fn timed_out(&self, limit: Duration, may_have_run: bool) -> Error {
        TimedOut { peer: self.peer.clone(), limit, may_have_run }.into()
    }

    /// The error for a request that the task did not take, or dropped without an error. After an orderly end, every
    /// request it had taken was answered.
    pub(crate) fn error_for_unanswered(&self, handed_over: bool) -> Error {
        match self.cause.get() {
            Some(cause) => self.lost_error(cause, handed_over && matches!(**cause, LostCause::Stopped)),
            None if !handed_over && self.closing.get().is_some() => {
                self.lost_error(&Arc::new(LostCause::Closed), false)
            }
            None => self.lost_error(&Arc::new(LostCause::Stopped), handed_over),
        }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }
}

impl fmt::Debug for MultiplexerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiplexerState")
            .field("peer", &self.peer)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
