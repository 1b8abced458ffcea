//! [`Config`]: how a client behaves, and [`Backoff`]: the waits between attempts to reconnect.

use std::time::Duration;

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
    pub(crate) offline_timeout: Option<Duration>,
    pub(crate) retries: u32,
    pub(crate) command_timeout: Option<Duration>,
    pub(crate) connections: usize,
    pub(crate) name: Option<String>,
    pub(crate) keepalive_timeout: Option<Duration>,
    pub(crate) stall_timeout: Option<Duration>,
    pub(crate) close_timeout: Option<Duration>,
    pub(crate) tracking: bool,
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
            keepalive_timeout: Some(Duration::from_secs(20)),
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
    pub fn offline_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.offline_timeout = limit.into();
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
    pub fn keepalive_timeout(&mut self, limit: impl Into<Option<Duration>>) -> &mut Self {
        self.keepalive_timeout = limit.into();
        self
    }

    /// How long a server may leave this side without a receive window while there is something to send, over RDMA; then
    /// the connection counts as lost. Default 30 s; `None`: no limit. At least 1 s: shorter limits count as 1 s.
    ///
    /// A server that has stopped reading can go on sending keepalives, so [`keepalive_timeout`](Self::keepalive_timeout) does not
    /// notice it. Shorter finds such a server earlier; longer spares one that is slow to take large values. On TCP,
    /// `keepalive_timeout` covers this case.
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

/// A connection that has lived this long counts as stable: after its loss, the waits begin at the shortest again.
pub(crate) const STABLE_AFTER: Duration = Duration::from_secs(1);

/// Waits that grow from attempt to attempt, each cut short by chance, so that many clients of a restarted server do
/// not come back at the same moment.
///
/// The wait before attempt *n* (from 0) is drawn evenly from 0 to `min(max, first * 2^n)`.
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
    /// The longest wait before the first attempt. Default 100 ms.
    #[must_use]
    pub fn first(mut self, wait: Duration) -> Self {
        self.first = wait;
        self
    }

    /// The longest wait of all. Default 5 s. Longer spares a server that is down, and finds it later.
    #[must_use]
    pub fn max(mut self, wait: Duration) -> Self {
        self.max = wait;
        self
    }

    /// The longest wait before an attempt, counted from 0.
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
