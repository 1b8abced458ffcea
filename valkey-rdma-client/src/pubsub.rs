//! [`Subscriber`]: published messages as a stream.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use tokio::sync::mpsc;

use crate::client::{Client, Deployment};
use crate::error::{Error, LostCause, LostConnection};
use crate::link::Deadline;
use crate::link::RawConnection;
use crate::server::Server;
use crate::stats::{ConnectionInfo, Purpose};
use valkey_rdma_transport::sync::{Mutex, lock};

mod names;
mod offline;
mod outage;
mod outbox;
mod request;
mod silence;
mod task;

pub use names::Names;
pub(crate) use outbox::Outbox;
pub(crate) use request::{SubscriptionRequest, request, unconfirmed};
pub(crate) use silence::SilenceCheck;
use task::Task;
use valkey_rdma_resp::ServerError;

/// Default capacity of a subscriber's event queue: a number of events, of whatever size.
pub const DEFAULT_CAPACITY: usize = 1024;

/// What happens if a subscriber takes messages more slowly than they arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlowConsumer {
    /// Messages are dropped while the queue is full, and [`Event::Missed`] reports how many. The default.
    #[default]
    Drop,
    /// The connection is closed and the subscriber fails with [`LostCause::SlowConsumer`].
    Disconnect,
}

/// An event of a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A message.
    Message(Message),
    /// This many messages were dropped here, because the subscriber was too slow.
    Missed(u64),
    /// The connection was lost and the subscriptions are restored on a new one, except those [refused](Self::Refused).
    /// Messages published in between are lost. Messages on already restored subscriptions may arrive before this
    /// event.
    Reconnected,
    /// The server has ended a subscription unasked: the slot of a shard channel has moved to another node.
    Ended {
        /// Kind of the subscription.
        to: Subscription,
        /// The name or pattern.
        name: Bytes,
    },
    /// A subscription of the lost connection is refused on the new one. It is requested again on the next.
    Refused {
        /// Kind of the subscription.
        to: Subscription,
        /// The name or pattern.
        name: Bytes,
        /// Why.
        error: ServerError,
    },
}

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The channel it was published on.
    pub channel: Bytes,
    /// The matching pattern, for a subscription to a pattern.
    pub pattern: Option<Bytes>,
    /// The message itself.
    pub payload: Bytes,
}

/// Kinds of subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Subscription {
    /// A channel by name: SUBSCRIBE.
    Channel,
    /// All channels that match a pattern: PSUBSCRIBE.
    Pattern,
    /// A shard channel: SSUBSCRIBE.
    Shard,
}

/// Subscriptions on a dedicated connection: [`Client::subscriber`].
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
/// After a lost connection it resubscribes automatically, if the client may [reconnect](crate::Config::reconnect). Until then
/// [`next`](Self::next) waits, [`Client::connections`] lists the subscriber as [reconnecting](crate::State::Reconnecting), and the
/// reason is logged as a warning. [`Client::events`] does not cover subscribers.
///
/// Over TCP it sends PING when it has heard nothing for half of the [`keepalive_timeout`](crate::Config::keepalive_timeout) or longer,
/// and leaves a server that does not answer. The login need not allow PING: an error is an answer too.
///
/// # Slow consumers
/// Events wait in a queue of bounded length ([`DEFAULT_CAPACITY`]). When it is full, [`SlowConsumer`] decides what
/// happens to messages; other events wait for room. The connection is read in either case, so the server's own limit
/// (`client-output-buffer-limit pubsub`) is not reached.
///
/// The length is a number of events, and not of bytes: a full queue holds as many payloads. With messages of 1 MiB, the default
/// of 1024 events is 1 GiB of memory. For large messages give [`Client::subscriber_with`] the capacity that your memory allows,
/// divided by the size of a message.
///
/// # End
/// Dropping it closes the connection.
#[derive(Debug)]
pub struct Subscriber {
    orders: mpsc::Sender<SubscriptionRequest>,
    events: mpsc::Receiver<Event>,
    shared: Arc<Shared>,
    limit: Option<std::time::Duration>,
    /// True once the stream has returned its error.
    ended: bool,
}

/// State shared by the subscriber and its task.
#[derive(Debug)]
struct Shared {
    peer: Arc<str>,
    missed: AtomicU64,
    end: OnceLock<Arc<LostCause>>,
    info: Mutex<Arc<ConnectionInfo>>,
    /// The latest reason for being disconnected; `None` while connected.
    outage: Mutex<Option<Error>>,
}

impl Shared {
    /// Why there are no more events.
    fn ended_error(&self) -> Error {
        LostConnection::without_command(self.peer.clone(), self.cause()).into()
    }

    /// Why a subscription cannot be requested.
    fn lost_error(&self) -> Error {
        LostConnection::new(self.peer.clone(), self.cause(), false).into()
    }

    fn cause(&self) -> Arc<LostCause> {
        self.end.get().cloned().unwrap_or_else(|| Arc::new(LostCause::Stopped))
    }

    /// Returns the reason for having been disconnected.
    fn connected(&self, raw: &RawConnection) -> Option<Error> {
        *lock(&self.info) = raw.info.clone();
        lock(&self.outage).take()
    }

    fn disconnected(&self, why: impl Into<Error>) {
        *lock(&self.outage) = Some(why.into());
    }

    /// Why there is no connection; `None` if there is one.
    fn outage(&self) -> Option<Error> {
        lock(&self.outage).clone()
    }
}

impl Client {
    /// Opens a connection for subscriptions, with the same login as this client.
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
            Deployment::Server(server) => server.subscriber_with(capacity, slow).await,
            Deployment::Cluster(_) => Err(crate::error::ClusterError::NoSeeds.into()),
        }
    }
}

impl Server {
    /// Opens a subscriber with this capacity of its event queue, and a policy for when it is full. The capacity is a number of events,
    /// at least 1, and not of bytes: see [`Subscriber`].
    pub(crate) async fn subscriber_with(
        &self,
        capacity: usize,
        slow: SlowConsumer,
    ) -> Result<Subscriber, Error> {
        let connector = self.connector().clone();
        let raw = self.connect_another(Purpose::Subscriber).await?;
        let peer = connector.endpoint.authority().into();
        let info = Mutex::new(raw.info.clone());
        let (missed, end, outage) = (AtomicU64::new(0), OnceLock::new(), Mutex::default());
        let shared = Arc::new(Shared { peer, missed, end, info, outage });
        let (order_sender, orders) = mpsc::channel(16);
        let (event_sender, events) = mpsc::channel(capacity.max(1));
        let known = shared.clone();
        // Made there, because its timers belong to that runtime.
        self.runtime().spawn(async move {
            Task::new(raw, connector, orders, event_sender, known, slow).run().await;
        });
        let limit = self.config().command_timeout;
        Ok(Subscriber { orders: order_sender, events, shared, limit, ended: false })
    }
}

impl Subscriber {
    /// Subscribes, and returns when the server has confirmed.
    ///
    /// # Errors
    /// [`Error::Server`] if the server refuses, [`Error::Lost`] if the subscriber has ended, [`Error::TimedOut`] after
    /// the client's command timeout; the subscription is still requested then.
    ///
    /// Without a connection, the call waits for the next one, and fails with the reason as commands do: after
    /// [`Config::offline_timeout`](crate::Config::offline_timeout) or the command timeout, or at once if the server refuses the
    /// login. The subscription is not requested then.
    ///
    /// # Cancel safety
    /// Dropping the future does not undo the subscription, once it is sent.
    pub async fn subscribe(&self, to: Subscription, names: impl Names) -> Result<(), Error> {
        self.order(to, true, names).await
    }

    /// Ends subscriptions, and returns when the server has confirmed. Messages that arrived before are still
    /// delivered.
    ///
    /// # Errors
    /// As [`subscribe`](Self::subscribe).
    ///
    /// # Cancel safety
    /// As [`subscribe`](Self::subscribe).
    pub async fn unsubscribe(&self, from: Subscription, names: impl Names) -> Result<(), Error> {
        self.order(from, false, names).await
    }

    /// The next event.
    ///
    /// # Errors
    /// [`Error::Lost`] at the end: the connection was lost with reconnecting disabled, or the subscriber was too slow
    /// and its policy is [`SlowConsumer::Disconnect`].
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Event, Error> {
        match self.events.recv().await {
            Some(event) => Ok(event),
            None => Err(self.shared.ended_error()),
        }
    }

    /// Describes the connection, or the last one.
    #[must_use]
    pub fn info(&self) -> Arc<ConnectionInfo> {
        lock(&self.shared.info).clone()
    }

    /// How many messages were dropped so far because the subscriber was too slow.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.shared.missed.load(Ordering::Relaxed)
    }

    /// The next event that has been received already.
    pub(crate) fn received(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }

    async fn order(&self, kind: Subscription, subscribe: bool, names: impl Names) -> Result<(), Error> {
        self.request(kind, subscribe, names.into_names()).await
    }

    /// Changes subscriptions. Events can be taken while the future waits.
    pub(crate) fn request(
        &self,
        kind: Subscription,
        subscribe: bool,
        names: Vec<Bytes>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let (task, shared) = (self.orders.clone(), self.shared.clone());
        let deadline = self.limit.and_then(Deadline::after);
        async move {
            if names.is_empty() {
                return Ok(());
            }
            let late = |deadline| match shared.outage() {
                Some(why) => why,
                None => unconfirmed(shared.peer.clone(), deadline),
            };
            request(kind, subscribe, vec![(task, names)], deadline, || shared.lost_error(), late).await
        }
    }
}

/// As [`next`](Subscriber::next); ends after the first error.
impl Stream for Subscriber {
    type Item = Result<Event, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match ready!(self.events.poll_recv(cx)) {
            Some(event) => Ok(event),
            None => {
                self.ended = true;
                Err(self.shared.ended_error())
            }
        }))
    }
}

#[cfg(test)]
mod tests;
