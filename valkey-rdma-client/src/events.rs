//! [`ConnectionEvents`]: what happens to the shared connections of a client.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::error::{ConnectError, LostCause, Reason};
use crate::stats::ConnectionInfo;

pub(crate) mod hub;

use hub::{Hub, Unread};

/// What happened to a shared connection. `connection` counts them from 0: see [`Config::connections`](crate::Config::connections).
///
/// `Display` is a line for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// It was connected when listening began.
    Connected {
        /// Which connection.
        connection: usize,
        /// Describes it.
        info: Arc<ConnectionInfo>,
    },
    /// It ended, and the client reconnects.
    Lost {
        /// Which connection.
        connection: usize,
        /// Why.
        cause: Arc<LostCause>,
    },
    /// An attempt to reconnect failed. The client tries again.
    ReconnectFailed {
        /// Which connection.
        connection: usize,
        /// Which attempt since the connection was lost, from 1.
        attempt: u32,
        /// Why.
        error: ConnectError,
    },
    /// It is connected again.
    Reconnected {
        /// Which connection.
        connection: usize,
        /// Describes it.
        info: Arc<ConnectionInfo>,
    },
    /// It runs over TCP although RDMA was tried first (`fallback=tcp`). Follows `Connected` or `Reconnected`.
    FellBack {
        /// Which connection.
        connection: usize,
        /// Why RDMA failed.
        reason: String,
    },
    /// It ended for good: closed by this program, or lost with reconnecting disabled.
    Closed {
        /// Which connection.
        connection: usize,
        /// Why.
        cause: Arc<LostCause>,
    },
    /// The program did not read events for so long that the oldest were dropped.
    Missed {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { connection, info } => write!(f, "connection {connection}: {info}"),
            Self::Lost { connection, cause } => {
                write!(f, "connection {connection} lost: {:#}", Reason(cause))
            }
            Self::ReconnectFailed { connection, attempt, error } => {
                write!(f, "connection {connection} not restored at attempt {attempt}: {error:#}")
            }
            Self::Reconnected { connection, info } => write!(f, "connection {connection} restored: {info}"),
            Self::FellBack { connection, reason } => {
                write!(f, "connection {connection} uses tcp instead of rdma: {reason}")
            }
            Self::Closed { connection, cause } => {
                write!(f, "connection {connection} closed: {:#}", Reason(cause))
            }
            Self::Missed { count } => write!(f, "{count} events missed"),
        }
    }
}

/// Events of a client's shared connections, in order: [`Client::events`](crate::Client::events). Also a [`Stream`]. The last 64
/// events are kept until they are read. It ends when all connections have closed for good.
#[derive(Debug)]
pub struct ConnectionEvents(Unread<ConnectionEvent>);

/// The most events that wait to be read.
const KEPT: usize = 64;

impl ConnectionEvents {
    /// The next event; `None` once all connections have closed for good.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ConnectionEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<Option<ConnectionEvent>> {
        self.0.poll(cx)
    }
}

impl Stream for ConnectionEvents {
    type Item = ConnectionEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ConnectionEvent>> {
        self.poll(cx)
    }
}

/// Passes the events of a client's shared connections to those who listen.
#[derive(Debug)]
pub(crate) struct EventHub {
    hub: Hub<ConnectionEvent>,
    /// Connections that have not closed for good.
    open: AtomicUsize,
}

impl EventHub {
    pub(crate) fn new(connections: usize) -> Self {
        let hub = Hub::new(KEPT, |count| ConnectionEvent::Missed { count });
        Self { hub, open: AtomicUsize::new(connections) }
    }

    /// Listens from now on. `connected` describes the connections that are up, by number.
    pub(crate) fn listen(
        &self,
        connected: impl FnOnce() -> Vec<(usize, Arc<ConnectionInfo>)>,
    ) -> ConnectionEvents {
        ConnectionEvents(self.hub.listen(|| {
            connected().into_iter().flat_map(|(connection, info)| {
                let fell_back = fell_back(connection, &info);
                std::iter::once(ConnectionEvent::Connected { connection, info }).chain(fell_back)
            })
        }))
    }
}

fn fell_back(connection: usize, info: &ConnectionInfo) -> Option<ConnectionEvent> {
    info.fallback.clone().map(|reason| ConnectionEvent::FellBack { connection, reason })
}

/// Reports what happens to one connection.
#[derive(Clone, Debug)]
pub(crate) struct EventReporter {
    hub: Arc<EventHub>,
    connection: usize,
}

impl EventReporter {
    pub(crate) fn new(hub: Arc<EventHub>, connection: usize) -> Self {
        Self { hub, connection }
    }

    pub(crate) fn lost(&self, cause: &Arc<LostCause>) {
        let connection = self.connection;
        self.hub.hub.pass(|| [ConnectionEvent::Lost { connection, cause: cause.clone() }]);
    }

    pub(crate) fn reconnect_failed(&self, attempt: u32, error: &ConnectError) {
        let connection = self.connection;
        let failed = || ConnectionEvent::ReconnectFailed { connection, attempt, error: error.clone() };
        self.hub.hub.pass(|| [failed()]);
    }

    pub(crate) fn reconnected(&self, info: &Arc<ConnectionInfo>) {
        let connection = self.connection;
        let reconnected = || ConnectionEvent::Reconnected { connection, info: info.clone() };
        self.hub.hub.pass(|| std::iter::once(reconnected()).chain(fell_back(connection, info)));
    }

    /// To be called once.
    pub(crate) fn closed(&self, cause: &Arc<LostCause>) {
        let connection = self.connection;
        self.hub.hub.pass(|| [ConnectionEvent::Closed { connection, cause: cause.clone() }]);
        if self.hub.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.hub.hub.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use futures_util::FutureExt;

    use super::*;
    use crate::sync::{Mutex, lock};

    fn now(events: &mut ConnectionEvents) -> Option<Option<String>> {
        events.next().now_or_never().map(|event| event.map(|event| event.to_string()))
    }

    #[test]
    fn a_slow_listener_learns_how_many_events_it_missed() {
        let hub = Arc::new(EventHub::new(1));
        let reporter = EventReporter::new(hub.clone(), 0);
        let mut events = hub.listen(Vec::new);
        assert_eq!(now(&mut events), None);
        for _ in 0..KEPT + 3 {
            reporter.lost(&Arc::new(LostCause::PeerClosed));
        }
        assert_eq!(now(&mut events), Some(Some("3 events missed".to_owned())));
        for _ in 0..KEPT {
            assert_eq!(now(&mut events), Some(Some("connection 0 lost: the peer closed it".to_owned())));
        }
        assert_eq!(now(&mut events), None);
    }

    /// One that polls where it is woken.
    #[test]
    fn a_waker_may_use_the_events() {
        struct Reads(Mutex<Option<ConnectionEvents>>, Mutex<Vec<ConnectionEvent>>);
        impl Wake for Reads {
            fn wake(self: Arc<Self>) {
                if let Some(Poll::Ready(Some(event))) =
                    lock(&self.0).as_mut().map(|events| events.poll(&Context::from_waker(Waker::noop())))
                {
                    lock(&self.1).push(event);
                }
            }
        }
        let hub = Arc::new(EventHub::new(1));
        let events = hub.listen(Vec::new);
        let reads = Arc::new(Reads(Mutex::default(), Mutex::default()));
        let waker = Waker::from(reads.clone());
        assert!(events.poll(&Context::from_waker(&waker)).is_pending());
        *lock(&reads.0) = Some(events);
        EventReporter::new(hub, 0).lost(&Arc::new(LostCause::PeerClosed));
        assert_eq!(lock(&reads.1).len(), 1);
    }

    #[test]
    fn events_end_with_the_last_connection() {
        let hub = Arc::new(EventHub::new(2));
        let mut events = hub.listen(Vec::new);
        for connection in 0..2 {
            EventReporter::new(hub.clone(), connection).closed(&Arc::new(LostCause::Closed));
        }
        for connection in 0..2 {
            let text = format!("connection {connection} closed: it was closed by this program");
            assert_eq!(now(&mut events), Some(Some(text)));
        }
        assert_eq!(now(&mut events), Some(None));
        assert_eq!(now(&mut hub.listen(Vec::new)), Some(None), "listening later ends at once");
    }
}
