//! The state that all connections share, behind one lock: as in Valkey, one command runs at a time.

use std::collections::BTreeSet;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::time::Instant;
use valkey_rdma_transport::sync::MutexGuard;

use crate::arena::Arena;
use crate::client::Clients;
use crate::config::Settings;
use crate::failure::Failure;
use crate::functions::Functions;
use crate::membership::{Asked, Destination, Member, Publication, redirection, route, slot_of};
use crate::store::{DATABASES, Database};
use crate::subscriptions::{Channel, Subscriptions};
use crate::tracking::Tracking;
use crate::waiters::Waiters;
use valkey_rdma_server::Reply;

/// The state of a [`Mock`](crate::mock::Mock).
pub(super) struct State {
    pub(super) databases: Vec<Database>,
    pub(super) settings: Settings,
    pub(super) clients: Clients,
    pub(super) subscriptions: Subscriptions,
    pub(super) tracking: Tracking,
    pub(super) waiters: Waiters,
    pub(super) functions: Functions,
    pub(super) clock: Clock,
    /// Where large strings are whose bytes are transferred directly.
    pub(super) arena: Arena,
    /// The place in a cluster, if the mock is a node of one.
    pub(super) member: Option<Member>,
    /// Messages that other nodes of the cluster must deliver, once no lock is held.
    pub(super) publications: Vec<Publication>,
    /// The running command has changed the topology. The other nodes are notified once no lock is held.
    pub(super) topology_changed: bool,
    /// When the running command began.
    pub(super) now: Instant,
    /// `DEBUG SLEEP`: no command runs before this time.
    pub(super) stalled_until: Option<Instant>,
    /// Clients with watched keys.
    pub(super) watchers: BTreeSet<u64>,
    /// The random numbers of `SPOP`, `SRANDMEMBER` and `RANDOMKEY`.
    pub(super) random: fastrand::Rng,
    pub(super) clients_seen: u64,
    pub(super) commands_run: u64,
    pub(super) errors: u64,
}

/// A clock that does not jump: the time of day at the start, plus the time since.
pub(super) struct Clock {
    pub(super) started: Instant,
    /// Milliseconds since 1970.
    started_at: i64,
}

impl Clock {
    /// `instant` in milliseconds since 1970.
    fn milliseconds(&self, instant: Instant) -> i64 {
        let since = instant.saturating_duration_since(self.started);
        self.started_at + (since.as_secs() * 1000 + u64::from(since.subsec_millis())) as i64
    }
}

impl Default for Clock {
    fn default() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            started: Instant::now(),
            started_at: i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX / 2),
        }
    }
}

/// The state of a node that has borrowed the databases of its shard. They go back at its end, also if that is a panic: the other nodes of
/// the shard have the same ones.
struct Borrowed<'a> {
    state: &'a mut State,
    shared: MutexGuard<'a, Vec<Database>>,
}

impl Borrowed<'_> {
    fn swap(&mut self) {
        std::mem::swap(&mut *self.shared, &mut self.state.databases);
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.swap();
    }
}

impl State {
    pub(super) fn new() -> Self {
        Self::with(None, (0..DATABASES).map(|_| Database::default()).collect())
    }

    /// The state of a cluster's node, which has no databases of its own.
    pub(super) fn of(member: Member) -> Self {
        let mut state = Self::with(Some(member), Vec::new());
        state.settings.set("cluster-enabled", Bytes::from_static(b"yes"));
        state
    }

    fn with(member: Option<Member>, databases: Vec<Database>) -> Self {
        let clock = Clock::default();
        Self {
            databases,
            member,
            publications: Vec::new(),
            topology_changed: false,
            settings: Settings::default(),
            clients: Clients::default(),
            subscriptions: Subscriptions::default(),
            tracking: Tracking::default(),
            waiters: Waiters::default(),
            functions: Functions::default(),
            now: clock.started,
            clock,
            arena: Arena::default(),
            stalled_until: None,
            watchers: BTreeSet::new(),
            random: fastrand::Rng::new(),
            clients_seen: 0,
            commands_run: 0,
            errors: 0,
        }
    }

    /// Called before a command: removes the keys that have expired, and notifies the clients that watch, track or wait for them. Later
    /// would be too late if the command is `EXEC`, and would count against a client that begins to watch or track such a key now.
    pub(super) fn catch_up(&mut self) {
        self.now = Instant::now();
        let now = self.clock.milliseconds(self.now);
        let mut expired = false;
        for database in &mut self.databases {
            database.set_now(now);
            expired |= database.has_changed();
        }
        if expired {
            self.notify();
        }
    }

    /// Called after a command: notifies the clients that watch, track or wait for a changed key.
    pub(super) fn settle(&mut self) {
        self.notify();
        self.tracking.settled();
    }

    /// Runs `command` with the databases of the node's shard, if it is a cluster's node.
    pub(super) fn with_keyspace<R>(&mut self, command: impl FnOnce(&mut Self) -> R) -> R {
        let Some(keyspace) = self.member.as_ref().map(|member| member.keyspace.clone()) else {
            return command(self);
        };
        let mut borrowed = Borrowed { state: self, shared: keyspace.borrow() };
        borrowed.swap();
        command(borrowed.state)
    }

    fn notify(&mut self) {
        if self.watchers.is_empty() && self.waiters.is_empty() && self.tracking.is_idle() {
            for database in &mut self.databases {
                database.forget_changed();
            }
            return;
        }
        loop {
            let mut changed: BTreeSet<(usize, Bytes)> = BTreeSet::new();
            for (index, database) in self.databases.iter_mut().enumerate() {
                let keys = database.take_changed();
                changed.extend(keys.into_iter().map(|key| (index, key)));
            }
            if changed.is_empty() {
                break;
            }
            let keys: BTreeSet<Bytes> = changed.iter().map(|(_, key)| key.clone()).collect();
            self.tracking.changed(&keys, &self.clients);
            for watcher in &self.watchers {
                if let Some(client) = self.clients.get_mut(watcher) {
                    client.watched_changed |= changed.iter().any(|key| client.watched.contains(key));
                }
            }
            if self.waiters.is_empty() {
                break;
            }
            for key in &changed {
                for client in self.waiters.queue(key) {
                    self.serve(client, &key.1);
                }
            }
        }
    }

    /// Tries again what `client` waits for, if `key` has become that. As in Valkey, the whole command runs again then, and fails if another
    /// of its keys is of another type.
    fn serve(&mut self, client: u64, key: &Bytes) {
        let Some(waiter) = self.waiters.get(client) else { return };
        let database = &mut self.databases[waiter.database];
        // A client that has disconnected must not take a value.
        let outcome = if waiter.answer.is_closed() {
            Err(Failure::SYNTAX)
        } else if waiter.awaited.is(database.value(key)) {
            (waiter.attempt)(database, &waiter.command)
        } else {
            return;
        };
        let reply = match outcome {
            Ok(None) => return,
            Ok(Some(reply)) => reply,
            Err(failure) => failure.into(),
        };
        self.answer(client, reply);
    }

    /// Ends a wait. `false`: that client does not wait.
    pub(super) fn answer(&mut self, client: u64, reply: Reply) -> bool {
        let Some(waiter) = self.waiters.remove(client) else { return false };
        if let Some(client) = self.clients.get_mut(&client) {
            client.blocked = false;
        }
        // An error means that the client has just disconnected.
        let _ = waiter.answer.send(reply);
        true
    }

    /// Ends what the node may no longer serve after a change of the topology: subscriptions to shard channels, and commands that
    /// wait for keys.
    pub(super) fn topology_changed(&mut self) {
        let Some(member) = self.member.clone() else { return };
        let topology = member.topology();
        let primary = topology.primary_of(member.index);
        let lost: Vec<Bytes> = self.subscriptions.names(Channel::Shard).cloned().collect();
        for channel in lost.into_iter().filter(|channel| topology.owner(slot_of(channel)) != Some(primary)) {
            self.subscriptions.end(&channel, &mut self.clients);
        }
        for (id, key) in self.waiters.keys() {
            let Some(client) = self.clients.get(&id) else { continue };
            let slot = slot_of(&key);
            let importing = topology.importing.get(&slot).is_some_and(|(target, _)| *target == member.index);
            let asked =
                Asked { keys: vec![&key], writes: true, readonly: client.readonly, ..Asked::default() };
            match route(&topology, member.index, &asked, |_| true) {
                Destination::This => {}
                _ if importing => {}
                elsewhere => {
                    if let Some(failure) = redirection(elsewhere, &topology) {
                        self.answer(id, failure.into());
                    }
                }
            }
        }
    }

    /// Closes a connection. It takes no value after this, although its task may still run.
    pub(super) fn kill(&mut self, id: u64) {
        self.let_go(id);
        if let Some(client) = self.clients.get_mut(&id) {
            client.killed = true;
            client.pusher.close();
        }
    }

    pub(super) fn forget_client(&mut self, id: u64) {
        self.let_go(id);
        self.clients.remove(&id);
    }

    /// Ends all that a client waits for, watches, tracks or listens to.
    fn let_go(&mut self, id: u64) {
        self.waiters.remove(id);
        self.watchers.remove(&id);
        self.tracking.forget(id);
        if let Some(client) = self.clients.get_mut(&id) {
            self.subscriptions.remove_all(client);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;
    use crate::membership::{Bus, Endpoint, NodeInfo, Topology};

    #[test]
    fn databases_are_back_in_their_shard_after_a_command_that_panics() {
        let node = NodeInfo {
            id: "0".into(),
            shard: 0,
            primary: None,
            addr: ([127, 0, 0, 1], 7000).into(),
            endpoint: Endpoint::Ip,
            zone: "".into(),
            epoch: 1,
            failed: false,
        };
        let bus = Arc::new(Bus::new(Topology::new(vec![node]), 1));
        let keyspace = bus.keyspace(0).clone();
        let behaviour = bus.behaviour(0).clone();
        let listeners = Arc::default();
        let mut state = State::of(Member { index: 0, keyspace: keyspace.clone(), behaviour, bus, listeners });
        let panics = || state.with_keyspace::<()>(|_| panic!("a command of a test panics"));
        catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!((keyspace.borrow().len(), state.databases.len()), (DATABASES, 0));
        assert_eq!(state.with_keyspace(|state| state.databases.len()), DATABASES);
    }
}
