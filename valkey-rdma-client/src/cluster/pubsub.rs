//! [`ClusterSubscriber`]: published messages of a cluster, on connections that move with their slots.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::mpsc;

mod lane;

use self::lane::Lane;
use super::client::ClusterClient;
use super::core::CLUSTER;
use super::core::Core;
use super::route::slot_of;
use crate::error::Error;
use crate::multiplexer::Deadline;
use crate::pubsub::Names;
use crate::pubsub::{
    DEFAULT_CAPACITY, Event, SlowConsumer, Subscription, SubscriptionRequest, request, unconfirmed,
};
use crate::sync::lock;

/// Subscriptions in a cluster: [`ClusterClient::subscriber`].
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::pubsub::{Event, Subscription};
///
/// let mut subscriber = cluster.subscriber();
/// subscriber.subscribe(Subscription::Channel, ["news"]).await?;
/// subscriber.subscribe(Subscription::Shard, ["orders:7"]).await?;
/// while let Some(event) = subscriber.next().await {
///     match event {
///         Event::Message(message) => println!("{:?}: {:?}", message.channel, message.payload),
///         Event::Reconnected => println!("messages may be missing"),
///         _ => {}
///     }
/// }
/// # Ok(())
/// # }
/// ```
///
/// Channels and patterns share one connection, to some primary: the cluster brings it all messages. Shard channels have one
/// connection for each slot in use, to the primary of the slot. When a connection is lost, its node leaves, or a slot moves,
/// the subscriptions are restored on another, and [`Event::Reconnected`] reports that messages may be missing. Those that
/// the server no longer allows are reported by [`Event::Refused`]. A connection closes with its last subscription.
///
/// # Slow consumers
/// Same as [`Subscriber`](crate::Subscriber): each connection has a queue of bounded length, and [`SlowConsumer`] decides what
/// happens when it is full. The length is a number of events, and not of bytes. After [`SlowConsumer::Disconnect`] the connection is made anew, and [`Event::Reconnected`] reports it.
///
/// # End
/// Dropping it closes its connections.
#[derive(Debug)]
pub struct ClusterSubscriber {
    cluster: ClusterClient,
    capacity: usize,
    slow: SlowConsumer,
    /// By slot; `None` for channels and patterns.
    lanes: Mutex<HashMap<Option<u16>, mpsc::Sender<SubscriptionRequest>>>,
    /// Given to new lanes.
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
}

impl ClusterClient {
    /// Begins subscriptions, with the same login as this client. The first subscription opens the first connection.
    #[must_use]
    pub fn subscriber(&self) -> ClusterSubscriber {
        self.subscriber_with(DEFAULT_CAPACITY, SlowConsumer::default())
    }

    /// Begins subscriptions with this capacity of each queue, and a policy for when it is full. The capacity is a number of events, at
    /// least 1, and not of bytes.
    #[must_use]
    pub fn subscriber_with(&self, capacity: usize, slow: SlowConsumer) -> ClusterSubscriber {
        let (sender, events) = mpsc::channel(capacity.max(1));
        ClusterSubscriber { cluster: self.clone(), capacity, slow, lanes: Mutex::default(), sender, events }
    }
}

impl ClusterSubscriber {
    /// Subscribes, and returns when the servers have confirmed.
    ///
    /// # Errors
    /// [`Error::Server`] if a server refuses. [`Error::Cluster`] if nodes redirect it in circles. [`Error::TimedOut`] after the client's command timeout; the subscription is
    /// still requested then.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the subscription.
    pub async fn subscribe(&self, to: Subscription, names: impl Names) -> Result<(), Error> {
        self.order(to, true, names).await
    }

    /// Ends subscriptions, and returns when the servers have confirmed.
    ///
    /// # Errors
    /// Same errors as [`subscribe`](Self::subscribe).
    ///
    /// # Cancel safety
    /// Same as [`subscribe`](Self::subscribe).
    pub async fn unsubscribe(&self, from: Subscription, names: impl Names) -> Result<(), Error> {
        self.order(from, false, names).await
    }

    /// The next event; `None` once the cluster client was closed, or the runtime that connected it has shut down.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            event = self.events.recv() => event,
            () = self.cluster.core.ended() => None,
        }
    }

    async fn order(&self, kind: Subscription, subscribe: bool, names: impl Names) -> Result<(), Error> {
        let mut by_lane: BTreeMap<Option<u16>, Vec<Bytes>> = BTreeMap::new();
        for name in names.into_names() {
            let slot = (kind == Subscription::Shard).then(|| slot_of(&name));
            by_lane.entry(slot).or_default().push(name);
        }
        let lanes = by_lane.into_iter().map(|(slot, names)| (self.lane(slot), names)).collect();
        let core = &self.cluster.core;
        let deadline = core.config.node.command_timeout.and_then(Deadline::after);
        let late = |deadline| unconfirmed(CLUSTER.into(), deadline);
        request(kind, subscribe, lanes, deadline, || core.closed_error(), late).await
    }

    /// The lane of a slot, started when it is first needed.
    fn lane(&self, slot: Option<u16>) -> mpsc::Sender<SubscriptionRequest> {
        let mut lanes = lock(&self.lanes);
        let start = || {
            let (orders, receiver) = mpsc::channel(16);
            let core: Arc<Core> = self.cluster.core.clone();
            let lane = Lane::new(core, slot, receiver, self.capacity, self.slow);
            self.cluster.core.home.spawn(lane.run(self.sender.clone()));
            orders
        };
        lanes.entry(slot).or_insert_with(start).clone()
    }
}
