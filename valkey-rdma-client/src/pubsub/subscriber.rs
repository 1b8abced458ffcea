//! [`Subscriber`]: the program's side of its subscriptions.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::shared::{Shared, Status, SubscriptionRequest, TaskHandle};
use super::task::{Source, Task};
use super::{DEFAULT_CAPACITY, Event, Names, SlowConsumer, Subscription};
use crate::client::{Client, Deployment};
use crate::config::Config;
use crate::error::Error;
use crate::link::{Connector, Deadline, RawConnection, Redialer};
use crate::server::Server;
use crate::stats::{ConnectionInfo, Purpose};
use valkey_rdma_transport::sync::{Mutex, lock};

/// Subscriptions, on connections of their own: [`Client::subscriber`](crate::Client::subscriber).
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::pubsub::{Event, Subscription};
///
/// let mut subscriber = client.subscriber().await?;
/// subscriber.subscribe(Subscription::Channel, ["news"]).await?;
/// subscriber.subscribe(Subscription::Pattern, ["weather.*"]).await?;
/// loop {
///     match subscriber.next().await? {
///         Event::Message(message) => println!("{:?}: {:?}", message.channel, message.payload),
///         Event::Missed(count) => println!("{count} messages dropped: too slow"),
///         Event::Reconnected => println!("messages may be missing"),
///         Event::Refused { name, error, .. } => println!("no more of {name:?}: {error}"),
///         _ => {}
///     }
/// }
/// # }
/// ```
///
/// It is also a [`Stream`], which ends after its first error. Works with RESP2 and RESP3.
///
/// # Connections
/// To one server, or to the primary of a Sentinel's service, there is one connection. After a loss the subscriber connects and subscribes
/// again automatically, if the client may [reconnect](crate::Config::reconnect). It follows a failover: once the Sentinels report another
/// primary, it leaves the old one. It also leaves a connection whose server does not take its subscriptions back now, such as during a long
/// script, and tries again later. Until it is connected again, [`next`](Self::next) waits,
/// [`Client::connections`](crate::Client::connections) lists the subscriber as [reconnecting](crate::State::Reconnecting), and the reason is
/// logged as a warning. [`Client::events`](crate::Client::events) does not cover subscribers.
///
/// In a cluster, channels and patterns share one connection, to some primary: the cluster brings it all messages. Shard channels have one
/// connection for each slot in use, to the primary of the slot. When a connection is lost, its node leaves or takes no
/// subscriptions now, or a slot moves, the subscriptions are restored on another. A connection opens with its first subscription, and closes with its last.
///
/// **Keyspace notifications** (`__keyspace@0__:*`, `__keyevent@0__:*`) stay on the node where they arise, and the cluster does not bring them. For these,
/// open a subscriber of each primary: [`Client::connect`](crate::Client::connect) with the URL of that node alone, without `+cluster`.
///
/// In all cases [`Event::Reconnected`] reports that messages may be missing, [`Event::Refused`] names a subscription that the server
/// no longer allows, and [`Event::LoginRefused`] says that the server refuses the login for the next one, which is tried again.
///
/// Over TCP it sends PING when it has heard nothing for half of the [`keepalive_timeout`](crate::Config::keepalive_timeout) or longer,
/// and leaves a server that does not answer. The login need not allow PING: an error is an answer too.
///
/// # Slow consumers
/// Events of all connections wait in one queue of bounded length ([`DEFAULT_CAPACITY`]). When it is full, [`SlowConsumer`] decides what
/// happens to messages; other events wait for room. The connections are read in either case, so the server's own limit
/// (`client-output-buffer-limit pubsub`) is not reached.
///
/// The length is a number of events, and not of bytes: a full queue holds as many payloads. With messages of 1 MiB, the default
/// of 1024 events is 1 GiB of memory. For large messages give
/// [`Client::subscriber_with`](crate::Client::subscriber_with) the capacity that your memory allows, divided by the size of a message.
///
/// # End
/// Dropping it closes its connections.
pub struct Subscriber {
    shared: Arc<Shared>,
    events: mpsc::Receiver<Event>,
    /// By slot. `None`: channels and patterns of a cluster, or everything on one server.
    tasks: Mutex<HashMap<Option<u16>, TaskHandle>>,
    /// Starts the others of these tasks. `None`: there is one server.
    slots: Option<Box<dyn Slots>>,
    /// How long a change of subscriptions may take.
    limit: Option<Duration>,
    /// True once the stream has returned its error.
    ended: bool,
}

/// The slots of a cluster, each with subscriptions of its own.
pub(crate) trait Slots: Send + Sync {
    fn slot_of(&self, name: &[u8]) -> u16;

    /// Starts a task for a slot. `None`: for channels and patterns. Returns `None` if the subscriber has ended.
    fn start(&self, slot: Option<u16>, shared: &Arc<Shared>) -> Option<TaskHandle>;
}

impl Client {
    /// Opens a subscriber, with the same login as this client. To one server it has a connection at once. In a cluster, the first
    /// subscription opens the first connection. Keyspace notifications of a cluster need [a client of each primary](Subscriber#connections).
    ///
    /// # Errors
    /// [`Error::Connect`], as for [`connect`](Self::connect); [`Error::Lost`] after [`close`](Self::close).
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn subscriber(&self) -> Result<Subscriber, Error> {
        self.subscriber_with(DEFAULT_CAPACITY, SlowConsumer::default()).await
    }

    /// Opens a subscriber with this capacity of its event queue, and a policy for when it is full. The capacity is a number of events,
    /// at least 1, and not of bytes: see [`Subscriber`].
    ///
    /// # Errors
    /// As [`subscriber`](Self::subscriber).
    ///
    /// # Cancel safety
    /// As [`subscriber`](Self::subscriber).
    pub async fn subscriber_with(&self, capacity: usize, slow: SlowConsumer) -> Result<Subscriber, Error> {
        match &self.deployment {
            Deployment::Server(server) => server.subscriber(capacity, slow).await,
            Deployment::Cluster(cluster) => cluster.subscriber(capacity, slow),
        }
    }
}

impl Server {
    async fn subscriber(&self, capacity: usize, slow: SlowConsumer) -> Result<Subscriber, Error> {
        let connector = self.connector().clone();
        let raw = self.connect_another(Purpose::Subscriber).await?;
        let peer: Arc<str> = connector.peer().into();
        let (shared, events) = Shared::new(peer.clone(), capacity, slow);
        // The reason is always known here.
        let status = Status::new(peer, Box::new(|| None));
        status.connected(&raw);
        let config = self.config();
        let started = Task::new(None, &shared, status, config.offline_timeout);
        let (handle, task) = started.ok_or_else(|| shared.lost_error())?;
        // Polled there, because its timers belong to that runtime.
        self.runtime().spawn(task.run(OneServer(connector), Some(raw)));
        Ok(Subscriber::new(shared, events, handle, None, config.command_timeout))
    }
}

/// A server, or the primary of a Sentinel's service.
struct OneServer(Arc<Connector>);

impl Source for OneServer {
    const IS_SLOT: bool = false;

    fn redialer(&self) -> Option<Redialer> {
        Redialer::of(&self.0)
    }

    fn config(&self) -> &Config {
        &self.0.config
    }

    /// A server that reads its data takes subscriptions meanwhile.
    async fn connect(&mut self) -> Result<RawConnection, Error> {
        Ok(self.0.connect(Purpose::Subscriber).await?)
    }

    fn moved(&self, raw: &RawConnection) -> BoxFuture<'static, ()> {
        self.0.moved(raw).unwrap_or_else(|| Box::pin(std::future::pending()))
    }
}

impl Subscriber {
    /// `first` is the task for everything that has no slot.
    pub(crate) fn new(
        shared: Arc<Shared>,
        events: mpsc::Receiver<Event>,
        first: TaskHandle,
        slots: Option<Box<dyn Slots>>,
        limit: Option<Duration>,
    ) -> Self {
        let tasks = Mutex::new(HashMap::from([(None, first)]));
        Self { shared, events, tasks, slots, limit, ended: false }
    }

    /// Subscribes, and returns when the servers have confirmed. The future does not borrow the subscriber: messages of other subscriptions can
    /// be taken while it waits.
    ///
    /// # Errors
    /// [`Error::Server`] if a server refuses. [`Error::Lost`] if the subscriber has ended. [`Error::TimedOut`] after the client's command
    /// timeout; the subscription is still requested then. [`Error::Cluster`] if the nodes of a cluster redirect it in circles.
    ///
    /// Without a connection, the call waits for the next one, and fails with the reason as commands do: after
    /// [`Config::offline_timeout`](crate::Config::offline_timeout) or the command timeout, or at once if the server refuses the
    /// login. The subscription is not requested then.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the subscription, once it is sent.
    pub fn subscribe<N: Names>(
        &self,
        to: Subscription,
        names: N,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<N> {
        self.order(to, true, names.into_names())
    }

    /// Ends subscriptions, and returns when the servers have confirmed. Messages that arrived before are still
    /// delivered: [`next`](Self::next) has them at once. The future does not borrow the subscriber.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    ///
    /// # Cancel safety
    /// As [`subscribe`](Self::subscribe).
    pub fn unsubscribe<N: Names>(
        &self,
        from: Subscription,
        names: N,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<N> {
        self.order(from, false, names.into_names())
    }

    /// The next event.
    ///
    /// # Errors
    /// [`Error::Lost`] at the end: the subscriber was too slow and its policy is [`SlowConsumer::Disconnect`], its connection was lost
    /// with reconnecting disabled, the client of a cluster was closed, or the runtime that connected the client has shut down. Other lost
    /// connections are events, and not errors.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event, Error> {
        poll_fn(|cx| self.poll_event(cx)).await
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Error>> {
        Poll::Ready(match ready!(self.events.poll_recv(cx)) {
            Some(event) => Ok(event),
            None => Err(self.shared.ended_error()),
        })
    }

    /// Describes its connections: one to a server, also while that is lost; in a cluster one for each slot with subscriptions, and one
    /// for channels and patterns if there are any.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<ConnectionInfo>> {
        lock(&self.tasks).values().filter_map(|task| task.status.info()).collect()
    }

    /// How many messages were dropped so far because the subscriber was too slow.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.missed()
    }

    fn order(
        &self,
        kind: Subscription,
        subscribe: bool,
        names: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (by_task, shared, limit) = (self.by_task(kind, names), self.shared.clone(), self.limit);
        async move {
            let by_task = by_task?;
            let deadline = limit.and_then(Deadline::after);
            let exchange = async {
                let mut confirmations = Vec::with_capacity(by_task.len());
                for (task, names) in &by_task {
                    let (done, confirmed) = oneshot::channel();
                    let names = names.clone();
                    let request = SubscriptionRequest { kind, subscribe, names, deadline, done };
                    task.orders.send(request).await.map_err(|_| shared.lost_error())?;
                    confirmations.push(confirmed);
                }
                for confirmed in confirmations {
                    confirmed.await.unwrap_or_else(|_| Err(shared.lost_error()))?;
                }
                Ok(())
            };
            let Some(deadline) = deadline else { return exchange.await };
            timeout_at(deadline.at, exchange).await.unwrap_or_else(|_| {
                Err(match by_task.iter().find(|(task, _)| !task.status.is_online()) {
                    Some((task, _)) => task.status.not_connected(deadline.limit),
                    None => shared.unconfirmed(deadline),
                })
            })
        }
    }

    /// The task for each name. Starts those that are needed for the first time.
    fn by_task(&self, kind: Subscription, names: Vec<Bytes>) -> Result<Vec<(TaskHandle, Vec<Bytes>)>, Error> {
        let mut by_slot: BTreeMap<Option<u16>, Vec<Bytes>> = BTreeMap::new();
        for name in names {
            let slots = self.slots.as_ref().filter(|_| kind == Subscription::Shard);
            by_slot.entry(slots.map(|slots| slots.slot_of(&name))).or_default().push(name);
        }
        let mut tasks = lock(&self.tasks);
        let by_task = by_slot.into_iter().map(|(slot, names)| {
            if let Some(task) = tasks.get(&slot) {
                return Ok((task.clone(), names));
            }
            let started = self.slots.as_ref().and_then(|slots| slots.start(slot, &self.shared));
            let task = started.ok_or_else(|| self.shared.lost_error())?;
            tasks.insert(slot, task.clone());
            Ok((task, names))
        });
        by_task.collect()
    }
}

/// As [`next`](Subscriber::next); ends after the first error.
impl Stream for Subscriber {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = ready!(self.poll_event(cx));
        self.ended = event.is_err();
        Poll::Ready(Some(event))
    }
}

impl fmt::Debug for Subscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscriber").field("peer", &self.shared.peer).finish_non_exhaustive()
    }
}
