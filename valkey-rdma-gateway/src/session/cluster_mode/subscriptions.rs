//! Subscriptions of a client of a cluster: the library keeps them on the right nodes.

mod messages;

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::coop::unconstrained;
use tokio::time::timeout;
use valkey_rdma_client::cluster::Routing;
use valkey_rdma_client::pubsub::{SlowConsumer, Subscription};
use valkey_rdma_client::{Client, Command, Error, Subscriber};
use valkey_rdma_resp::{Reply, words};

use self::messages::Early;
use super::super::{Closed, Session};
use super::prefix;
use super::unread::Unread;
use crate::cluster::failure;
use crate::command::class::Kind;
use crate::upstream::open_error::OpenError;

/// What a client has subscribed to.
pub(in crate::session) struct Subscriptions {
    /// Channels and patterns.
    classic: Subscriber,
    shard: Subscriber,
    channels: BTreeSet<Bytes>,
    patterns: BTreeSet<Bytes>,
    shards: BTreeSet<Bytes>,
    /// By the slot of its shard channels; `None` for the one of channels and patterns.
    connections: BTreeMap<Option<u16>, Connection>,
    /// While a subscription is awaited.
    early: Option<Early>,
    unread: Unread,
}

/// A connection of the library that carries subscriptions.
struct Connection {
    names: usize,
    _permit: OwnedSemaphorePermit,
}

impl Subscriptions {
    async fn new(client: &Client, unread: Unread) -> Result<Self, Error> {
        Ok(Self {
            classic: client.subscriber_with(CAPACITY, SlowConsumer::Drop).await?,
            shard: client.subscriber_with(CAPACITY, SlowConsumer::Drop).await?,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shards: BTreeSet::new(),
            connections: BTreeMap::new(),
            early: None,
            unread,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.patterns.is_empty() && self.shards.is_empty()
    }

    fn names(&mut self, kind: Kind) -> &mut BTreeSet<Bytes> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    fn subscriber(&self, kind: Kind) -> (&Subscriber, Subscription) {
        match kind {
            Kind::Channel => (&self.classic, Subscription::Channel),
            Kind::Pattern => (&self.classic, Subscription::Pattern),
            Kind::Shard => (&self.shard, Subscription::Shard),
        }
    }

    fn add(&mut self, kind: Kind, name: &Bytes) {
        if self.names(kind).insert(name.clone())
            && let Some(connection) = self.connections.get_mut(&slot(kind, name))
        {
            connection.names += 1;
        }
    }

    fn remove(&mut self, kind: Kind, name: &Bytes) {
        if self.names(kind).remove(name)
            && let Some(connection) = self.connections.get_mut(&slot(kind, name))
        {
            connection.names -= 1;
        }
    }

    /// Gives back the permits of connections that carry no subscription.
    fn release_unused(&mut self) {
        self.connections.retain(|_, connection| connection.names > 0);
    }

    /// The number in confirmations.
    fn count(&self, kind: Kind) -> Reply {
        let count = match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shards.len(),
        };
        Reply::from(count)
    }
}

impl Session {
    pub(super) async fn subscribe(&mut self, kind: Kind, command: &Bytes) -> Result<(), Closed> {
        let mut names: Vec<_> = words(command).skip(1).map(Bytes::copy_from_slice).collect();
        if names.iter().any(|name| is_notification(kind, name)) {
            self.note_refusal(command);
            self.put_refusal(&Reply::error(NOTIFICATIONS));
            return Ok(());
        }
        let Some(client) = self.library().await? else { return Ok(()) };
        if self.subscriptions.is_none() {
            let unread = Unread::new((*self.client).clone(), self.core.unread.clone());
            match Subscriptions::new(&client, unread).await {
                Ok(new) => self.subscriptions = Some(Box::new(new)),
                Err(error) => {
                    let reply = failure(&error, self.metrics()).ok_or(Closed)?;
                    self.put(&reply);
                    return Ok(());
                }
            }
        }
        if let Err(error) = self.reserve(kind, &names).await {
            self.release_unused();
            return self.put_unsent(&error);
        }
        let Some(subscriptions) = &mut self.subscriptions else { return Ok(()) };
        subscriptions.early = Some(Early::default());
        let (subscriber, to) = subscriptions.subscriber(kind);
        let confirmed = subscriber.subscribe(to, &names);
        // A short limit for commands leaves time to connect.
        let limit = self.core.limits().offline().max(PATIENCE);
        let outcome = self.while_open(true, timeout(limit, confirmed)).await?;
        let Some(subscriptions) = &mut self.subscriptions else { return Ok(()) };
        let early = subscriptions.early.take().unwrap_or_default();
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                // Other nodes may have confirmed theirs, and the client takes all for refused.
                names.retain(|name| !subscriptions.names(kind).contains(name));
                self.end(kind, &names).await?;
                self.release_unused();
                let reply = failure(&error, self.metrics()).ok_or(Closed)?;
                self.put(&reply);
                return Ok(());
            }
            // It may succeed later, and the client would not know.
            Err(_) => {
                let text = format!("the nodes did not confirm a subscription within {limit:?}");
                return self.put_unsent(&OpenError::Unreachable(text));
            }
        }
        self.client.set_subscribed(true);
        for name in names {
            let Some(subscriptions) = &mut self.subscriptions else { break };
            subscriptions.add(kind, &name);
            let count = subscriptions.count(kind);
            let word = Reply::bulk(format!("{}subscribe", prefix(kind)));
            self.put(&Reply::Push(vec![word, name.into(), count]));
        }
        for arrived in early.messages {
            // The others are of subscriptions that have ended.
            if self.subscriptions.as_mut().is_some_and(|subscriptions| subscriptions.has(&arrived)) {
                self.put(&arrived.into());
            }
        }
        Ok(())
    }

    pub(super) async fn unsubscribe(&mut self, kind: Kind, command: &Bytes) -> Result<(), Closed> {
        let word = Reply::bulk(format!("{}unsubscribe", prefix(kind)));
        let mut names: Vec<_> = words(command).skip(1).map(Bytes::copy_from_slice).collect();
        let mut nothing = BTreeSet::new();
        let known =
            self.subscriptions.as_mut().map_or(&mut nothing, |subscriptions| subscriptions.names(kind));
        if names.is_empty() {
            names.extend(known.iter().cloned());
        }
        if names.is_empty() {
            let left = self.subscriptions.as_ref().map_or(Reply::Integer(0), |left| left.count(kind));
            self.put(&Reply::Push(vec![word, Reply::Null, left]));
            return Ok(());
        }
        let ended: Vec<_> = names.iter().filter(|name| known.contains(*name)).cloned().collect();
        if !ended.is_empty() {
            self.end(kind, &ended).await?;
        }
        for name in names {
            let left = self.subscriptions.as_mut().map_or(Reply::Integer(0), |subscriptions| {
                subscriptions.remove(kind, &name);
                subscriptions.count(kind)
            });
            self.put(&Reply::Push(vec![word.clone(), name.into(), left]));
        }
        self.release_unused();
        Ok(())
    }

    /// Ends subscriptions at the nodes, and passes on what they have sent before that.
    async fn end(&mut self, kind: Kind, names: &[Bytes]) -> Result<(), Closed> {
        let Some(subscriptions) = &self.subscriptions else { return Ok(()) };
        let (subscriber, from) = subscriptions.subscriber(kind);
        let confirmed = subscriber.unsubscribe(from, names);
        // Without a connection there are no messages either.
        let limit = self.core.limits().offline().min(PATIENCE);
        let _ended = self.while_open(true, timeout(limit, confirmed)).await?;
        // The library has them all, and a client expects none behind the confirmation. The runtime would let this task have only some at once.
        unconstrained(poll_fn(|cx| Poll::Ready(self.pass_messages(cx)))).await
    }

    /// Takes a permit for each connection that more subscriptions need.
    async fn reserve(&mut self, kind: Kind, names: &[Bytes]) -> Result<(), OpenError> {
        let Some(subscriptions) = &mut self.subscriptions else { return Ok(()) };
        for name in names {
            if let Entry::Vacant(missing) = subscriptions.connections.entry(slot(kind, name)) {
                missing.insert(Connection { names: 0, _permit: self.route.backend.pool.permit().await? });
            }
        }
        Ok(())
    }

    fn release_unused(&mut self) {
        self.subscriptions.iter_mut().for_each(|subscriptions| subscriptions.release_unused());
    }
}

/// The slot whose connection carries a subscription. `None` for channels and patterns.
fn slot(kind: Kind, name: &Bytes) -> Option<u16> {
    let probe = Command::new("SSUBSCRIBE").arg(name);
    match Routing::of(&probe) {
        Ok(Routing::Slot(slot)) if kind == Kind::Shard => Some(slot),
        _ => None,
    }
}

/// Whether a name is of keyspace notifications. A node publishes its own to its own clients, and a client's channels are on one node: it
/// would get a part of them. `__key*` can only mean them too.
fn is_notification(kind: Kind, name: &[u8]) -> bool {
    let literal = match kind {
        Kind::Channel => name,
        Kind::Pattern => name.split(|byte| b"*?[\\".contains(byte)).next().unwrap_or_default(),
        Kind::Shard => return false,
    };
    let goes_on = literal.len() < name.len();
    ["__keyspace@", "__keyevent@"].map(str::as_bytes).into_iter().any(|prefix| {
        literal.starts_with(prefix) || goes_on && literal.starts_with(b"__key") && prefix.starts_with(literal)
    })
}

const NOTIFICATIONS: &str = "ERR the gateway of a cluster refuses subscriptions to keyspace notifications: each node sends its own, to its own clients only; subscribe at each node directly";
/// Messages that wait for a client. One that lets more wait is closed.
const CAPACITY: usize = 16 * 1024;
/// How long a client waits for the end of a subscription, and at least for its begin.
const PATIENCE: Duration = Duration::from_secs(5);
