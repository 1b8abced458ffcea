//! A small Valkey in memory, for tests, trials and benchmarks.

use std::fmt;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use crate::client::Client;
use crate::commands;
use crate::context::{Context, Wait};
use crate::membership::{Member, Neighbour, Publication};
use crate::recorder::{Received, Recorder};
use crate::rules::{Action, Rule, Rules};
use crate::session::Session;
use crate::state::State;
use crate::store::{Expiry, Value};
use crate::subscriptions::Channel;
use crate::transfer::Transfer;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;
use valkey_rdma_server::{DirectError, Handler, Peer, Protocol, Transport};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::sync::lock;

/// A [`Handler`] that behaves like a small Valkey.
///
/// It keeps strings, lists, hashes, sets, sorted sets and streams in 16 databases, and knows expiry, transactions, publish and
/// subscribe, blocking commands and client-side caching. `COMMAND LIST` lists its commands. For every other command, put the
/// program `valkey-rdma-mock --proxy` in front of a real Valkey.
///
/// `BLOB.GET`, `BLOB.SET` and `BLOB.INFO` are those of the module valkey-large-object, on strings. Over RDMA, they move values to and from
/// memory of their client, if the server offers that: [`Builder::direct`](valkey_rdma_server::Builder::direct), as [`MockServer`](crate::MockServer) does.
///
/// `DEBUG SLEEP` stalls the commands of all connections, as in a real, single-threaded server. Connections are still
/// accepted and their bytes are still read.
///
/// # Differences from Valkey
///
/// `tests/dialogues/` holds about 1000 commands with the replies of a real Valkey 9.1 in RESP2 and RESP3. The mock replies
/// with the same bytes. Known differences:
///
/// - No interpreter: `EVAL` fails, `EVALSHA` finds no script, and functions return nil. No modules or replication. For a cluster
///   see [`MockCluster`](crate::MockCluster).
/// - Client-side caching works in the default mode of RESP3 only.
/// - `SCAN`, `SSCAN` and `HSCAN` return items in another order, and their cursors are small numbers. Sets of integers, and sets
///   and hashes too large for Valkey's compact form, have another order as well.
/// - `CLIENT LIST` and `INFO` have only the fields that have a meaning here. `COMMAND INFO` reports arity, keys, and whether a
///   command reads or writes.
/// - `DEBUG SLEEP` is always enabled and takes at most an hour. There is one user, `default`. Of the settings only
///   `requirepass` and `proto-max-bulk-len` have an effect. The latter limits the strings that commands build; for arguments there is
///   [`Limits::max_argument_len`](crate::Limits::max_argument_len). Memory is not limited.
/// - `XINFO STREAM` reports the radix tree of a stream of at most 100 entries and 4096 bytes, even if the stream is larger.
///   `XINFO STREAM key FULL`, `XINFO GROUPS` and `XINFO CONSUMERS` fail.
/// - Expired keys are removed when the next command runs. Their invalidations are sent then.
/// - `SRANDMEMBER` with a negative count returns at most 1 048 576 items. A string has at most 512 MiB.
pub struct Mock {
    /// Each session holds a clone to remove its client when it ends.
    state: Arc<Mutex<State>>,
    member: Option<Member>,
    rules: Rules,
    recorder: Recorder,
    /// Held while the program itself runs a command: these have one place among the clients.
    program: Mutex<()>,
}

impl Mock {
    /// Creates an empty mock without a password.
    pub fn new() -> Self {
        Self::with(Arc::new(Mutex::new(State::new())), None)
    }

    /// Creates a node of a cluster.
    pub(crate) fn node(member: Member) -> Self {
        let state = Arc::new(Mutex::new(State::of(member.clone())));
        let neighbour: Arc<dyn Neighbour> = state.clone();
        member.bus.join(member.index, Arc::downgrade(&neighbour));
        Self::with(state, Some(member))
    }

    fn with(state: Arc<Mutex<State>>, member: Option<Member>) -> Self {
        Self {
            state,
            member,
            rules: Rules::default(),
            recorder: Recorder::default(),
            program: Mutex::default(),
        }
    }

    /// Begins a rule about a command, such as `GET` or `CONFIG GET`: what it is answered with, after which delay, or that the connection
    /// is lost. See [`Rule`].
    ///
    /// ```
    /// use valkey_rdma_mock::{Mock, Reply};
    ///
    /// let mock = Mock::new();
    /// mock.on("GET").with("k").reply("value");
    /// mock.on("GET").error("READONLY You can't write against a read only replica.").times(1);
    /// let drops = mock.on("INCR").drop_connection();
    /// assert_eq!(drops.matched(), 0);
    /// ```
    pub fn on(&self, command: &str) -> Rule {
        self.rules.add(command)
    }

    /// Records the commands that arrive, for [`received`](Self::received). A [`MockServer`](crate::MockServer) does so without it.
    #[must_use]
    pub fn recording(self) -> Self {
        self.recorder.start();
        self
    }

    /// The commands that arrived, in order: the last 10 000, and of large ones those
    /// whose arguments take 64 MiB together. Those of a client's login are among them. Empty unless the mock is
    /// [recording](Self::recording).
    pub fn received(&self) -> Vec<Received> {
        self.recorder.received()
    }

    /// Makes the commands that choose at random (`SPOP`, `SRANDMEMBER`, `RANDOMKEY`) repeatable.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.state().random = fastrand::Rng::with_seed(seed);
        self
    }

    /// Sets a string in database 0.
    pub fn set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) {
        self.execute(&Command::new("SET", [key.into(), value.into()]));
    }

    /// The string in database 0. `None` if there is none, or a value of another type.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<Bytes> {
        match self.execute(&Command::new("GET", [Bytes::copy_from_slice(key.as_ref())])) {
            Reply::Bulk(value) => Some(value),
            _ => None,
        }
    }

    /// Runs a command in database 0 as a client that has logged in, to prepare or to inspect values of any type. Rules do not apply
    /// to it, and it is not recorded. A command that blocks is answered with no value at once.
    ///
    /// ```
    /// use valkey_rdma_mock::{Command, Mock, Reply};
    ///
    /// let mock = Mock::new();
    /// mock.execute(&Command::new("RPUSH", ["jobs", "wash", "dry"]));
    /// assert_eq!(mock.execute(&Command::new("LLEN", ["jobs"])), Reply::Integer(2));
    /// ```
    pub fn execute(&self, command: &Command) -> Reply {
        let _one_at_a_time = lock(&self.program);
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut peer = Peer::new(PROGRAM, Transport::Tcp, nowhere, nowhere);
        peer.set_protocol(Protocol::Resp3);
        let session = self.join(PROGRAM, &peer);
        let mut state = self.state();
        if let Some(client) = state.clients.get_mut(&session.id) {
            (client.authenticated, client.protocol) = (true, Protocol::Resp3);
        }
        let reply = state.with_keyspace(|state| {
            let mut context = Context {
                state,
                peer: &mut peer,
                client: PROGRAM,
                in_transaction: true,
                wait: None,
                transfer: None,
                stalled_until: None,
            };
            commands::run(&mut context, command)
        });
        drop(state);
        reply
    }

    /// Removes all keys, all rules and the record of what was received. Connections stay.
    pub fn reset(&self) {
        self.execute(&Command::new("FLUSHALL", [""; 0]));
        self.rules.clear();
        self.recorder.clear();
    }

    /// Closes the connections that `chosen` chooses.
    pub(crate) fn disconnect(&self, chosen: impl Fn(&Client) -> bool) {
        let mut state = self.state();
        let chosen: Vec<u64> =
            state.clients.values().filter(|client| chosen(client)).map(|client| client.id).collect();
        for id in chosen {
            state.kill(id);
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.state().clients.len()
    }

    /// Requires `AUTH password` before any other command. An empty password turns this off.
    pub fn requirepass(self, password: impl Into<Bytes>) -> Self {
        self.state().settings.set("requirepass", password.into());
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Locks the state for a command, as soon as no `DEBUG SLEEP` stalls it.
    async fn state_for_command(&self) -> MutexGuard<'_, State> {
        loop {
            let until = {
                let mut state = self.state();
                match state.stalled_until {
                    Some(until) if until > Instant::now() => until,
                    _ => {
                        state.stalled_until = None;
                        return state;
                    }
                }
            };
            sleep_until(until).await;
        }
    }

    /// Carries out a direct transfer. What a client has named wrongly ends its connection.
    async fn transfer(&self, peer: &mut Peer, transfer: Transfer) -> Result<Reply, DirectError> {
        // The command has seen that there are some.
        let Some(mut direct) = peer.direct() else { return Ok(Reply::Null) };
        match transfer {
            Transfer::Write { to, value, checksum } => {
                let len = value.len() as i64;
                direct.write_to(&to, value).await?;
                Ok(Reply::Array(vec![Reply::Integer(len), Reply::Integer(checksum.into())]))
            }
            Transfer::Read { from, len, place, key, database } => {
                let value = match place {
                    Some(place) => match direct.read_into(&from, place).await {
                        // There may be enough for the connection's own memory, which is smaller.
                        Err(DirectError::Transport(TransportError::Memory { .. })) => {
                            direct.read_from(&from, len).await?
                        }
                        read => read?.freeze(),
                    },
                    None => direct.read_from(&from, len).await?,
                };
                let value = Value::String(value);
                self.state_for_command().await.with_keyspace(|state| {
                    state.catch_up();
                    state.databases[database].set(&key, value, Expiry::Never);
                    state.settle();
                });
                Ok(Reply::OK)
            }
        }
    }

    /// Waits for the reply to a command that blocks. The wait also ends at its deadline, and when the server shuts down.
    async fn wait(&self, peer: &Peer, client: u64, mut wait: Wait) -> Reply {
        let deadline = async {
            match wait.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        let unanswered = tokio::select! {
            biased;
            reply = &mut wait.answer => match reply {
                Ok(reply) => return reply,
                // The client was killed: its waiter is gone.
                Err(_) => return Reply::Null,
            },
            () = peer.stopping() => Some(Reply::error("UNBLOCKED the server is shutting down")),
            () = deadline => None,
        };
        // `DEBUG SLEEP` delays timeouts too, but not the end of the server.
        let mut state = if unanswered.is_none() { self.state_for_command().await } else { self.state() };
        // The reply may have come between the deadline and the lock.
        let reply = wait.answer.try_recv().ok();
        let waiter = state.waiters.remove(client);
        if let Some(client) = state.clients.get_mut(&client) {
            client.blocked = false;
        }
        reply.or(unanswered).or(waiter.map(|waiter| waiter.on_timeout)).unwrap_or(Reply::Null)
    }
}

impl Neighbour for Mutex<State> {
    fn deliver(&self, publication: &Publication) {
        let state = lock(self);
        let kind = if publication.sharded { Channel::Shard } else { Channel::Plain };
        state.subscriptions.publish(kind, &publication.channel, &publication.message, &state.clients);
    }

    fn topology_changed(&self) {
        lock(self).topology_changed();
    }
}

impl Default for Mock {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows neither the data nor the password.
impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock").finish_non_exhaustive()
    }
}

impl Handler for Mock {
    type Session = Session;

    fn session(&self, peer: &Peer) -> Session {
        let id = {
            let mut state = self.state();
            state.clients_seen += 1;
            state.clients_seen
        };
        self.join(id, peer)
    }

    async fn call(&self, peer: &mut Peer, session: &mut Session, command: Command) -> Result<Reply, Reply> {
        self.recorder.record(session.id, &command);
        if let Some((delay, action)) = self.rules.decide(&command) {
            if let Some(delay) = delay {
                tokio::select! {
                    () = sleep(delay) => {}
                    () = peer.stopping() => {}
                }
            }
            match action {
                Action::Run => {}
                Action::Reply(reply) => return Ok(reply),
                Action::Drop => {
                    peer.close_after_reply();
                    return Ok(Reply::Sequence(Vec::new()));
                }
            }
        }
        Ok(self.run(peer, session, command).await)
    }

    /// The mock answers all of Valkey's commands itself.
    fn basics(&self, _peer: &mut Peer, _session: &mut Session, _command: &Command) -> Option<Reply> {
        None
    }

    fn trusts(&self, session: &Session) -> bool {
        session.authenticated
    }
}

/// The number of the program itself among the clients, whose numbers begin with 1.
const PROGRAM: u64 = 0;

impl Mock {
    /// Adds a client. Its number is not that of the peer: several servers may share the mock, and each counts its own.
    fn join(&self, id: u64, peer: &Peer) -> Session {
        let mut state = self.state();
        let authenticated = state.settings.password().is_none();
        state.clients.insert(id, Client::new(id, peer, authenticated));
        Session::new(id, authenticated, self.state.clone())
    }

    async fn run(&self, peer: &mut Peer, session: &mut Session, command: Command) -> Reply {
        if let Some(member) = &self.member {
            member.behaviour.thawed().await;
        }
        let (reply, wait, transfer, stalled_until, publications, topology_changed) = {
            let mut state = self.state_for_command().await;
            let (reply, wait, transfer, stalled_until) = state.with_keyspace(|state| {
                let mut context = Context {
                    state,
                    peer,
                    client: session.id,
                    in_transaction: false,
                    wait: None,
                    transfer: None,
                    stalled_until: None,
                };
                let reply = commands::run(&mut context, &command);
                (reply, context.wait, context.transfer, context.stalled_until)
            });
            let publications = std::mem::take(&mut state.publications);
            let topology_changed = std::mem::take(&mut state.topology_changed);
            let Some(client) = state.clients.get_mut(&session.id) else { return reply };
            session.authenticated = client.authenticated;
            let at_once = wait.is_none() && transfer.is_none() && stalled_until.is_none();
            if at_once && publications.is_empty() && !topology_changed {
                return client.replies.let_through(reply);
            }
            (reply, wait, transfer, stalled_until, publications, topology_changed)
        };
        if let Some(member) = &self.member {
            for publication in &publications {
                member.bus.publish(member.index, publication);
            }
            if topology_changed {
                member.bus.announce();
            }
        }
        if let Some(until) = stalled_until {
            sleep_until(until).await;
        }
        let reply = match (wait, transfer) {
            (Some(wait), _) => self.wait(peer, session.id, wait).await,
            (None, Some(transfer)) => self.transfer(peer, transfer).await.unwrap_or_else(Reply::from),
            (None, None) => reply,
        };
        if let Some(member) = &self.member {
            // It may have been frozen while the command waited.
            member.behaviour.thawed().await;
        }
        match self.state().clients.get_mut(&session.id) {
            Some(client) => client.replies.let_through(reply),
            None => reply,
        }
    }
}

#[cfg(test)]
mod tests;
