//! [`Config`]: how a client behaves, whatever it is connected to.

use std::time::Duration;

use crate::reconnect::Backoff;

/// How a client behaves. [`Config::default`] works unedited; where it connects to is the
/// [`Endpoint`](crate::Endpoint)'s matter.
///
/// ```no_run
/// use std::time::Duration;
/// use valkey_rdma_client::{Client, Config};
///
/// # async fn example() -> Result<(), valkey_rdma_client::Error> {
/// let mut config = Config::default();
/// config.name("kv-writer").command_timeout(Duration::from_secs(2)).connections(2);
/// let client = Client::connect_with("rdma://10.0.0.7", &config).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) reconnect: Option<Backoff>,
    pub(crate) patience: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) connections: usize,
    pub(crate) name: Option<String>,
    pub(crate) peer_timeout: Option<Duration>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) close_timeout: Option<Duration>,
    pub(crate) tracking: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            reconnect: Some(Backoff::default()),
            patience: Some(Duration::from_secs(10)),
            retries: 3,
            command_timeout: Some(Duration::from_secs(30)),
            connections: 1,
            name: None,
            peer_timeout: Some(Duration::from_secs(20)),
            stall_timeout: Some(Duration::from_secs(30)),
            close_timeout: Some(Duration::from_secs(3)),
            tracking: false,
        }
    }
}

impl Config {
    /// The most connections of one client.
    pub const MAX_CONNECTIONS: usize = 64;

    /// How to come back after a lost connection; `None`: it stays lost, and every later call fails. Default: come
    /// back, with [`Backoff`]'s defaults, for as long as a client exists. The *first* connect is tried once either
    /// way, so that a wrong URL is told at once.
    pub fn reconnect(&mut self, backoff: impl Into<Option<Backoff>>) -> &mut Self {
        self.reconnect = backoff.into();
        self
    }

    /// How long a command waits for a connection while there is none; then it fails as not sent. Default 10 s.
    /// `None`: as long as its timeout lets it. Shorter tells callers of an outage sooner, longer hides longer ones.
    pub fn patience(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.patience = limit.into();
        self
    }

    /// How often a command is sent again after lost connections, if it cannot have run or is
    /// [idempotent](crate::Command::idempotent). Default 3. It keeps a command that ends connections from ending
    /// all of them.
    pub fn retries(&mut self, times: u32) -> &mut Self {
        self.retries = times;
        self
    }

    /// How long a command may take, from the call to its reply, waiting included. Default 30 s; `None`: for ever.
    /// Kept to within some milliseconds. [`Command::timeout`](crate::Command::timeout) sets it for one command.
    ///
    /// On connections of their own, making one has the endpoint's timeout beside it, each piece of a
    /// [streamed](crate::Client::stream_reply) value has this limit for itself, and
    /// [blocking](crate::Client::blocking_command) commands and [`Dedicated`](crate::Dedicated) have none.
    pub fn command_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.command_timeout = limit.into();
        self
    }

    /// Connections to share the commands out to, in turn. Default 1, range 1 to 64; values outside are brought to
    /// the nearest end. One carries more than a server's thread answers; more keep small commands from waiting
    /// behind large values, and cost pinned memory at both ends.
    pub fn connections(&mut self, count: usize) -> &mut Self {
        self.connections = count.clamp(1, Self::MAX_CONNECTIONS);
        self
    }

    /// The name of the connections in the server's CLIENT LIST (CLIENT SETNAME). Default: none. A server refuses
    /// names with blanks, and connecting then fails.
    pub fn name(&mut self, name: impl Into<String>) -> &mut Self {
        self.name = Some(name.into());
        self
    }

    /// How long a server may be silent on the lowest level before the connection counts as lost. Default 20 s;
    /// `None`: as the system has it, which for TCP can be hours, and for RDMA is never while nothing is sent.
    ///
    /// On RDMA it limits how long nothing at all arrives: servers send keepalives every 3 s, and so less than 9 s
    /// counts as 9 s. On TCP it sets keepalive probes (of 1 s to 9 h), and, on Linux, the limit for data that the
    /// server's machine does not take. A server that runs a single command for longer than this can count as lost on
    /// either: it sends no keepalives meanwhile, and reads nothing. Raise it where there are such commands.
    ///
    /// Valkey 8.0-rc1 sends no keepalives over RDMA: use `None` with it.
    ///
    /// Source: `VALKEY_RDMA_KEEPALIVE_MS` in Valkey's `rdma.c`; `TCP_USER_TIMEOUT` and `TCP_KEEPIDLE` in tcp(7).
    pub fn peer_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.peer_timeout = limit.into();
        self
    }

    /// How long a server may leave this side without a receive window while there is something to send, over RDMA; then
    /// the connection counts as lost. Default 30 s; `None`: no limit. At least 1 s: shorter limits count as 1 s.
    ///
    /// A server that has stopped reading can go on sending keepalives, so [`peer_timeout`](Self::peer_timeout) does not
    /// notice it. Shorter finds such a server earlier; longer spares one that is slow to take large values. On TCP,
    /// `peer_timeout` covers this case.
    pub fn stall_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.stall_timeout = limit.into().map(|limit| limit.max(Duration::from_secs(1)));
        self
    }

    /// How long [`Client::close`](crate::Client::close) waits for replies to commands already sent. Default 3 s; `None`:
    /// no limit. Then it ends the connections, and commands without a reply fail with
    /// [`Error::Lost`](crate::Error::Lost). Raise it where commands take longer than that.
    pub fn close_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.close_timeout = limit.into();
        self
    }

    pub(crate) fn tracking(&mut self, on: bool) -> &mut Self {
        self.tracking = on;
        self
    }
}
