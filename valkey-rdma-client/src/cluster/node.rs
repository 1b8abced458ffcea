//! [`Node`]: a node of the cluster and the connection to it, which is made when a command needs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::address::PortRules;
use crate::config::{Backoff, Config};
use crate::endpoint::{Endpoint, NodeAddress};
use crate::error::{Error, LostCause, LostConnection};
use crate::events::{ConnectionEvent, EventHub, ServerEvents};
use crate::link::{Connector, Members, Redialer};
use crate::runtime::Runtime;
use crate::server::Server;
use valkey_rdma_transport::sync::lock;

/// How to connect to nodes.
pub(super) struct DialSettings {
    pub(super) rules: PortRules,
    /// Without reconnects: a lost connection is replaced by its node.
    pub(super) config: Config,
    /// The ids that the nodes have by the map.
    pub(super) members: Members,
    pub(super) backoff: Backoff,
    pub(super) events: Arc<EventHub>,
    /// A warning has said that replicas are not read.
    pub(super) has_told: AtomicBool,
    /// Sent to when a node was connected, or when others became nodes: attempts to connect that wait begin at once.
    pub(super) server_is_back: watch::Sender<()>,
    pub(super) runtime: Runtime,
}

/// A node. It connects on demand, in a task of its own, so that no command of another node waits for it.
pub(super) struct Node {
    address: NodeAddress,
    /// The address as text, for errors.
    name: Arc<str>,
    settings: Arc<DialSettings>,
    /// The endpoint, where it does not follow from the rules: that of a seed.
    endpoint: Option<Endpoint>,
    live: ArcSwapOption<Server>,
    dial: Mutex<Dial>,
    /// Why the last attempt to connect failed, unless it succeeded. Sent to with every end of an attempt.
    outcome: watch::Sender<Option<Error>>,
    /// Until then, reads go to other nodes: this one was unreachable, loading, or without its primary.
    passed_over_until: ArcSwapOption<Instant>,
    /// True if its connection may not read from it as a replica.
    redirects_reads: AtomicBool,
    /// True from the first map that names it a primary until it has answered as something else.
    had_slots: AtomicBool,
    /// Since when it has left commands unanswered, if that is too long.
    silent_since: ArcSwapOption<Instant>,
    facts: Mutex<Facts>,
    /// The ids of which its server must have one, if the node is in the map, or has said its id. One that only a redirection has named may have joined since the map
    /// was read.
    members: Members,
    /// True if its connection was renewed since its id was learned.
    is_renewed: AtomicBool,
}

/// What the cluster says of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) id: Option<String>,
    pub(super) zone: Option<Arc<str>>,
    /// True if the cluster announced port 0, and the port is that of the node that said so.
    pub(super) port_assumed: bool,
}

struct Dial {
    in_progress: bool,
    redialer: Redialer,
    closed: bool,
}

impl Node {
    pub(super) fn new(address: NodeAddress, settings: Arc<DialSettings>, endpoint: Option<Endpoint>) -> Self {
        let redialer = Redialer::new(settings.backoff, &settings.config, settings.server_is_back.subscribe());
        let dial = Dial { in_progress: false, redialer: redialer.on_demand(), closed: false };
        let members = settings.members.of_one_node();
        Self {
            name: address.to_string().into(),
            address,
            settings,
            endpoint,
            live: ArcSwapOption::empty(),
            dial: Mutex::new(dial),
            outcome: watch::Sender::new(None),
            passed_over_until: ArcSwapOption::empty(),
            redirects_reads: AtomicBool::new(false),
            had_slots: AtomicBool::new(false),
            silent_since: ArcSwapOption::empty(),
            facts: Mutex::default(),
            members,
            is_renewed: AtomicBool::new(false),
        }
    }

    pub(super) fn address(&self) -> &NodeAddress {
        &self.address
    }

    /// The address as text.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The connection, if there is one. It may be lost already.
    pub(super) fn live(&self) -> Option<Server> {
        self.live.load().as_deref().cloned()
    }

    /// Connects unless connected, and waits for the attempt to end.
    ///
    /// Cancel safe: the attempt goes on.
    pub(super) async fn connected(self: &Arc<Self>) -> Result<Server, Error> {
        let mut outcome = self.outcome.subscribe();
        // Looked at after subscribing: an attempt that ends in between is seen.
        if let Some(client) = self.live() {
            return Ok(client);
        }
        self.start_dial()?;
        // The sender lives as long as the node.
        drop(outcome.changed().await);
        match self.live() {
            Some(client) => Ok(client),
            None => Err(self.last_error().unwrap_or_else(|| self.closed_error())),
        }
    }

    /// Forgets a connection that was lost. A newer one stays.
    pub(super) fn lost(&self, client: &Server) {
        let mut dial = lock(&self.dial);
        let lost = self.live().filter(|live| live.is_same(client)).map(|_| self.live.swap(None));
        if lost.is_some() {
            dial.redialer.lost();
            // Reads go elsewhere while the next attempt waits.
            if let Some(moment) = dial.redialer.not_before() {
                self.pass_over_until(Some(moment));
            }
        }
        // Ending a connection wakes tasks.
        drop(dial);
        drop(lost);
    }

    /// Refuses connections from now on. Returns the last one.
    pub(super) fn close(&self) -> Option<Server> {
        lock(&self.dial).closed = true;
        self.live.swap(None).map(|client| (*client).clone())
    }

    /// Drops the connection. Commands in flight on it still get their replies.
    pub(super) fn disconnect(&self) {
        let dial = lock(&self.dial);
        let last = self.live.swap(None);
        // Ending a connection wakes tasks.
        drop(dial);
        drop(last);
    }

    /// Its server names this very address as that of another node: one that the connection does not lead to may have it by now. The connection
    /// is made again, which shows who answers there. Once for each id that the map gives it, because servers behind one address say so for ever.
    pub(super) fn renew(&self, client: &Server) {
        let is_current = self.live().is_some_and(|live| live.is_same(client));
        if is_current && !self.is_renewed.swap(true, Ordering::Relaxed) {
            self.disconnect();
        }
    }

    /// Sends reads to other nodes for a moment.
    pub(super) fn pass_over(&self) {
        self.pass_over_for(self.settings.backoff.wait(0));
    }

    /// Sends reads to other nodes for this time.
    pub(super) fn pass_over_for(&self, time: Duration) {
        self.pass_over_until(Instant::now().checked_add(time));
    }

    fn pass_over_until(&self, moment: Option<Instant>) {
        self.passed_over_until.store(moment.map(Arc::new));
    }

    /// True if reads may go to it. A node that is passed over and has no connection is connected in the background when its
    /// time is over, so that no read waits for it.
    pub(super) fn is_usable(self: &Arc<Self>) -> bool {
        match self.passed_over_until.load().as_deref() {
            None => true,
            Some(until) if *until > Instant::now() => false,
            Some(_) if self.live().is_some() => {
                self.pass_over_until(None);
                true
            }
            Some(_) => {
                // A closed node stays unusable.
                drop(self.start_dial());
                false
            }
        }
    }

    /// False if it redirects reads while it is a replica.
    pub(super) fn may_be_read(&self) -> bool {
        !self.redirects_reads.load(Ordering::Relaxed)
    }

    /// Notes whether a new connection may read from it as a replica. Says so once in the log if not.
    fn set_may_read(&self, may_read: bool) {
        self.redirects_reads.store(!may_read, Ordering::Relaxed);
        if !may_read && !self.settings.has_told.swap(true, Ordering::Relaxed) {
            warn!(node = %self.name, "the user may not run READONLY: reads go to primaries, not to replicas");
        }
    }

    /// True if commands in flight may have been sent to it as a primary.
    pub(super) fn had_slots(&self) -> bool {
        self.had_slots.load(Ordering::Relaxed)
    }

    /// A map names it a primary.
    pub(super) fn got_slots(&self) {
        self.had_slots.store(true, Ordering::Relaxed);
    }

    /// It has answered since it lost its slots, or owes nothing.
    pub(super) fn forget_slots(&self) {
        self.had_slots.store(false, Ordering::Relaxed);
    }

    /// How long it has left commands unanswered, if that is too long.
    pub(super) fn silent_for(&self) -> Option<Duration> {
        self.silent_since.load().as_deref().map(Instant::elapsed)
    }

    /// Notes since when it has left commands unanswered for too long, or that it has not.
    pub(super) fn set_silent_since(&self, since: Option<Instant>) {
        match (self.silent_since.swap(since.map(Arc::new)), since) {
            (None, Some(since)) => {
                let silent_for = since.elapsed();
                warn!(node = %self.name, ?silent_for, "a node leaves commands unanswered");
                let node = &self.address;
                self.settings.events.pass(|| ConnectionEvent::Silent { node: node.clone(), silent_for });
            }
            (Some(_), None) => {
                info!(node = %self.name, "no command waits for the silent node any more");
                if self.live().is_some() {
                    self.pass_over_until(None);
                }
            }
            _ => {}
        }
    }

    pub(super) fn zone(&self) -> Option<Arc<str>> {
        lock(&self.facts).zone.clone()
    }

    pub(super) fn facts(&self) -> Facts {
        lock(&self.facts).clone()
    }

    pub(super) fn set_facts(&self, facts: Facts) {
        let mut known = lock(&self.facts);
        self.members.require(facts.id.is_some());
        if known.id != facts.id {
            self.is_renewed.store(false, Ordering::Relaxed);
        }
        *known = facts;
    }

    /// Its server says that it has this id. The map's word counts more.
    pub(super) fn said_id(&self, id: &str) {
        let mut facts = lock(&self.facts);
        facts.id.get_or_insert_with(|| id.to_owned());
        self.members.require(true);
    }

    /// Why the last attempt to connect failed, unless a later one succeeded.
    pub(super) fn last_error(&self) -> Option<Error> {
        self.outcome.borrow().clone()
    }

    /// True if it is likely to answer: it leaves no command unanswered, and connecting to it has not failed the last time.
    pub(super) fn may_answer(&self) -> bool {
        self.silent_for().is_none() && (self.live().is_some() || self.outcome.borrow().is_none())
    }

    /// The error of commands after the end of the cluster client.
    pub(super) fn ended_error(&self, cause: LostCause) -> Error {
        LostConnection::new(self.name.clone(), Arc::new(cause), false).into()
    }

    fn closed_error(&self) -> Error {
        self.ended_error(LostCause::Closed)
    }

    /// Starts a task that connects, unless there is one.
    fn start_dial(self: &Arc<Self>) -> Result<(), Error> {
        let mut dial = lock(&self.dial);
        if dial.closed {
            return Err(self.closed_error());
        }
        if !dial.in_progress && self.live.load().is_none() {
            dial.in_progress = true;
            let attempt = Attempt { node: self.clone(), error: Some(self.ended_error(LostCause::Stopped)) };
            // A command waits for it.
            let pause = dial.redialer.pause(|| true);
            // A runtime that shuts down drops the attempt at once, which takes the lock.
            drop(dial);
            self.settings.runtime.spawn(attempt.run(pause));
        }
        Ok(())
    }

    /// A connection of its own to the server at this address, also to one of another cluster: to read its map.
    pub(super) async fn connect_to_any(&self) -> Result<Server, Error> {
        self.connect_to(Members::default(), ServerEvents::alone()).await
    }

    async fn connect(&self) -> Result<Server, Error> {
        loop {
            let is_compared = self.members.are_compared();
            let events = ServerEvents::of_node(&self.settings.events, &self.address);
            let client = self.connect_to(self.members.clone(), events).await?;
            // The first map may have come meanwhile. From then on it counts which node a seed is.
            if is_compared || !self.members.are_compared() {
                return Ok(client);
            }
        }
    }

    async fn connect_to(&self, members: Members, events: Arc<ServerEvents>) -> Result<Server, Error> {
        let endpoint = match &self.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => self.settings.rules.endpoint(&self.address).await?,
        };
        let mut connector = Connector::new(endpoint, self.settings.config.clone());
        connector.members = members;
        Server::start(connector, None, events).await
    }
}

/// An attempt to connect to a node. Dropping it ends it for those who wait, also if its runtime ends before it was polled.
struct Attempt {
    node: Arc<Node>,
    /// Why it failed, as far as is known.
    error: Option<Error>,
}

impl Attempt {
    async fn run(mut self, pause: impl Future<Output = ()>) {
        let node = &self.node;
        pause.await;
        {
            let mut dial = lock(&node.dial);
            if dial.closed {
                self.error = Some(node.closed_error());
                return;
            }
            dial.redialer.begins();
        }
        let connected = node.connect().await;
        let mut dial = lock(&node.dial);
        self.error = match connected {
            Ok(client) if !dial.closed => {
                debug!(node = %node.name, info = %client.info(), "connected to a node");
                dial.redialer.connected();
                node.set_may_read(client.info().may_read_replica);
                node.pass_over_until(None);
                client.announce(|| node.live.store(Some(Arc::new(client.clone()))));
                node.settings.server_is_back.send_replace(());
                None
            }
            Ok(_) => Some(node.closed_error()),
            Err(error) => {
                let before = node.last_error();
                let was = |is: fn(&Error) -> bool| before.as_ref().is_some_and(is);
                // One that has replaced another under its name is not in the map at first.
                let may_be_new = error.is_another_cluster() && !was(Error::is_another_cluster);
                // One that reads its data is asked often.
                let is_known = error.is_loading() && was(Error::is_loading);
                let text = format!("{error:#}");
                match may_be_new || is_known {
                    true => debug!(node = %node.name, error = %text, "no connection to a node yet"),
                    false => warn!(node = %node.name, error = %text, "no connection to a node"),
                }
                dial.redialer.failed_while(error.is_loading());
                let attempt = dial.redialer.attempts();
                node.pass_over_until(dial.redialer.not_before());
                // It wakes tasks.
                drop(dial);
                let (address, connection) = (&node.address, 0);
                node.settings.events.pass(|| {
                    let (node, error) = (Some(address.clone()), error.clone());
                    ConnectionEvent::ConnectFailed { node, connection, attempt, error }
                });
                Some(error)
            }
        };
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        lock(&self.node.dial).in_progress = false;
        self.node.outcome.send_replace(self.error.take());
    }
}
