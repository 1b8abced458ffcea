//! [`Pool`]: makes the connections to one server, and keeps private ones for their next client.

mod moved;
mod refusals;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use valkey_rdma_client::Looks;
use valkey_rdma_transport::sync::lock;

use self::refusals::Refusals;
use crate::core::Core;
use crate::observe::seldom::Seldom;
use crate::upstream::backoff;
use crate::upstream::identity::{Identity, Key};
use crate::upstream::open_error::OpenError;
use crate::upstream::private::Private;
use crate::upstream::server::{Server, Upstream};
use crate::upstream::standing::Complaint;

pub(crate) struct Pool {
    pub(crate) server: Arc<Server>,
    /// As its clients have it.
    address: Arc<str>,
    core: Arc<Core>,
    idle: Mutex<Idle>,
    /// The shared connections.
    shared: Mutex<Vec<Weak<dyn GivesWay>>>,
    refusals: Refusals,
    looks: Mutex<Looks>,
    /// The last attempt to make a connection for a client of its own failed.
    is_missed: AtomicBool,
    /// Limits the log lines about losses of such connections.
    losses: Seldom,
    /// Limits the log lines about clients that find no room.
    full: Seldom,
    /// Limits the log lines about what the server refuses clients.
    refused: Seldom,
}

/// A connection that ends for the sake of another one, if nothing uses it.
pub(crate) trait GivesWay: Send + Sync {
    /// Since when nothing has used it. `None` if something does, or if there is no connection.
    fn unused_since(&self) -> Option<Instant>;

    /// Ends it. Returns what is cancelled when it has ended; `None` if something uses it.
    fn give_way(&self) -> Option<CancellationToken>;
}

/// Private connections without a client, and since when.
#[derive(Default)]
struct Idle {
    by_key: HashMap<Key, Vec<(Instant, Private)>>,
    /// A task closes those that are too old.
    expires: bool,
}

impl Idle {
    /// Since when the oldest is idle. Each list is in the order of time.
    fn oldest(&self) -> Option<Instant> {
        self.by_key.values().filter_map(|kept| kept.first()).map(|(since, _)| *since).min()
    }
}

impl Pool {
    pub(crate) fn new(server: Arc<Server>, address: Arc<str>, core: Arc<Core>) -> Self {
        Self {
            server,
            address,
            core,
            idle: Mutex::default(),
            shared: Mutex::default(),
            refusals: Refusals::default(),
            looks: Mutex::default(),
            is_missed: AtomicBool::new(false),
            losses: Seldom::default(),
            full: Seldom::every(APART),
            refused: Seldom::every(APART),
        }
    }

    /// Takes note of a shared connection, which may make room for others.
    pub(crate) fn add_shared(&self, new: Weak<dyn GivesWay>) {
        let mut shared = lock(&self.shared);
        shared.retain(|known| known.strong_count() > 0);
        shared.push(new);
    }

    /// Connects and logs in, in place of an idle connection if there may be no more, here or at the server. Over RDMA, what the server has
    /// just refused is not asked again.
    pub(crate) async fn open(
        &self,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<Upstream, OpenError> {
        if let Some(why) = self.refusals.in_the_way(key, Instant::now()) {
            why.count(&self.server.metrics);
            return Err(why);
        }
        let opened = self.open_in_place(key, identity, name).await;
        self.note_answer(key, &opened);
        opened
    }

    async fn open_in_place(
        &self,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<Upstream, OpenError> {
        let opened = self.server.open(self.place().await?, key, identity, name).await;
        let is_server_full = opened.as_ref().is_err_and(OpenError::is_server_full);
        if !is_server_full || !self.make_room().await {
            return opened;
        }
        sleep(LEAVING).await;
        self.server.open(self.place().await?, key, identity, name).await
    }

    /// Opens a connection for one client. Each client of an outage fails once more: only the first failure is logged.
    pub(crate) async fn open_for_one(
        &self,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<Upstream, OpenError> {
        let opened = self.open(key, identity, name).await;
        match &opened {
            // The server is there, and refuses this client.
            Err(OpenError::NoDatabase(_)) => {}
            Err(error) if error.is_about_login() && !self.server.has_own_login(identity) => {}
            Err(error) if !self.is_missed.swap(true, Ordering::Relaxed) => {
                warn!(%key, server = %self.server.endpoint(), %error, "cannot connect for a client");
            }
            Err(_) => {}
            Ok(_) => self.is_missed.store(false, Ordering::Relaxed),
        }
        opened
    }

    /// Whether to log why a shared connection failed, and how many such lines were not logged before. Clients may repeat what the server
    /// refuses them, or vary it: that is logged once in 5 s at most.
    pub(crate) fn pass_failure(&self, why: &OpenError, is_of_clients: bool) -> Option<u64> {
        let is_seldom = is_of_clients && why.is_refusal() && !why.is_server_full();
        if is_seldom { self.refused.pass(Instant::now().into()) } else { Some(0) }
    }

    /// Logs that the private connection of a client was lost, once a second at most: an end of the server ends them all.
    pub(crate) fn report_loss(&self, client: u64, cause: &str) {
        let Some(unlogged) = self.losses.pass(Instant::now().into()) else { return };
        let server = self.server.endpoint();
        warn!(%server, client, cause, unlogged, "the private connection of a client was lost");
    }

    /// Takes an idle private connection, or makes one. While the server cannot be reached, which sets `is_missed`, it tries again, for
    /// `limit` at most.
    pub(crate) async fn private_within(
        &self,
        limit: Duration,
        identity: &Identity,
        name: &str,
        is_missed: &AtomicBool,
    ) -> Result<Private, OpenError> {
        let mut reached = self.server.reached.subscribe();
        let mut why =
            OpenError::Unreachable(format!("there is no connection to {} yet", self.server.endpoint()));
        let tries = async {
            for attempt in 0.. {
                reached.mark_unchanged();
                match self.private(identity, name).await {
                    Err(error @ OpenError::Unreachable(_)) => why = error,
                    done => return Some(done),
                }
                is_missed.store(true, Ordering::Relaxed);
                backoff::pause(attempt, &mut reached).await;
            }
            None
        };
        timeout(limit, tries).await.ok().flatten().unwrap_or(Err(why))
    }

    /// Takes an idle private connection, or makes one.
    async fn private(&self, identity: &Identity, name: &str) -> Result<Private, OpenError> {
        let key = identity.key();
        while let Some(mut private) = self.take_idle(&key) {
            if private.is_usable() {
                self.server.set_used(&mut private.upstream, true);
                private.set_name(name);
                return Ok(private);
            }
        }
        while !self.server.has_room() {
            // Connections that nothing uses may be in the way: they end only if that makes room.
            if !self.server.has_room_without(self.unused()) || !self.make_room().await {
                return Err(self.report_no_room());
            }
        }
        Ok(Private::new(self.open_for_one(&key, identity, Some(name)).await?, name))
    }

    /// The key of a connection with the login and the database of the server's URL, whose identity this is. If the URL has neither, the
    /// connection does not log in.
    pub(crate) fn key_of_url(&self, identity: &Identity) -> Key {
        let endpoint = self.server.endpoint();
        let is_plain = endpoint.password().is_none() && endpoint.database() == 0;
        if is_plain { Key::Checker } else { identity.key() }
    }

    /// Asks the server whether it is there and ready, which counts as no connect. The connection is kept for the next probe, as one of the idle
    /// private connections: one that ends costs the server memory.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<(), OpenError> {
        let (endpoint, identity) = (self.server.endpoint(), self.server.identity());
        let key = self.key_of_url(&identity);
        while let Some(mut kept) = self.take_idle(&key) {
            if kept.is_usable()
                && let Ok(unready) = self.server.unready(endpoint, &mut kept.upstream.stream).await
            {
                if unready.is_some() && self.server.has_several() {
                    // Another node may be ready: all are asked, and this one again.
                    continue;
                }
                self.keep(key, kept);
                return unready.map_or(Ok(()), Err);
            }
        }
        if let Some(why) = self.refusals.in_the_way(&key, Instant::now()) {
            return Err(why);
        }
        let probed = self.server.probe(self.permit().await?, &key, &identity).await;
        self.note_answer(&key, &probed);
        let (upstream, unready) = probed?;
        self.keep(key, Private::new(upstream, ""));
        unready.map_or(Ok(()), Err)
    }

    /// The right to make one more connection, in place of an idle one if there may be no more. That there is none is logged.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, OpenError> {
        self.place().await.map_err(|_| self.report_no_room())
    }

    /// The same, without a line in the log.
    async fn place(&self) -> Result<OwnedSemaphorePermit, OpenError> {
        loop {
            match self.server.permit() {
                Err(_) if self.make_room().await => {}
                permit => return permit,
            }
        }
    }

    /// The error if there may be no more connections, which is also logged, once in 5 s at most.
    fn report_no_room(&self) -> OpenError {
        let error = self.server.no_room();
        if let Some(unlogged) = self.full.pass(Instant::now().into()) {
            warn!(%error, unlogged, "a client finds no connection");
        }
        error
    }

    /// How many connections nothing uses.
    fn unused(&self) -> usize {
        let shared: Vec<_> = lock(&self.shared).iter().filter_map(Weak::upgrade).collect();
        let shared = shared.iter().filter(|shared| shared.unused_since().is_some()).count();
        shared + lock(&self.idle).by_key.values().map(Vec::len).sum::<usize>()
    }

    /// Ends the connection that was unused for longest. `false` if all are used.
    async fn make_room(&self) -> bool {
        let private = lock(&self.idle).oldest();
        let mut unused: Vec<_> = lock(&self.shared)
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|shared| Some((shared.unused_since()?, shared)))
            .collect();
        unused.sort_by_key(|(since, _)| *since);
        for (since, shared) in unused {
            if private.is_some_and(|private| private < since) {
                break;
            }
            if let Some(ended) = shared.give_way() {
                // Its place is free only then.
                ended.cancelled().await;
                return true;
            }
        }
        self.drop_idle()
    }

    /// Keeps a connection without state for its next client.
    pub(crate) fn give_back(self: &Arc<Self>, identity: &Identity, mut private: Private) {
        let key = identity.key();
        let Some(doubted) = self.doubted(identity, &private.upstream) else { return self.keep(key, private) };
        let pool = self.clone();
        tokio::spawn(async move {
            let Ok(hello) = pool.server.hello(&mut private.upstream.stream).await else { return };
            if Complaint::ReadOnly.confirmed(&hello).is_some() {
                pool.find_primary(doubted).await;
            }
            pool.keep(key, private);
        });
    }

    fn keep(self: &Arc<Self>, key: Key, mut private: Private) {
        private.forget();
        self.server.set_used(&mut private.upstream, false);
        let mut idle = lock(&self.idle);
        let has_old_login = key.has_default_login() && !self.server.has_current_login(&private.upstream);
        if has_old_login || !self.server.is_current(&private.upstream) {
            return;
        }
        let kept = idle.by_key.entry(key).or_default();
        if kept.len() < self.core.limits().idle_upstreams {
            kept.push((Instant::now(), private));
        }
        if !std::mem::replace(&mut idle.expires, true) {
            tokio::spawn(expire(Arc::downgrade(self)));
        }
    }

    /// Ends a private connection whose client has gone. Over RDMA it is cleaned and kept, because each connection that ends costs the
    /// server memory, and because one that ends while a reply waits for its window may crash it. Without `keep` it is closed then:
    /// invalidations for another client may still arrive on it. It is closed at once if the server waits on it, for the rest of a
    /// command or for what a command blocks on.
    pub(crate) fn retire(self: &Arc<Self>, identity: Identity, mut private: Private, keep: bool) {
        let waits = private.tracker.is_blocked() || private.has_open_command();
        if waits || private.upstream.stream.info().device.is_none() {
            return;
        }
        let pool = self.clone();
        pool.server.note_reset(&mut private.upstream);
        tokio::spawn(async move {
            let cleaned = timeout(CLEANING, async {
                private.reset().await?;
                let logged_in = pool.server.log_in_again(&mut private.upstream, &identity).await;
                logged_in.map_err(|error| std::io::Error::other(error.to_string()))
            });
            match cleaned.await {
                Ok(Ok(())) if !keep => {}
                Ok(Ok(())) => pool.give_back(&identity, Private::new(private.upstream, "")),
                Ok(Err(error)) => debug!(%error, "a private connection is closed"),
                Err(_) => debug!("a private connection is closed in the middle of a reply"),
            }
        });
    }

    fn take_idle(&self, key: &Key) -> Option<Private> {
        lock(&self.idle).by_key.get_mut(key)?.pop().map(|(_, private)| private)
    }

    /// Closes the private connection that was idle for longest. `false` if none is idle.
    fn drop_idle(&self) -> bool {
        let mut idle = lock(&self.idle);
        let lists = idle.by_key.values_mut().filter(|kept| !kept.is_empty());
        let oldest = lists.min_by_key(|kept| kept.first().map(|(since, _)| *since));
        oldest.map(|kept| kept.remove(0)).is_some()
    }

    /// Closes the idle connections of clients that do not log in, because there is another login for these.
    pub(crate) fn drop_default_login(&self) {
        lock(&self.idle).by_key.retain(|key, _| !key.has_default_login());
    }

    /// Closes idle connections that are too old, or that the server has closed. `false` if none is left.
    fn drop_old(&self) -> bool {
        let mut idle = lock(&self.idle);
        idle.by_key.retain(|_, kept| {
            kept.retain_mut(|(since, private)| {
                since.elapsed() < private.upstream.idle_limit(IDLE) && private.is_usable()
            });
            !kept.is_empty()
        });
        idle.expires = !idle.by_key.is_empty();
        idle.expires
    }
}

/// Closes idle connections in time, as long as there are some.
async fn expire(pool: Weak<Pool>) {
    loop {
        sleep(IDLE).await;
        if !pool.upgrade().is_some_and(|pool| pool.drop_old()) {
            return;
        }
    }
}

/// An unused private connection is closed after 60 s to 120 s, over RDMA later.
const IDLE: Duration = Duration::from_secs(60);
/// Between two lines of the log about clients that find no room, or whose login or database the server refuses.
const APART: Duration = Duration::from_secs(5);
/// How long the replies of a client that has gone are read.
const CLEANING: Duration = Duration::from_secs(60);
/// How long a full server may take to count a connection out: Valkey does that between two rounds of its event loop.
const LEAVING: Duration = Duration::from_millis(50);
