//! [`Client`]: the handle that tasks share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout_at};
use valkey_rdma_resp::{FromValue, Value};

use crate::command::{Command, Commands, IntoCommand};
use crate::config::Config;
use crate::error::{Error, LostCause, LostConnection};
use crate::events::EventHub;
use crate::link::{Connector, IdlePool, Liveness};
use crate::link::{Multiplexer, ReplySink, Request, reply_channel};
use crate::runtime::Runtime;
use crate::stats::State;

mod attempt;
mod connect;
mod status;
mod together;

pub(crate) use self::attempt::{Attempt, FailedAttempt};

/// A connection shared by any number of tasks, or several connections. Cloning is cheap; every clone is the same
/// client.
///
/// Commands of different tasks that wait at the same time are sent together, and each task receives its own replies.
/// The server answers in order, so a slow command delays all later ones on its connection. Large values can have a
/// [connection of their own](Self::stream_reply); blocking commands (BLPOP, XREAD BLOCK) [need
/// one](Self::blocking_command), and WAIT needs [that of the writes](Self::dedicated).
///
/// # Commands that overtake
/// SCRIPT KILL, FUNCTION KILL, FUNCTION STATS, SHUTDOWN and CLIENT UNPAUSE never wait behind the commands that they end or describe: the
/// client sends them on a connection of their own. A busy server is slow to accept one: until its `busy-reply-threshold` has passed (5 s by
/// default), it answers no client. In a [`pipeline`](Self::pipeline) commands keep their order, so SCRIPT KILL and FUNCTION KILL are refused
/// there. CLIENT KILL is sent as any command, because it spares the connection that sends it, and so the commands of other tasks.
/// CLIENT UNBLOCK is too: what it ends has a connection of its own.
///
/// # State that tasks share
/// Commands that would change the connection for other tasks, or break it, are refused ([`Error::Refused`]), and the
/// error text names the alternative. These are SELECT, AUTH, HELLO with arguments, subscriptions, MONITOR, QUIT,
/// RESET, WATCH, READONLY, ASKING, replication commands, SCRIPT DEBUG, CLIENT TRACKING, REPLY, SETNAME, NO-EVICT and
/// similar, blocking commands, and MULTI outside a [`pipeline`](Self::pipeline) that also ends it.
///
/// # Lost connections
/// The client reconnects automatically, with growing waits ([`Config::reconnect`]). What happens to commands in flight
/// depends on the command:
/// - a command that cannot have run, only reads, or is marked [`idempotent`](Command::idempotent) is sent again on the next
///   connection, up to [`Config::retries`] times; so is a pipeline of such commands. A read may then see what later commands have
///   written;
/// - any other command fails with [`Error::Lost`], and [`Error::fate`] reports that it may have run.
///
/// New commands wait for the next connection, at most for [`Config::offline_timeout`]. Then they fail with the reason
/// why the client is not connected.
///
/// # Connections beside the shared one
/// A [blocking command](Self::blocking_command), a [`watch`](Self::watch) with its transaction, a [streamed
/// value](Self::stream_reply) and a [command that overtakes](Self#commands-that-overtake) have a connection to themselves while they last: 200 such calls at the same time are 200 connections,
/// and over RDMA each pins memory here and at the server. Afterwards the connection waits for the next such call, of whatever kind.
/// A client keeps all that it used within the last 10 s. It closes the others, except the two that were used last. A call that was dropped,
/// timed out or lost its connection leaves none. [`dedicated`](Self::dedicated) takes one that waits, too, and never gives it back.
///
/// # Runtime
/// All connections, and with them the time limits of commands, belong to the runtime that called `connect`: also those that blocking
/// commands, [`Dedicated`](crate::Dedicated) and [`Subscriber`](crate::Subscriber) open later, in whichever runtime they are called. Other runtimes
/// can use the client as long as that one runs. A current-thread runtime runs only within `block_on`: commands sent meanwhile wait,
/// whatever their limits. When that runtime is dropped, commands fail at once. Other executors can poll the calls of a client
/// too, except those of a [`Subscriber`](crate::Subscriber) and of a [`ClusterClient`](crate::ClusterClient): where these wait for time, they
/// panic outside of every tokio runtime.
///
/// # End
/// Dropping the last clone closes the connections; [`close`](Self::close) first waits for replies to commands already
/// sent. Over RDMA, outstanding replies are read in the background before the disconnect, until the server is silent for
/// 15 s, and for at most 600 s. Valkey 8.1.1 crashes if a client disconnects while a reply waits for its receive window.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

/// How much longer than allowed [`Client::close`] waits for tasks that may not run.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Names a [`Client`] without keeping it open. No later client has the same.
#[derive(Clone, Debug)]
pub(crate) struct ServerId(Weak<Inner>);

impl PartialEq for ServerId {
    fn eq(&self, other: &Self) -> bool {
        Weak::ptr_eq(&self.0, &other.0)
    }
}

struct Inner {
    multiplexers: Vec<Multiplexer>,
    /// The next connection in turn, if there are several.
    turn: AtomicUsize,
    connector: Arc<Connector>,
    pool: IdlePool,
    events: Arc<EventHub>,
    runtime: Runtime,
    liveness: Arc<Liveness>,
}

impl Server {
    /// Sends a command and returns its reply.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cmd;
    ///
    /// client.command(["SET", "greeting", "hello"]).await?;
    /// client.command(cmd!["SET", "greeting", b"hello", "EX", 60]).await?; // arguments of different types
    /// let greeting = client.command(["GET", "greeting"]).await?;
    /// assert_eq!(greeting.as_bytes(), Some(&b"hello"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Server`] if the reply is an error, [`Error::Lost`] or [`Error::TimedOut`] if no reply came,
    /// [`Error::Connect`] if there was no connection for too long, [`Error::Refused`] if the command cannot be sent on
    /// a shared connection or has no name.
    ///
    /// # Cancel safety
    /// Dropping the future discards the reply and never shifts the replies of others. The command may or may not run.
    pub async fn command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        self.execute(command.into_command()).await
    }

    /// Sends a command and converts its reply to a Rust type: see [`FromValue`] for what converts. `()` accepts every reply
    /// that is not an error.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cmd;
    ///
    /// let visits: i64 = client.query(cmd!["INCRBY", "visits", 5]).await?;
    /// let name = client.query::<Option<String>>(["GET", "name"]).await?;
    /// let () = client.query(["DEL", "name"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn query<T: FromValue>(&self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.execute(command).await?)?)
    }

    /// Does what [`command`](Self::command) does: the method that [`Execute`](crate::Execute) has too.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn execute(&self, command: Command) -> Result<Value, Error> {
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        if command.overtakes() && self.connector().can_connect() {
            return Box::pin(self.overtake(command)).await;
        }
        let (sender, reply) = reply_channel();
        let limit = self.config().limit(&command);
        let multiplexer = self.multiplexer();
        let request = Request::new(Commands::One(command), ReplySink::One(sender), limit);
        multiplexer.send(request)?;
        let waits = multiplexer.waits();
        let outcome = reply.await;
        waits.answered();
        Ok(outcome.unwrap_or_else(|_| Err(multiplexer.unanswered()))??)
    }

    /// Closes all connections of all clones, after the replies to every command sent so far. New commands, dedicated
    /// connections and subscribers are refused from now on; existing ones stay open. Returns when all connections have
    /// ended, including those of [readers dropped early](crate::ValueReader). Returns at once if already closed, or if the runtime that
    /// connected the client has shut down. Works outside of every runtime too.
    ///
    /// After [`Config::close_timeout`], connections end even without replies, and commands without a reply fail with
    /// [`Error::Lost`]. If the runtime that connected the client is not running, this returns 1 s later all the same; with a
    /// `close_timeout` of `None`, it then waits until that runtime runs.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing.
    pub async fn close(&self) {
        self.inner.pool.close();
        // A call that waits for the server finds out.
        self.connector().reached.send_replace(());
        let deadline = self.config().close_timeout.and_then(|limit| Instant::now().checked_add(limit));
        let ends: Vec<_> =
            self.inner.multiplexers.iter().map(|multiplexer| multiplexer.close(deadline)).collect();
        if self.is_closed() && self.connector().registry.drained().now_or_never().is_some() {
            // That runtime, whose clock would be used, may have shut down.
            return;
        }
        let ended = async {
            for end in ends {
                // Never sent to: dropped at the end.
                drop(end.await);
            }
        };
        let parted = self.connector().registry.drained();
        match deadline {
            None => {
                ended.await;
                parted.await;
            }
            Some(deadline) => {
                // They end at the deadline, unless nothing runs on their runtime.
                let late = deadline.checked_add(CLOSE_GRACE).unwrap_or(deadline);
                drop(self.runtime().timed(|| timeout_at(late, ended)).await);
                // The rest is drained in the background.
                drop(self.runtime().timed(|| timeout_at(deadline, parted)).await);
            }
        }
    }

    /// The error for a reply that does not come.
    pub(crate) fn lost_error(&self) -> LostConnection {
        let cause = Arc::new(LostCause::Stopped);
        LostConnection::new(self.first().state.peer.clone(), cause, true)
    }

    /// True if none of its connections has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.inner.multiplexers.iter().all(|multiplexer| multiplexer.state.is_online())
    }

    /// True if none of its connections is up, and it makes new ones.
    pub(crate) fn is_reconnecting(&self) -> bool {
        let states = || self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.state());
        states().all(|state| state != State::Connected) && states().any(|state| state == State::Reconnecting)
    }

    /// Ends the connections because the server is no longer the one to talk to.
    pub(crate) fn give_up(&self) {
        self.inner.multiplexers.iter().for_each(Multiplexer::give_up);
    }

    /// Names the client.
    pub(crate) fn id(&self) -> ServerId {
        ServerId(Arc::downgrade(&self.inner))
    }

    /// True if both are the same client.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The runtime of its connections.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.inner.runtime
    }

    /// Refuses new connections after [`close`](Self::close).
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.inner.pool.is_closed() {
            return Err(self.first().state.lost_error(&Arc::new(LostCause::Closed), false));
        }
        Ok(())
    }

    pub(crate) fn connector(&self) -> &Arc<Connector> {
        &self.inner.connector
    }

    pub(crate) fn config(&self) -> &Config {
        &self.inner.connector.config
    }

    pub(crate) fn pool(&self) -> &IdlePool {
        &self.inner.pool
    }

    /// Whether its server is still there.
    pub(crate) fn liveness(&self) -> &Arc<Liveness> {
        &self.inner.liveness
    }

    /// How many requests each connection's queue holds.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> Vec<usize> {
        self.inner.multiplexers.iter().map(Multiplexer::queued).collect()
    }

    fn first(&self) -> &Multiplexer {
        &self.inner.multiplexers[0]
    }

    /// The connection for the next request.
    fn multiplexer(&self) -> &Multiplexer {
        &self.inner.multiplexers[self.connection_in_turn()]
    }

    /// The number of the connection for the next request: each in turn, preferring connected ones.
    fn connection_in_turn(&self) -> usize {
        let multiplexers = &self.inner.multiplexers;
        if multiplexers.len() == 1 {
            return 0;
        }
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let mut in_turn = (0..multiplexers.len()).map(|step| turn.wrapping_add(step) % multiplexers.len());
        let online = in_turn.find(|number| multiplexers[*number].state.is_online());
        online.unwrap_or(turn % multiplexers.len())
    }
}
