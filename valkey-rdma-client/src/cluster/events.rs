//! [`ClusterEvents`]: what happens to the connections of a cluster client, node by node.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::{Map, SelectAll, StreamExt, select_all};

use super::address::NodeAddress;
use crate::client::Client;
use crate::error::{Chain, Error, LostCause};
use crate::events::{ConnectionEvent, ConnectionEvents};
use crate::stats::ConnectionInfo;
use crate::sync::lock;

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
                write!(f, "{node}: connection {connection} lost: {}", Chain(&**cause))
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
    news: Arc<Mutex<News>>,
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
            let mut news = lock(&self.news);
            if news.missed > 0 {
                let count = std::mem::take(&mut news.missed);
                return Poll::Ready(Some(ClusterEvent::Missed { count }));
            }
            match news.waiting.pop_front() {
                Some(Item::Connection(node, events)) => {
                    drop(news);
                    self.connections.push(of_node(node, events));
                }
                Some(Item::Failure(node, error)) => {
                    return Poll::Ready(Some(ClusterEvent::ConnectFailed { node, error }));
                }
                Some(Item::Primaries(primaries)) => {
                    return Poll::Ready(Some(ClusterEvent::PrimariesChanged { primaries }));
                }
                Some(Item::Silence(node, silent_for)) => {
                    return Poll::Ready(Some(ClusterEvent::Silent { node, silent_for }));
                }
                None if news.ended && self.connections.is_empty() => return Poll::Ready(None),
                None => {
                    news.waker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
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

/// What a listener has not read yet.
#[derive(Debug, Default)]
struct News {
    waiting: VecDeque<Item>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Item {
    Connection(NodeAddress, ConnectionEvents),
    Failure(NodeAddress, Error),
    Silence(NodeAddress, Duration),
    Primaries(Vec<NodeAddress>),
}

impl News {
    fn add(&mut self, item: Item) {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
            self.missed += 1;
        }
        self.waiting.push_back(item);
    }
}

/// Passes news to listeners. Costs nothing while there is none.
#[derive(Debug, Default)]
pub(super) struct NodeEventHub {
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    listening: Vec<Weak<Mutex<News>>>,
    ended: bool,
}

impl NodeEventHub {
    /// Listens from now on. `connected` lists the nodes that are connected.
    pub(super) fn listen(&self, connected: impl FnOnce() -> Vec<(NodeAddress, Client)>) -> ClusterEvents {
        let mut listeners = lock(&self.listeners);
        listeners.listening.retain(|listener| listener.strong_count() > 0);
        let mut news = News { ended: listeners.ended, ..News::default() };
        for (node, client) in connected() {
            news.add(Item::Connection(node, client.events()));
        }
        let news = Arc::new(Mutex::new(news));
        listeners.listening.push(Arc::downgrade(&news));
        ClusterEvents { news, connections: select_all([]) }
    }

    /// A node is connected once `publish` has run. No listener is added in between.
    pub(super) fn connected(&self, node: &NodeAddress, client: &Client, publish: impl FnOnce()) {
        let listeners = lock(&self.listeners);
        publish();
        pass(listeners, |news| news.add(Item::Connection(node.clone(), client.events())));
    }

    /// An attempt to connect failed.
    pub(super) fn failed(&self, node: &NodeAddress, error: &Error) {
        pass(lock(&self.listeners), |news| news.add(Item::Failure(node.clone(), error.clone())));
    }

    /// A node leaves commands unanswered.
    pub(super) fn silent(&self, node: &NodeAddress, silent_for: Duration) {
        pass(lock(&self.listeners), |news| news.add(Item::Silence(node.clone(), silent_for)));
    }

    /// Other nodes are primaries.
    pub(super) fn primaries_changed(&self, primaries: &[NodeAddress]) {
        pass(lock(&self.listeners), |news| news.add(Item::Primaries(primaries.to_vec())));
    }

    /// There will be no more connections.
    pub(super) fn end(&self) {
        let mut listeners = lock(&self.listeners);
        listeners.ended = true;
        pass(listeners, |news| news.ended = true);
    }
}

/// The last clone of the client was dropped.
impl Drop for NodeEventHub {
    fn drop(&mut self) {
        self.end();
    }
}

/// Changes what each listener has not read yet, and wakes them when nothing is locked.
fn pass(mut listeners: MutexGuard<'_, Listeners>, change: impl Fn(&mut News)) {
    let mut wakers = Vec::new();
    listeners.listening.retain(|listener| match listener.upgrade() {
        Some(news) => {
            let mut news = lock(&news);
            change(&mut news);
            wakers.extend(news.waker.take());
            true
        }
        None => false,
    });
    drop(listeners);
    wakers.into_iter().for_each(Waker::wake);
}

/// New connections, failures and changes of the cluster that wait to be read. More are dropped, the oldest first.
const MOST_WAITING: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_were_dropped_are_forgotten() {
        let hub = NodeEventHub::default();
        for _ in 0..1000 {
            drop(hub.listen(Vec::new));
        }
        assert_eq!(lock(&hub.listeners).listening.len(), 1, "though nothing happens");
    }
}
