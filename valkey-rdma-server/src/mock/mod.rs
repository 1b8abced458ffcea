//! A small Valkey in memory, for tests, trials and benchmarks.

mod args;
mod commands;
mod config;
mod database;
mod failure;
mod glob;
mod session;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::RwLock;
use tokio::time::Instant;

use crate::command::Command;
use crate::handler::{Handler, Peer};
use crate::reply::Reply;
use config::Settings;
use database::Database;
use session::Session;

/// A [`Handler`] that keeps strings with expiry in 16 databases and answers as Valkey does, to the letter where clients
/// may look at the letters.
///
/// Enough for clients to connect (`HELLO`, `AUTH`, `CLIENT`, `COMMAND`, `CONFIG`, `INFO`), and for the ping, set, get, incr and
/// mset tests of `valkey-benchmark`. `COMMAND` lists what it knows. Nothing is evicted and nothing is written to disk.
///
/// `DEBUG SLEEP` stalls the commands of **all** connections, as it does in a real, single-threaded server;
/// connections are still accepted and their bytes taken in.
pub struct Mock {
    databases: [Mutex<Database>; DATABASES],
    settings: Mutex<Settings>,
    /// Commands hold it shared while they run; `DEBUG SLEEP` holds it alone.
    stall: RwLock<()>,
    started: Instant,
    sessions_started: AtomicU64,
    commands_run: AtomicU64,
    /// Each session has a clone, so that the count of them is the count of sessions.
    connected: Arc<()>,
}

impl Mock {
    /// An empty one, without password.
    pub fn new() -> Self {
        Self {
            databases: Default::default(),
            settings: Mutex::default(),
            stall: RwLock::new(()),
            started: Instant::now(),
            sessions_started: AtomicU64::new(0),
            commands_run: AtomicU64::new(0),
            connected: Arc::new(()),
        }
    }

    /// Wants `AUTH password` before anything else. An empty password turns that off.
    pub fn requirepass(self, password: impl Into<Bytes>) -> Self {
        self.settings().set("requirepass", password.into());
        self
    }

    fn settings(&self) -> MutexGuard<'_, Settings> {
        lock(&self.settings)
    }

    fn database(&self, index: usize) -> MutexGuard<'_, Database> {
        let mut database = lock(&self.databases[index]);
        database.forget_expired();
        database
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

    fn session(&self, _peer: &Peer) -> Session {
        self.sessions_started.fetch_add(1, Ordering::Relaxed);
        Session::new(self.settings().password().is_none(), self.connected.clone())
    }

    async fn call(&self, peer: &mut Peer, session: &mut Session, command: Command) -> Reply {
        let mut context = Context { mock: self, peer, session, stall_for: None };
        let reply = {
            let _not_stalled = self.stall.read().await;
            self.commands_run.fetch_add(1, Ordering::Relaxed);
            commands::run(&mut context, &command)
        };
        if let Some(duration) = context.stall_for {
            let _alone = self.stall.write().await;
            tokio::time::sleep(duration).await;
        }
        reply
    }

    fn trusts(&self, session: &Session) -> bool {
        session.authenticated
    }
}

/// What a command may look at and change.
struct Context<'a> {
    mock: &'a Mock,
    peer: &'a mut Peer,
    session: &'a mut Session,
    /// Set by a command that wants the whole server to stand still before its reply.
    stall_for: Option<Duration>,
}

impl Context<'_> {
    /// The database selected by this connection.
    fn database(&self) -> MutexGuard<'_, Database> {
        self.mock.database(self.session.database)
    }
}

/// What a lock protects here is valid after every step, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As many as Valkey has by default.
const DATABASES: usize = 16;

/// The release whose answers are imitated.
const VALKEY_VERSION: &str = "9.1.2";

/// What that release calls itself towards clients that know only Redis.
const REDIS_VERSION: &str = "7.2.4";

#[cfg(test)]
mod tests;
