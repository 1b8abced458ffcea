//! [`ClusterEvents`]: what happens to the connections of a cluster client, node by node.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::{Map, SelectAll, StreamExt, select_all};

use super::address::NodeAddress;
use crate::error::{Error, LostCause, Reason};
use crate::events::hub::{Hub, Unread};
use crate::events::{ConnectionEvent, ConnectionEvents};
use crate::server::Server;
use crate::stats::ConnectionInfo;

/// What happened to a connection to a node, or to the cluster. `connection` counts those to one node from 0: see
/// [`Config::connections`](crate::Config::connections).
///
/// `Display` is a line for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// It was connected when listening began, or has been connected since: when the first command needed it, or again.
    Connected {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// Which connection.
        connection: usize,
        /// Describes it.
        info: Arc<ConnectionInfo>,
    },
    /// It runs over TCP although RDMA was tried first (`fallback=tcp`). Follows `Connected`.
    FellBack {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// Which connection.
        connection: usize,
        /// Why RDMA failed.
        reason: String,
    },
    /// It ended. The next command for the node connects again.
    Lost {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// Which connection.
        connection: usize,
        /// Why.
        cause: Arc<LostCause>,
    },
    /// An attempt to connect to a node failed. The next one waits, and follows if a command still needs the node.
    ConnectFailed {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// Why.
        error: Error,
    },
    /// A node that is connected has left commands unanswered for longer than
    /// [`silence_limit`](super::ClusterConfig::silence_limit). Reported once, until no command waits for it.
    Silent {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// For how long.
        silent_for: Duration,
    },
    /// Other nodes are primaries than before, as this client knows it: after a failover, or when nodes have joined or left. Slots that
    /// move between the same primaries are not reported. Of two changes at the same moment, either may be reported last:
    /// [`ClusterClient::status`](crate::ClusterClient::status) says what is true now.
    PrimariesChanged {
        /// The addresses that the cluster announces, sorted.
        primaries: Vec<NodeAddress>,
    },
    /// This client ended it: it was closed, or the node left the cluster.
    Closed {
        /// The address that the cluster announces.
        node: NodeAddress,
        /// Which connection.
        connection: usize,
    },
    /// The program did not read events for so long that the oldest were dropped.
    Missed {
        /// How many, at least.
        count: u64,
    },
}

impl fmt::Display for ClusterEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected { node, connection, info } => {
                write!(f, "{node}: connection {connection}: {info}")
            }
            Self::FellBack { node, connection, reason } => {
                write!(f, "{node}: connection {connection} uses tcp instead of rdma: {reason}")
            }
            Self::Lost { node, connection, cause } => {
                write!(f, "{node}: connection {connection} lost: {:#}", Reason(cause))
            }
            Self::ConnectFailed { node, error } => write!(f, "{node}: not connected: {error:#}"),
            Self::PrimariesChanged { primaries } => {
                f.write_str("primaries:")?;
                primaries.iter().try_for_each(|node| write!(f, " {node}"))
            }
            Self::Silent { node, silent_for } => write!(f, "{node}: no reply for {silent_for:.1?}"),
            Self::Closed { node, connection } => write!(f, "{node}: connection {connection} closed"),
            Self::Missed { count } => write!(f, "{count} events missed"),
        }
    }
}

/// Events of the connections that a cluster client shares, to all nodes:
/// [`ClusterClient::events`](crate::ClusterClient::events). Also a [`Stream`]. Those of one connection are in order. The last 64 events of each connection, and the last 256 others, are kept until
/// they are read. It ends when the client has been closed or dropped and all its connections have ended.
#[derive(Debug)]
pub struct ClusterEvents {
    news: Unread<News>,
    /// The connections that are known.
    connections: SelectAll<OfNode>,
}

/// The events of the connections to one node.
type OfNode = Map<ConnectionEvents, Box<dyn FnMut(ConnectionEvent) -> ClusterEvent + Send>>;

impl ClusterEvents {
    /// The next event; `None` once the client and all its connections have ended.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<ClusterEvent> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ClusterEvent>> {
        loop {
            // First: what a node reports next was after this.
            if let Poll::Ready(Some(event)) = self.connections.poll_next_unpin(cx) {
                return Poll::Ready(Some(event));
            }
            match ready!(self.news.poll(cx)) {
                Some(News::Connection(node, events)) => self.connections.push(of_node(node, events)),
                Some(News::Event(event)) => return Poll::Ready(Some(event)),
                None if self.connections.is_empty() => return Poll::Ready(None),
                None => return Poll::Pending,
            }
        }
    }
}

impl Stream for ClusterEvents {
    type Item = ClusterEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ClusterEvent>> {
        self.poll(cx)
    }
}

fn of_node(node: NodeAddress, events: ConnectionEvents) -> OfNode {
    let named: Box<dyn FnMut(ConnectionEvent) -> ClusterEvent + Send> = Box::new(move |event| {
        let node = node.clone();
        match event {
            ConnectionEvent::Connected { connection, info }
            | ConnectionEvent::Reconnected { connection, info } => {
                ClusterEvent::Connected { node, connection, info }
            }
            ConnectionEvent::FellBack { connection, reason } => {
                ClusterEvent::FellBack { node, connection, reason }
            }
            // A node's connections do not reconnect: each is replaced by another, in `Node`.
            ConnectionEvent::Closed { connection, cause } | ConnectionEvent::Lost { connection, cause } => {
                match *cause {
                    LostCause::Closed => ClusterEvent::Closed { node, connection },
                    _ => ClusterEvent::Lost { node, connection, cause },
                }
            }
            ConnectionEvent::ReconnectFailed { error, .. } => {
                ClusterEvent::ConnectFailed { node, error: error.into() }
            }
            ConnectionEvent::Missed { count } => ClusterEvent::Missed { count },
        }
    });
    events.map(named)
}

/// What a listener reads beside the events of the connections that it knows.
#[derive(Debug)]
enum News {
    /// The connections to a node, from now on.
    Connection(NodeAddress, ConnectionEvents),
    Event(ClusterEvent),
}

/// Passes news to listeners. It ends with the last clone of the client.
#[derive(Debug)]
pub(super) struct NodeEventHub(Hub<News>);

impl NodeEventHub {
    pub(super) fn new() -> Self {
        Self(Hub::new(MOST_WAITING, |count| News::Event(ClusterEvent::Missed { count })))
    }

    /// Listens from now on. `connected` lists the nodes that are connected.
    pub(super) fn listen(&self, connected: impl FnOnce() -> Vec<(NodeAddress, Server)>) -> ClusterEvents {
        let connections = || connected().into_iter().map(|(node, client)| connection(&node, &client));
        ClusterEvents { news: self.0.listen(connections), connections: select_all([]) }
    }

    /// A node is connected once `publish` has run. No listener is added in between.
    pub(super) fn connected(&self, node: &NodeAddress, client: &Server, publish: impl FnOnce()) {
        self.0.pass_after(publish, || [connection(node, client)]);
    }

    pub(super) fn pass(&self, event: &ClusterEvent) {
        self.0.pass(|| [News::Event(event.clone())]);
    }

    /// There will be no more connections.
    pub(super) fn end(&self) {
        self.0.end();
    }
}

fn connection(node: &NodeAddress, client: &Server) -> News {
    News::Connection(node.clone(), client.events())
}

/// New connections, failures and changes of the cluster that wait to be read. More are dropped, the oldest first.
const MOST_WAITING: usize = 256;
