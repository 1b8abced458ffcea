//! [`Client`]: the handle that tasks share, of one server, of a Sentinel service or of a cluster.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use valkey_rdma_resp::{FromValue, Value};

use crate::cluster::Cluster;
use crate::command::IntoCommand;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::events::ConnectionEvents;
use crate::server::Server;
use crate::spans::Call;
use crate::stats::{ConnectionInfo, ConnectionStatus, Counters};

mod connect;
mod dedicated;

/// A client of one server, of the primary that Sentinels report, or of a cluster: its [`Endpoint`] decides. Cloning is cheap; every
/// clone is the same client, and any number of tasks may share it.
///
/// Commands of different tasks that wait at the same time are sent together, and each task receives its own replies.
/// A server answers in order, so a slow command delays all later ones on its connection. Large values can have a
/// [connection of their own](Self::stream_reply); blocking commands (BLPOP, XREAD BLOCK) [need
/// one](Self::blocking_command), and WAIT needs [that of the writes](Self::dedicated).
///
/// A client of a cluster sends each command to the node of its keys: see [`cluster`](crate::cluster). What only a cluster has is behind
/// [`cluster`](Self::cluster).
///
/// # Commands that overtake
/// SCRIPT KILL, FUNCTION KILL, FUNCTION STATS, SHUTDOWN and CLIENT UNPAUSE never wait behind the commands that they end or describe: the
/// client sends them on a connection of their own. A busy server is slow to accept one: until its `busy-reply-threshold` has passed (5 s by
/// default), it answers no client. In a [`pipeline`](Self::pipeline) commands keep their order, so SCRIPT KILL and FUNCTION KILL are refused
/// there. CLIENT KILL is sent as any command, because it spares the connection that sends it, and so the commands of other tasks.
/// CLIENT UNBLOCK is too: what it ends has a connection of its own. In a cluster, these and CLIENT UNPAUSE need
/// [a node](crate::cluster::Cluster::command_on).
///
/// # State that tasks share
/// Commands that would change the connection for other tasks, or break it, are refused ([`Error::Refused`]), and the
/// error text names the alternative. These are SELECT, AUTH, HELLO with arguments, subscriptions, MONITOR, QUIT,
/// RESET, WATCH, READONLY, ASKING, replication commands, SCRIPT DEBUG, CLIENT TRACKING, REPLY, SETNAME, NO-EVICT and
/// similar, blocking commands, and MULTI outside a [`pipeline`](Self::pipeline) that also ends it.
///
/// # Lost connections
/// The client reconnects automatically, with growing waits ([`Config::reconnect`](crate::Config::reconnect)). What happens to commands in flight
/// depends on the command:
/// - a command that cannot have run, only reads, or is marked [`idempotent`](crate::Command::idempotent) is sent again on the next
///   connection, up to [`Config::retries`](crate::Config::retries) times; so is a pipeline of such commands. A read may then see what later commands have
///   written;
/// - any other command fails with [`Error::Lost`], and [`Error::fate`] reports that it may have run.
///
/// New commands wait for the next connection, at most for [`Config::offline_timeout`](crate::Config::offline_timeout). Then they fail with the reason
/// why the client is not connected.
///
/// # Connections beside the shared one
/// A [blocking command](Self::blocking_command), also in a [`transaction`](Self::transaction), a [`watch`](Self::watch) with its transaction, a
/// [streamed value](Self::stream_reply) and a [command that overtakes](Self#commands-that-overtake) have a connection to themselves while they
/// last: 200 such calls at the same time are 200 connections, and over RDMA each pins memory here and at the server. Afterwards the connection
/// waits for the next such call. Over RDMA, streamed values have [longer buffers](crate::Config::side_buffers) than the others, and
/// connections of their own.
/// A client keeps all that it used within the last 10 s, for each server. It closes the others, except the two that were used last. A call that
/// was dropped, timed out or lost its connection leaves none. [`dedicated`](Self::dedicated) takes one that waits, too, and never gives it back.
///
/// # Runtime
/// All connections, and with them the time limits of commands, belong to the runtime that called `connect`: also those that blocking
/// commands, [`Dedicated`](crate::Dedicated) and [`Subscriber`](crate::Subscriber) open later, in whichever runtime they are called. Other runtimes
/// can use the client as long as that one runs. A current-thread runtime runs only within `block_on`: commands sent meanwhile wait,
/// whatever their limits. When that runtime is dropped, commands fail at once. Other executors can poll the calls of a client
/// too, except those of a [`Subscriber`](crate::Subscriber) and of a client of a cluster: where these wait for time, they
/// panic outside of every tokio runtime.
///
/// # End
/// Dropping the last clone closes the connections; [`close`](Self::close) first waits for replies to commands already
/// sent. Over RDMA, outstanding replies are read in the background before the disconnect, until the server is silent for
/// 15 s, and for at most 600 s. Valkey 8.1.1 crashes if a client disconnects while a reply waits for its receive window.
#[derive(Clone)]
pub struct Client {
    pub(crate) deployment: Deployment,
}

/// What a client talks to.
#[derive(Clone)]
pub(crate) enum Deployment {
    /// One server at a time: also the primary of a Sentinel service.
    Server(Server),
    Cluster(Cluster),
}

impl Client {
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
    /// a shared connection or has no name. In a cluster, [`Error::Cluster`] if the keys belong to different slots or no node serves them.
    ///
    /// # Cancel safety
    /// Dropping the future discards the reply and never shifts the replies of others. The command may or may not run.
    pub async fn command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        let command = command.into_command();
        let call = Call::command(self.endpoint(), &command);
        match &self.deployment {
            Deployment::Server(server) => call.run(server.execute(command)).await,
            Deployment::Cluster(cluster) => call.run(cluster.execute(command)).await,
        }
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
        Ok(name.convert(self.command(command).await?)?)
    }

    /// The cluster, if the client talks to one: its state, its nodes, and commands for a node by name.
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::Client) {
    /// if let Some(cluster) = client.cluster() {
    ///     println!("{}", cluster.status());
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.deployment {
            Deployment::Server(_) => None,
            Deployment::Cluster(cluster) => Some(cluster),
        }
    }

    /// What the client was given: one server, [Sentinels](Endpoint::sentinels) or a [cluster](Endpoint::is_cluster).
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        match &self.deployment {
            Deployment::Server(server) => server.endpoint(),
            Deployment::Cluster(cluster) => cluster.endpoint(),
        }
    }

    /// Describes the (first) connection. After a reconnect the description may differ. In a cluster, it is that of a node that is
    /// connected, or was last: [`Cluster::status`] has all.
    #[must_use]
    pub fn info(&self) -> Arc<ConnectionInfo> {
        match &self.deployment {
            Deployment::Server(server) => server.info(),
            Deployment::Cluster(cluster) => cluster.info(),
        }
    }

    /// True if at least one shared connection is up. Otherwise commands wait for one, at most for
    /// [`Config::offline_timeout`](crate::Config::offline_timeout).
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.servers().iter().any(Server::is_connected)
    }

    /// The counters of the shared connections, summed. In a cluster, those of the connections that the nodes have now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.servers().iter().for_each(|server| sum.add(&server.counters()));
        sum
    }

    /// Each connection: shared ones first, then dedicated, bulk, subscriber, idle and draining ones; in a cluster, node by node. With its
    /// state, a description, and the counters of client and transport. The `Display` form resembles the reply to INFO:
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::Client) {
    /// for connection in client.connections() {
    ///     println!("{connection}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        self.servers().iter().flat_map(Server::connections).collect()
    }

    /// What happens to the shared connections from now on: lost, restored, over TCP instead of RDMA, closed; and in a cluster, which nodes are
    /// primaries. The first events describe the connections that are up. Keeping the events does not keep the client open.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) {
    /// let mut events = client.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("{event}"); // 10.0.0.2:6379: connection 0 lost: the peer closed it
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> ConnectionEvents {
        match &self.deployment {
            Deployment::Server(server) => server.events(),
            Deployment::Cluster(cluster) => cluster.events(),
        }
    }

    /// True if the client has ended: closed, lost with reconnecting disabled, or its runtime has shut down.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        match &self.deployment {
            Deployment::Server(server) => server.is_closed(),
            Deployment::Cluster(cluster) => cluster.is_closed(),
        }
    }

    /// Closes all connections of all clones, after the replies to every command sent so far. New commands, dedicated
    /// connections and subscribers are refused from now on; existing ones stay open, but the subscribers of a cluster end. Returns when all
    /// connections have ended, including those of [readers dropped early](crate::ValueReader). Returns at once if already closed, or if the runtime that
    /// connected the client has shut down. Works outside of every runtime too.
    ///
    /// After [`Config::close_timeout`](crate::Config::close_timeout), connections end even without replies, and commands without a reply fail with
    /// [`Error::Lost`]. If the runtime that connected the client is not running, this returns 1 s later all the same; with a
    /// `close_timeout` of `None`, it then waits until that runtime runs.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing.
    pub async fn close(&self) {
        match &self.deployment {
            Deployment::Server(server) => server.close().await,
            Deployment::Cluster(cluster) => cluster.close().boxed().await,
        }
    }

    /// The only server.
    #[cfg(test)]
    pub(crate) fn server(&self) -> &Server {
        match &self.deployment {
            Deployment::Server(server) => server,
            Deployment::Cluster(cluster) => panic!("a cluster: {cluster:?}"),
        }
    }

    /// The servers that have, or had, connections: the only one, or the nodes that are connected.
    pub(crate) fn servers(&self) -> Vec<Server> {
        match &self.deployment {
            Deployment::Server(server) => vec![server.clone()],
            Deployment::Cluster(cluster) => cluster.servers(),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", self.endpoint())
            .field("info", &self.info())
            .field("connected", &self.is_connected())
            .finish()
    }
}
