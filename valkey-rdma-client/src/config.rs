//! [`Config`]: how a client behaves, and [`Backoff`]: the waits between attempts to reconnect.

use std::future::Future;
use std::time::Duration;

use valkey_rdma_transport::Config as TransportConfig;

use crate::command::Command;

mod cluster;
mod credentials;
mod read_from;

pub(crate) use self::cluster::ClusterConfig;
pub use self::credentials::Credentials;
pub(crate) use self::credentials::CredentialsProvider;
pub use self::read_from::{ReadCandidate, ReadFrom};

/// Settings of a client. [`Config::default`] works unedited; the address to connect to is set by the
/// [`Endpoint`](crate::Endpoint).
///
/// ```no_run
/// use std::time::Duration;
/// use valkey_rdma_client::{Client, Config};
///
/// # async fn example() -> Result<(), valkey_rdma_client::Error> {
/// let config = Config::default().name("kv-writer").command_timeout(Duration::from_secs(2)).connections(2);
/// let client = Client::connect_with("rdma://10.0.0.7", &config).await?;
/// # Ok(())
/// # }
/// ```
///
/// In a cluster, these are the settings of the connections to each node, and of commands. A node's connections are made when the first command
/// needs them. [`offline_timeout`](Self::offline_timeout) then limits how long a command waits for a shard without a reachable primary.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) reconnect: Option<Backoff>,
    pub(crate) offline_timeout: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) connections: usize,
    pub(crate) name: Option<String>,
    /// In place of the endpoint's login.
    pub(crate) credentials: Option<CredentialsProvider>,
    pub(crate) keepalive_timeout: Option<Duration>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) close_timeout: Option<Duration>,
    pub(crate) transport: TransportConfig,
    pub(crate) side_buffers: u32,
    pub(crate) tracking: bool,
    /// Allows a replica of a cluster to answer reads: READONLY.
    pub(crate) read_replicas: bool,
    /// Of clients of clusters only.
    pub(crate) cluster: ClusterConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reconnect: Some(Backoff::default()),
            offline_timeout: Some(Duration::from_secs(10)),
            retries: 3,
            command_timeout: Some(Duration::from_secs(30)),
            connections: 1,
            name: None,
            credentials: None,
            keepalive_timeout: Some(Duration::from_secs(20)),
            stall_timeout: Some(Duration::from_secs(30)),
            close_timeout: Some(Duration::from_secs(3)),
            transport: TransportConfig::default(),
            side_buffers: *TransportConfig::URL_RX_SIZES.start(),
            tracking: false,
            read_replicas: false,
            cluster: ClusterConfig::default(),
        }
    }
}

impl Config {
    /// Upper limit of [`connections`](Self::connections).
    pub const MAX_CONNECTIONS: usize = 64;

    /// Reconnect policy. `None` disables reconnecting: once lost, a connection stays lost, and later calls fail.
    /// Default: reconnect with [`Backoff`]'s defaults for as long as the client exists. The first connect is always
    /// tried once only, so that a wrong URL is reported at once. The client of a cluster always connects to its nodes again; for it, `None`
    /// means the default.
    #[must_use]
    pub fn reconnect(mut self, backoff: impl Into<Option<Backoff>>) -> Self {
        self.reconnect = backoff.into();
        self
    }

    /// How long a command may wait while disconnected before it fails as not sent. Default 10 s; `None`: until the
    /// command's own timeout. A server that reads its data after a restart counts as disconnected, until it stops answering PING
    /// with LOADING. If the server refuses the login, commands fail at the next attempt. Shorter reports outages earlier; longer
    /// hides longer outages.
    #[must_use]
    pub fn offline_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.offline_timeout = limit.into();
        self
    }

    /// How often a command is sent again after lost connections, if it cannot have run, only reads, or is
    /// [idempotent](crate::Command::idempotent). Default 3. The limit keeps a command that crashes servers from ending
    /// every connection. 0: nothing is sent again.
    #[must_use]
    pub fn retries(mut self, times: u32) -> Self {
        self.retries = times;
        self
    }

    /// How long a command may take, from the call to its reply, including waiting. Default 30 s; `None`: no limit.
    /// Precision: some milliseconds; some tenths of a second if 100 000 commands wait to be sent. [`Command::timeout`](crate::Command::timeout) sets it for one command.
    ///
    /// On dedicated connections, connecting has the endpoint's timeout in addition. Each piece of a
    /// [streamed](crate::Client::stream_reply) value has this limit. [Blocking](crate::Client::blocking_command)
    /// commands and [`Dedicated`](crate::Dedicated) have no limit by default. The limit needs the [runtime](crate::Client#runtime)
    /// that connected to run.
    #[must_use]
    pub fn command_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.command_timeout = limit.into();
        self
    }

    /// Number of connections that share the commands, in turn. Default 1, range 1 to 64; values outside are clamped.
    /// One connection carries more than a server thread answers. More keep small commands from waiting behind large
    /// values, and cost pinned memory at both ends.
    #[must_use]
    pub fn connections(mut self, count: usize) -> Self {
        self.connections = count.clamp(1, Self::MAX_CONNECTIONS);
        self
    }

    /// Name of the connections in the server's CLIENT LIST (CLIENT SETNAME). Default: none. Servers refuse names with
    /// blanks; connecting then fails. The connections of a user who may not run the command have no name, nor have those through a proxy
    /// that closes a connection at it.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Supplies the user and the password of each connection, in place of the login in the [`Endpoint`](crate::Endpoint): for
    /// passwords that change, such as the tokens of a cloud. Default: none. A file with the password needs no function, see
    /// [`Endpoint::with_password_file`](crate::Endpoint::with_password_file).
    ///
    /// The client calls `provider` for every connection that it makes: the first one, those after a loss, those beside it, and those to
    /// each node of a cluster. The endpoint's timeout limits the call too, so a slow provider should keep what it has fetched. If the
    /// server refuses the password, the client calls `provider` again, and tries other credentials at once. Connections that
    /// are logged in stay. Sentinels have their own login, which `provider` does not supply.
    ///
    /// ```
    /// use valkey_rdma_client::{Config, Credentials};
    ///
    /// # async fn fetch_token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// let config = Config::default().credentials(|| async { Ok::<_, std::io::Error>(Credentials::new("app", fetch_token().await?)) });
    /// ```
    ///
    /// # Errors
    /// An error of `provider` fails the connect with [`ConnectCause::Password`](crate::ConnectCause::Password), whose text has the text of that
    /// error. A lost connection is tried again later.
    ///
    /// # Cancel safety
    /// The future is dropped when the time of the connect is up.
    #[must_use]
    pub fn credentials<F, E>(mut self, provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.credentials = Some(CredentialsProvider::new(provider));
        self
    }

    /// How long a server may be silent before the connection counts as lost. Default 20 s; `None`: the system's limit,
    /// which can be hours on TCP, and no limit on RDMA while nothing is sent.
    ///
    /// On RDMA, this limits the time without any message. Servers send keepalives every 3 s, so values below 9 s count
    /// as 9 s. On TCP, it sets keepalive probes (1 s to 9 h) and, on Linux, the limit for unacknowledged data. A
    /// server that runs one command for longer than this may count as lost on either transport, because it neither
    /// sends keepalives nor reads meanwhile. Raise the limit where such commands are used.
    ///
    /// On TCP the kernel of the server's machine answers the probes, also for a server process that is frozen. Commands end by their own
    /// limits then. What waits without one is ended with [`LostCause::Silent`](crate::LostCause::Silent) when the server leaves a PING
    /// unanswered for this long (at least 1 s). When a blocking call has waited for half of this limit, the client sends a PING on the
    /// shared connection, or on a new one if that is lost. One PING is for all blocking calls of a client. A
    /// [`Subscriber`](crate::Subscriber) that receives nothing sends its own, after half of this limit to all of it.
    ///
    /// Valkey 8.0-rc1 sends no keepalives over RDMA: use `None` with it.
    ///
    /// Source: `VALKEY_RDMA_KEEPALIVE_MS` in Valkey's `rdma.c`; `TCP_USER_TIMEOUT` and `TCP_KEEPIDLE` in tcp(7).
    #[must_use]
    pub fn keepalive_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.keepalive_timeout = limit.into();
        self
    }

    /// How long data may wait for the server's next receive window over RDMA before the connection counts as lost.
    /// Default 30 s; `None`: no limit. Values below 1 s count as 1 s.
    ///
    /// A server that has stopped reading may still send keepalives, so [`keepalive_timeout`](Self::keepalive_timeout)
    /// does not detect it. Shorter detects such servers earlier; longer tolerates servers that take large values
    /// slowly. On TCP, `keepalive_timeout` covers data that finds no room at the server (`TCP_USER_TIMEOUT` in tcp(7)).
    #[must_use]
    pub fn stall_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.stall_timeout = limit.into().map(|limit| limit.max(Duration::from_secs(1)));
        self
    }

    /// How long [`Client::close`](crate::Client::close) waits for the replies to earlier commands. Those that wait to be sent are
    /// sent first. Default 3 s; `None`: no limit. Then the connections end, and commands without a reply fail with
    /// [`Error::Lost`](crate::Error::Lost). Raise it where commands take longer.
    #[must_use]
    pub fn close_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.close_timeout = limit.into();
        self
    }

    /// Settings of the transport over RDMA and the emulated device: send buffer, number of receive buffers, polling, completion
    /// queues. Options of the [`Endpoint`](crate::Endpoint) take precedence. Time limits of connecting, keepalive and stalls are
    /// this configuration's and the endpoint's. TCP ignores all of them.
    ///
    /// ```
    /// use valkey_rdma_client::{Config, transport};
    ///
    /// let device = transport::Config::default().send_buffer(4 << 20);
    /// let config = Config::default().transport(device);
    /// ```
    #[must_use]
    pub fn transport(mut self, config: TransportConfig) -> Self {
        self.transport = config;
        self
    }

    /// Length in bytes of the windows and of the send buffer of connections for blocking commands, WATCH, commands that overtake others,
    /// direct transfers, and subscribers, over RDMA and the emulated device. Default 64 KiB, which pins 225 KiB for each connection; range 64 KiB to
    /// 16 MiB, values outside are clamped. Buffers that the [endpoint](crate::Endpoint) or [`transport`](Self::transport) make
    /// shorter stay so. `side_buffers=` in the URL replaces it.
    ///
    /// Longer values pass in pieces. Longer buffers save round trips where such connections carry large values, and pin more memory,
    /// here and on the server. Shared connections, [`Dedicated`](crate::Dedicated) ones and streamed values have the buffers of the
    /// endpoint.
    #[must_use]
    pub fn side_buffers(mut self, bytes: u32) -> Self {
        let sizes = TransportConfig::URL_RX_SIZES;
        self.side_buffers = bytes.clamp(*sizes.start(), *sizes.end());
        self
    }

    /// Asks for invalidation messages on shared connections. A [`Cache`](crate::Cache) does that itself. Other clients drop the
    /// messages: this is for the load tool, which measures what they cost.
    #[doc(hidden)]
    #[must_use]
    pub fn tracking(mut self, on: bool) -> Self {
        self.tracking = on;
        self
    }

    /// How long a command without a limit of its own waits for a connection.
    pub(crate) fn patience(&self) -> Option<Duration> {
        [self.offline_timeout, self.command_timeout].into_iter().flatten().min()
    }

    /// How long a command may take.
    pub(crate) fn limit(&self, command: &Command) -> Option<Duration> {
        command.limit().or(self.command_timeout)
    }

    /// How long commands sent together may take: the longest limit that one of them has.
    pub(crate) fn limit_together(&self, commands: &[Command]) -> Option<Duration> {
        commands.iter().filter_map(Command::limit).max().or(self.command_timeout)
    }
}

/// A connection that lived this long counts as stable: after its loss, the waits start from the shortest again.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Waits between attempts to reconnect. They grow from attempt to attempt and are randomised, so that the clients of a
/// restarted server do not all reconnect at the same moment.
///
/// The wait before attempt *n* (from 0) is uniformly random between 0 and `min(max, first * 2^n)`. A connection that ends within
/// 1 s counts as a failed attempt: a server or proxy that ends each one soon meets growing waits too.
///
/// While a command waits, no wait is longer than half of [`Config::offline_timeout`], or of [`Config::command_timeout`] if that is
/// shorter, but not shorter than `first` for that: with short limits, each command meets an attempt before it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), max: Duration::from_secs(5) }
    }
}

impl Backoff {
    /// Upper limit of the wait before the first attempt. Default 100 ms.
    #[must_use]
    pub fn first(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// Upper limit of all waits. Default 5 s. Longer spares a server that is down, and finds it later.
    #[must_use]
    pub fn max(mut self, wait: Duration) -> Self {
        self.max = wait;
        self
    }

    /// How long a wait lasts at least, where commands wait for `patience` at most: half of that, so that each command meets an attempt.
    pub(crate) fn step(&self, patience: Duration) -> Duration {
        (patience / 2).max(self.first).max(Duration::from_millis(1))
    }

    /// Upper limit of the wait before an attempt, counted from 0.
    fn ceiling(&self, attempt: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(attempt)).min(self.max)
    }

    /// The wait before an attempt, counted from 0.
    pub(crate) fn wait(&self, attempt: u32) -> Duration {
        self.ceiling(attempt).mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff::default();
        let ceilings = [0, 1, 2, 5, 6, 40, u32::MAX].map(|attempt| backoff.ceiling(attempt).as_millis());
        assert_eq!(ceilings, [100, 200, 400, 3200, 5000, 5000, 5000]);
    }

    #[test]
    fn waits_stay_below_their_ceiling_and_differ() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..100).map(|_| backoff.wait(3)).collect();
        assert!(waits.iter().all(|wait| *wait <= backoff.ceiling(3)));
        assert!(waits.iter().any(|wait| *wait != waits[0]));
        assert_eq!(Backoff::default().first(Duration::MAX).max(Duration::ZERO).wait(7), Duration::ZERO);
    }
}
