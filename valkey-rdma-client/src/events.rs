//! [`ConnectionEvents`]: what happens to the shared connections of a client.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;

use crate::endpoint::NodeAddress;
use crate::error::{Error, LostCause, Reason};
use crate::stats::ConnectionInfo;

mod hub;

use hub::{Hub, Unread};

/// What happened to a shared connection. `node` is the address that a cluster announces; `None` if the client talks to one server.
/// `connection` counts those to one server from 0: see [`Config::connections`](crate::Config::connections).
///
/// `Display` is a line for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// It was connected when listening began. In a cluster also: it has been connected since, because a command needed the node.
    Connected {
        /// The node of a cluster.
        node: Option<NodeAddress>,
        /// Which connection.
        connection: usize,
        /// Describes it.
        info: Arc<ConnectionInfo>,
    },
    /// It ended, and is made again: at once by the client of one server, and for the next command by that of a cluster.
    Lost {
        /// The node of a cluster.
        node: Option<NodeAddress>,
        /// Which connection.
        connection: usize,
        /// Why.
        cause: Arc<LostCause>,
    },
    /// An attempt to connect failed. The next one waits. For one server, it was connected before. A node of a cluster may never have been, and
    /// the next attempt follows only if a command still needs the node.
    ConnectFailed {
        /// The node of a cluster.
        node: Option<NodeAddress>,
        /// Which connection. For a node of a cluster always 0: an attempt makes all of its connections.
        connection: usize,
        /// Which attempt since the last connection, from 1.
        attempt: u32,
        /// Why.
        error: Error,
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
        /// The node of a cluster.
        node: Option<NodeAddress>,
        /// Which connection.
        connection: usize,
        /// Why RDMA failed.
        reason: String,
    },
    /// It ended for good: closed by this program, or lost with reconnecting disabled. In a cluster also: the node has left.
    Closed {
        /// The node of a cluster.
        node: Option<NodeAddress>,
        /// Which connection.
        connection: usize,
        /// Why.
        cause: Arc<LostCause>,
    },
    /// A node of a cluster that is connected has left commands unanswered for longer than
    /// [`silence_limit`](crate::Config::silence_limit). Reported once, until no command waits for it.
    Silent {
        /// Which node.
        node: NodeAddress,
        /// For how long.
        silent_for: Duration,
    },
    /// Other nodes of a cluster are primaries than before, as this client knows it: after a failover, or when nodes have joined or left.
    /// Slots that move between the same primaries are not reported. Of two changes at the same moment, either may be reported last:
    /// [`Cluster::status`](crate::cluster::Cluster::status) says what is true now.
    PrimariesChanged {
        /// Their addresses, sorted.
        primaries: Vec<NodeAddress>,
    },
    /// The program did not read events for so long that the oldest were dropped.
    Missed {
        /// How many.
        count: u64,
    },
}

impl fmt::Display for ConnectionEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |f: &mut fmt::Formatter<'_>, node: &Option<NodeAddress>| match node {
            Some(node) => write!(f, "{node}: "),
            None => Ok(()),
        };
        match self {
            Self::Connected { node, connection, info } => {
                at(f, node)?;
                write!(f, "connection {connection}: {info}")
            }
            Self::Lost { node, connection, cause } => {
                at(f, node)?;
                write!(f, "connection {connection} lost: {:#}", Reason(cause))
            }
            Self::ConnectFailed { node, connection, attempt, error } => {
                at(f, node)?;
                write!(f, "connection {connection}: attempt {attempt} to connect failed: {error:#}")
            }
            Self::Reconnected { connection, info } => write!(f, "connection {connection} restored: {info}"),
            Self::FellBack { node, connection, reason } => {
                at(f, node)?;
                write!(f, "connection {connection} uses tcp instead of rdma: {reason}")
            }
            Self::Closed { node, connection, cause } => {
                at(f, node)?;
                write!(f, "connection {connection} closed: {:#}", Reason(cause))
            }
            Self::Silent { node, silent_for } => write!(f, "{node}: no reply for {silent_for:.1?}"),
            Self::PrimariesChanged { primaries } => {
                f.write_str("primaries:")?;
                primaries.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Self::Missed { count } => write!(f, "{count} events missed"),
        }
    }
}

/// Events of a client's shared connections, in order: [`Client::events`](crate::Client::events). Also a [`Stream`]. The last 256 events
/// are kept until they are read. It ends when all connections have closed for good, and those of a cluster also once its client was dropped.
#[derive(Debug)]
pub struct ConnectionEvents(Unread<ConnectionEvent>);

/// The most events that wait to be read.
const KEPT: usize = 256;

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

/// Passes the events of a client to those who listen. It ends once [`release`](Self::release) was called for its owner and for each
/// connection.
#[derive(Debug)]
pub(crate) struct EventHub {
    hub: Hub<ConnectionEvent>,
    /// The owner, and the connections that have not closed for good.
    open: AtomicUsize,
}

impl EventHub {
    pub(crate) fn new() -> Arc<Self> {
        let hub = Hub::new(KEPT, |count| ConnectionEvent::Missed { count });
        Arc::new(Self { hub, open: AtomicUsize::new(1) })
    }

    /// Listens from now on. `now` describes the connections that are up.
    pub(crate) fn listen<I: IntoIterator<Item = ConnectionEvent>>(
        &self,
        now: impl FnOnce() -> I,
    ) -> ConnectionEvents {
        ConnectionEvents(self.hub.listen(now))
    }

    /// Passes an event to each listener.
    pub(crate) fn pass(&self, event: impl Fn() -> ConnectionEvent) {
        self.hub.pass(|| [event()]);
    }

    /// The owner, or a connection, reports nothing more.
    pub(crate) fn release(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.hub.end();
        }
    }
}

/// The events of the connections to one server. They are passed on from [`announce`](Self::announce) on: until then, a node of a cluster
/// may turn out to have only some of its connections, and has none then.
#[derive(Debug)]
pub(crate) struct ServerEvents {
    hub: Arc<EventHub>,
    node: Option<NodeAddress>,
    is_announced: AtomicBool,
}

impl ServerEvents {
    /// Those of the only server.
    pub(crate) fn alone() -> Arc<Self> {
        Arc::new(Self { hub: EventHub::new(), node: None, is_announced: AtomicBool::new(true) })
    }

    /// Those of a node, beside those of the others.
    pub(crate) fn of_node(hub: &Arc<EventHub>, node: &NodeAddress) -> Arc<Self> {
        let is_announced = AtomicBool::new(false);
        Arc::new(Self { hub: hub.clone(), node: Some(node.clone()), is_announced })
    }

    /// The reporter of one connection.
    pub(crate) fn reporter(self: &Arc<Self>, connection: usize) -> EventReporter {
        self.hub.open.fetch_add(1, Ordering::Relaxed);
        EventReporter { events: self.clone(), connection }
    }

    /// The last connection of a server has its reporter. Those of the only server end the hub.
    pub(crate) fn complete(&self) {
        if self.node.is_none() {
            self.hub.release();
        }
    }

    /// The hub, for the owner of the only server.
    pub(crate) fn hub(&self) -> &EventHub {
        &self.hub
    }

    /// A node is connected once `publish` has run: `now` describes its connections that are up. No listener is added in between.
    pub(crate) fn announce<I: IntoIterator<Item = ConnectionEvent>>(
        &self,
        publish: impl FnOnce(),
        now: impl Fn() -> I,
    ) {
        let publish = || {
            publish();
            self.is_announced.store(true, Ordering::Relaxed);
        };
        self.hub.hub.pass_after(publish, now);
    }

    /// Describes a connection that is up.
    pub(crate) fn connected(
        &self,
        connection: usize,
        info: Arc<ConnectionInfo>,
    ) -> impl Iterator<Item = ConnectionEvent> + use<> {
        let fell_back = self.fell_back(connection, &info);
        let node = self.node.clone();
        std::iter::once(ConnectionEvent::Connected { node, connection, info }).chain(fell_back)
    }

    fn fell_back(&self, connection: usize, info: &ConnectionInfo) -> Option<ConnectionEvent> {
        let node = self.node.clone();
        info.fallback.clone().map(|reason| ConnectionEvent::FellBack { node, connection, reason })
    }

    /// Passes events on, unless the server is not announced yet. The hub's lock orders the two.
    fn pass<I: IntoIterator<Item = ConnectionEvent>>(&self, events: impl Fn() -> I) {
        let announced = || self.is_announced.load(Ordering::Relaxed);
        self.hub.hub.pass(|| announced().then(&events).into_iter().flatten());
    }
}

/// Reports what happens to one connection.
#[derive(Debug)]
pub(crate) struct EventReporter {
    events: Arc<ServerEvents>,
    connection: usize,
}

impl EventReporter {
    pub(crate) fn lost(&self, cause: &Arc<LostCause>) {
        let connection = self.connection;
        let node = || self.events.node.clone();
        self.events.pass(|| [ConnectionEvent::Lost { node: node(), connection, cause: cause.clone() }]);
    }

    pub(crate) fn connect_failed(&self, attempt: u32, error: &Error) {
        let connection = self.connection;
        let node = || self.events.node.clone();
        let failed =
            || ConnectionEvent::ConnectFailed { node: node(), connection, attempt, error: error.clone() };
        self.events.pass(|| [failed()]);
    }

    pub(crate) fn reconnected(&self, info: &Arc<ConnectionInfo>) {
        let connection = self.connection;
        let reconnected = || ConnectionEvent::Reconnected { connection, info: info.clone() };
        self.events.pass(|| std::iter::once(reconnected()).chain(self.events.fell_back(connection, info)));
    }

    /// To be called once. A node of a cluster does not restore a connection: another replaces it, so it is lost unless it was closed.
    pub(crate) fn closed(&self, cause: &Arc<LostCause>) {
        match (&self.events.node, &**cause) {
            (None, _) | (Some(_), LostCause::Closed) => {
                let (node, connection) = (|| self.events.node.clone(), self.connection);
                let closed = || ConnectionEvent::Closed { node: node(), connection, cause: cause.clone() };
                self.events.pass(|| [closed()]);
            }
            (Some(_), _) => self.lost(cause),
        }
        self.events.hub.release();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use futures_util::FutureExt;

    use super::*;
    use valkey_rdma_transport::sync::{Mutex, lock};

    #[test]
    fn a_failed_connect_is_not_called_a_restored_connection() {
        let (node, error) = (Some(NodeAddress::new("10.0.0.2", 6379)), crate::EndpointError::NoSeeds.into());
        let event = ConnectionEvent::ConnectFailed { node, connection: 0, attempt: 1, error };
        let text = event.to_string();
        assert!(text.starts_with("10.0.0.2:6379: connection 0: attempt 1 to connect failed: "), "{text}");
    }

    fn now(events: &mut ConnectionEvents) -> Option<Option<String>> {
        events.next().now_or_never().map(|event| event.map(|event| event.to_string()))
    }

    #[test]
    fn a_slow_listener_learns_how_many_events_it_missed() {
        let server = ServerEvents::alone();
        let reporter = server.reporter(0);
        let mut events = server.hub().listen(Vec::new);
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
        let server = ServerEvents::alone();
        let events = server.hub().listen(Vec::new);
        let reads = Arc::new(Reads(Mutex::default(), Mutex::default()));
        let waker = Waker::from(reads.clone());
        assert!(events.poll(&Context::from_waker(&waker)).is_pending());
        *lock(&reads.0) = Some(events);
        server.reporter(0).lost(&Arc::new(LostCause::PeerClosed));
        assert_eq!(lock(&reads.1).len(), 1);
    }

    #[test]
    fn events_end_with_the_last_connection() {
        let server = ServerEvents::alone();
        let mut events = server.hub().listen(Vec::new);
        let reporters = [0, 1].map(|connection| server.reporter(connection));
        server.complete();
        reporters.iter().for_each(|reporter| reporter.closed(&Arc::new(LostCause::Closed)));
        for connection in 0..2 {
            let text = format!("connection {connection} closed: it was closed by this program");
            assert_eq!(now(&mut events), Some(Some(text)));
        }
        assert_eq!(now(&mut events), Some(None));
        assert_eq!(now(&mut server.hub().listen(Vec::new)), Some(None), "listening later ends at once");
    }
}
