//! A small Valkey in memory, for tests, trials and benchmarks.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{RwLock, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::client::{Client, Session};
use crate::commands;
use crate::state::State;
use crate::store::Database;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;
use valkey_rdma_server::{Handler, Peer};

/// A [`Handler`] that behaves like a small Valkey.
///
/// It keeps strings, lists, hashes, sets, sorted sets and streams in 16 databases, and knows expiry, transactions, publish and
/// subscribe, blocking commands and client-side caching. `COMMAND LIST` lists its commands. For every other command, put the
/// program `valkey-rdma-mock --proxy` in front of a real Valkey.
///
/// `DEBUG SLEEP` stalls the commands of all connections, as in a real, single-threaded server. Connections are still
/// accepted and their bytes are still read.
///
/// # Differences from Valkey
///
/// `tests/dialogues/` holds about 1000 commands with the replies of a real Valkey 9.1 in RESP2 and RESP3. The mock replies
/// with the same bytes. Known differences:
///
/// - No interpreter: `EVAL` fails, `EVALSHA` finds no script, and functions return nil. No modules, cluster or replication.
/// - Client-side caching works in the default mode of RESP3 only.
/// - `SCAN`, `SSCAN` and `HSCAN` return items in another order, and their cursors are small numbers. Sets of integers, and sets
///   and hashes too large for Valkey's compact form, have another order as well.
/// - `CLIENT LIST` and `INFO` have only the fields that have a meaning here. `COMMAND INFO` reports arity, keys, and whether a
///   command reads or writes.
/// - `DEBUG SLEEP` is always enabled and takes at most an hour. There is one user, `default`. Of the settings only
///   `requirepass` and `proto-max-bulk-len` have an effect. Memory is not limited.
/// - Expired keys are removed when the next command runs. Their invalidations are sent then.
/// - `SRANDMEMBER` with a negative count returns at most 1 048 576 items. A string has at most 512 MiB.
pub struct Mock {
    /// Each session has a clone, to take its client out when it ends.
    state: Arc<Mutex<State>>,
    /// Commands hold it shared while they run; `DEBUG SLEEP` holds it alone.
    stall: RwLock<()>,
}

impl Mock {
    /// An empty one, without password.
    pub fn new() -> Self {
        Self { state: Arc::new(Mutex::new(State::new())), stall: RwLock::new(()) }
    }

    /// Wants `AUTH password` before anything else. An empty password turns that off.
    pub fn requirepass(self, password: impl Into<Bytes>) -> Self {
        self.state().settings.set("requirepass", password.into());
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits for the answer to a command that blocks, or for its time to be up.
    async fn wait(&self, client: u64, mut wait: Wait, stopping: impl Future<Output = ()> + Send) -> Reply {
        let mut stopped = false;
        let answer = async {
            match wait.deadline {
                Some(deadline) => timeout_at(deadline, &mut wait.answer).await.ok(),
                None => Some((&mut wait.answer).await),
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = stopping => {
                stopped = true;
                None
            }
        };
        if let Some(Ok(reply)) = answer {
            return reply;
        }
        let mut state = self.state();
        // Answered in the moment between?
        let reply = wait.answer.try_recv().ok();
        let waiter = state.waiters.remove(client);
        if let Some(client) = state.clients.get_mut(&client) {
            client.blocked = false;
        }
        match reply {
            Some(reply) => reply,
            None if stopped => Reply::error("UNBLOCKED the server is shutting down"),
            None => waiter.map_or(Reply::Null, |waiter| waiter.in_vain),
        }
    }
}

impl Default for Mock {
    fn default() -> Self {
        Self::new()
    }
}

/// Tells neither what it stores nor its password.
impl fmt::Debug for Mock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mock").finish_non_exhaustive()
    }
}

impl Handler for Mock {
    type Session = Session;

    fn session(&self, peer: &Peer) -> Session {
        let mut state = self.state();
        state.clients_seen += 1;
        let authenticated = state.settings.password().is_none();
        let client = Client::new(peer, authenticated);
        state.clients.insert(peer.id(), client);
        Session::new(peer.id(), authenticated, self.state.clone())
    }

    async fn call(&self, peer: &mut Peer, session: &mut Session, command: Command) -> Reply {
        let (reply, wait, stall_for) = {
            // Free as a rule, and then taken without a turn in the runtime's queue.
            let _not_stalled = match self.stall.try_read() {
                Ok(guard) => guard,
                Err(_) => self.stall.read().await,
            };
            let mut state = self.state();
            let mut context = Context {
                state: &mut state,
                peer,
                client: session.id,
                in_transaction: false,
                wait: None,
                stall_for: None,
            };
            let reply = commands::run(&mut context, &command);
            let (wait, stall_for) = (context.wait, context.stall_for);
            if let Some(client) = state.clients.get(&session.id) {
                session.authenticated = client.authenticated;
            }
            if wait.is_none() && stall_for.is_none() {
                return commands::suppress(&mut state, session.id, reply);
            }
            (reply, wait, stall_for)
        };
        if let Some(duration) = stall_for {
            let _alone = self.stall.write().await;
            tokio::time::sleep(duration).await;
        }
        let reply = match wait {
            Some(wait) => self.wait(session.id, wait, peer.stopping()).await,
            None => reply,
        };
        commands::suppress(&mut self.state(), session.id, reply)
    }

    /// The mock answers all of Valkey's commands itself.
    fn basics(&self, _peer: &mut Peer, _session: &mut Session, _command: &Command) -> Option<Reply> {
        None
    }

    fn trusts(&self, session: &Session) -> bool {
        session.authenticated
    }
}

/// What a command may look at and change.
pub(crate) struct Context<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) peer: &'a mut Peer,
    /// Who runs it.
    pub(crate) client: u64,
    /// Between `MULTI` and `EXEC` nothing waits.
    pub(crate) in_transaction: bool,
    /// Set by a command that has to wait; its reply does not count then.
    pub(crate) wait: Option<Wait>,
    /// Set by a command that wants the whole server to stand still before its reply.
    pub(crate) stall_for: Option<Duration>,
}

/// How long a command waits for its answer.
pub(crate) struct Wait {
    pub(crate) answer: oneshot::Receiver<Reply>,
    pub(crate) deadline: Option<Instant>,
}

impl Context<'_> {
    pub(crate) fn client(&mut self) -> &mut Client {
        self.state.clients.get_mut(&self.client).expect("a client is known as long as its session lives")
    }

    /// The database selected by this connection.
    pub(crate) fn database(&mut self) -> &mut Database {
        let index = self.client().database;
        &mut self.state.databases[index]
    }
}

/// What a lock protects here is valid after every step, so a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As many as Valkey has by default.
pub(crate) const DATABASES: usize = 16;

/// The release whose answers are imitated.
pub(crate) const VALKEY_VERSION: &str = "9.1.2";

/// What that release calls itself towards clients that know only Redis.
pub(crate) const REDIS_VERSION: &str = "7.2.4";

#[cfg(test)]
mod tests;
