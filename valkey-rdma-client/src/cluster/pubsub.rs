//! [`ClusterSubscriber`]: published messages of a cluster, on connections that move with their slots.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

mod lane;
mod standing;

use self::lane::Lane;
use self::standing::Standing;
use super::client::Cluster;
use super::core::CLUSTER;
use super::core::Core;
use super::route::slot_of;
use crate::error::{Error, LostCause, LostConnection};
use crate::link::Deadline;
use crate::pubsub::Names;
use crate::pubsub::{
    DEFAULT_CAPACITY, Event, SlowConsumer, Subscription, SubscriptionRequest, request, unconfirmed,
};
use valkey_rdma_transport::sync::lock;

/// Subscriptions in a cluster: [`ClusterClient::subscriber`].
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::pubsub::{Event, Subscription};
///
/// let mut subscriber = cluster.subscriber();
/// subscriber.subscribe(Subscription::Channel, ["news"]).await?;
/// subscriber.subscribe(Subscription::Shard, ["orders:7"]).await?;
/// loop {
///     match subscriber.next().await? {
///         Event::Message(message) => println!("{:?}: {:?}", message.channel, message.payload),
///         Event::Reconnected => println!("messages may be missing"),
///         _ => {}
///     }
/// }
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
/// happens when it is full. The length is a number of events, and not of bytes. Events that the program has not taken also wait in a queue
/// that all connections share, of the same length. With [`SlowConsumer::Disconnect`], the first connection whose queue is full ends the
/// subscriber, with [`LostCause::SlowConsumer`].
///
/// # End
/// Dropping it closes its connections.
#[derive(Debug)]
pub struct ClusterSubscriber {
    cluster: Cluster,
    capacity: usize,
    slow: SlowConsumer,
    /// By slot; `None` for channels and patterns.
    lanes: Mutex<HashMap<Option<u16>, Orders>>,
    /// Given to new lanes.
    sender: mpsc::Sender<Event>,
    events: mpsc::Receiver<Event>,
    /// Why the subscriber has ended, if it has ended before the client.
    end: watch::Sender<Option<Error>>,
}

/// How callers reach a lane.
#[derive(Clone, Debug)]
struct Orders {
    sender: mpsc::Sender<SubscriptionRequest>,
    standing: Arc<Standing>,
}

impl Cluster {
    /// Begins subscriptions, with the same login as this client. The first subscription opens the first connection.
    pub(crate) fn subscriber(&self) -> ClusterSubscriber {
        self.subscriber_with(DEFAULT_CAPACITY, SlowConsumer::default())
    }

    /// Begins subscriptions with this capacity of each queue, and a policy for when it is full. The capacity is a number of events, at
    /// least 1, and not of bytes.
    pub(crate) fn subscriber_with(&self, capacity: usize, slow: SlowConsumer) -> ClusterSubscriber {
        let (sender, events) = mpsc::channel(capacity.max(1));
        let (cluster, lanes, end) = (self.clone(), Mutex::default(), watch::Sender::default());
        ClusterSubscriber { cluster, capacity, slow, lanes, sender, events, end }
    }
}

impl ClusterSubscriber {
    /// Subscribes, and returns when the servers have confirmed.
    ///
    /// # Errors
    /// [`Error::Server`] if a server refuses. [`Error::Cluster`] if nodes redirect it in circles. [`Error::TimedOut`] after the client's command timeout; the subscription is
    /// still requested then. [`Error::Lost`] if the subscriber has ended.
    ///
    /// Without a connection, the call waits for the next one, and fails with the reason as commands do: after
    /// [`Config::offline_timeout`](crate::Config::offline_timeout) or the command timeout, or at once if a server refuses the login. The
    /// subscription is not requested then.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the subscription, once it is sent.
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

    /// The next event.
    ///
    /// # Errors
    /// [`Error::Lost`] at the end: the program was too slow and its policy is [`SlowConsumer::Disconnect`], the cluster client was closed, or
    /// the runtime that connected it has shut down. Lost connections are events, and not errors.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event, Error> {
        let core = &self.cluster.core;
        let mut end = self.end.subscribe();
        tokio::select! {
            // The subscriber ends behind the events that came before.
            biased;
            Some(event) = self.events.recv() => Ok(event),
            () = core.ended() => {
                let cause = core.end().unwrap_or(LostCause::Closed);
                Err(LostConnection::without_command(CLUSTER.into(), Arc::new(cause)).into())
            }
            // The sender lives as long as `self`.
            _ = end.wait_for(Option::is_some) => Err(self.ended_error()),
        }
    }

    async fn order(&self, kind: Subscription, subscribe: bool, names: impl Names) -> Result<(), Error> {
        let mut by_lane: BTreeMap<Option<u16>, Vec<Bytes>> = BTreeMap::new();
        for name in names.into_names() {
            let slot = (kind == Subscription::Shard).then(|| slot_of(&name));
            by_lane.entry(slot).or_default().push(name);
        }
        let (mut lanes, mut standings) = (Vec::new(), Vec::new());
        for (slot, names) in by_lane {
            let Orders { sender, standing } = self.lane(slot);
            lanes.push((sender, names));
            standings.push((slot, standing));
        }
        let core = &self.cluster.core;
        let deadline = core.config.command_timeout.and_then(Deadline::after);
        let late = |deadline| match standings.iter().find(|(_, standing)| !standing.is_online()) {
            Some((slot, standing)) => standing.late(core, *slot, deadline),
            None => unconfirmed(CLUSTER.into(), deadline),
        };
        request(kind, subscribe, lanes, deadline, || self.ended_error(), late).await
    }

    /// Why nothing can be requested any more.
    fn ended_error(&self) -> Error {
        self.end.borrow().clone().unwrap_or_else(|| self.cluster.core.closed_error())
    }

    /// The lane of a slot, started when it is first needed.
    fn lane(&self, slot: Option<u16>) -> Orders {
        let mut lanes = lock(&self.lanes);
        let start = || {
            let (sender, orders) = mpsc::channel(16);
            let core: Arc<Core> = self.cluster.core.clone();
            let standing = Arc::<Standing>::default();
            let (events, limits) = (self.sender.clone(), (self.capacity, self.slow));
            let mut lane = Lane::new(core.clone(), slot, orders, standing.clone(), events.clone(), limits);
            let end = self.end.clone();
            self.cluster.core.runtime.spawn(async move {
                let mut ended = end.subscribe();
                tokio::select! {
                    outcome = lane.run() => {
                        // The lane, with the orders that wait in it, is dropped after this: their callers get this error.
                        if let Err(error) = outcome {
                            end.send_if_modified(|end| end.is_none() && end.replace(error).is_none());
                        }
                    }
                    // Another lane was too slow.
                    _ = ended.wait_for(Option::is_some) => {}
                    () = core.ended() => {}
                    () = events.closed() => {}
                }
            });
            Orders { sender, standing }
        };
        lanes.entry(slot).or_insert_with(start).clone()
    }
}
