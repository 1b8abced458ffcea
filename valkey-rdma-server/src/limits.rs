//! [`Limits`]: how much one peer may use, and how many there may be.

use std::time::Duration;

/// Limits of a [`Server`](crate::Server). `Limits::default()` works unedited.
///
/// All but [`max_connections`](Self::max_connections) and [`direct_limit_of_all`](Self::direct_limit_of_all) are limits of one connection. Together, the connections may use
/// `max_connections` times as much: the memory of their commands, replies and messages has no common limit.
#[derive(Debug, Clone)]
pub struct Limits {
    pub(crate) max_connections: usize,
    pub(crate) max_argument_len: usize,
    pub(crate) input_limit: usize,
    pub(crate) output_high_water: usize,
    pub(crate) push_limit: usize,
    pub(crate) direct_limit: usize,
    pub(crate) direct_limit_of_all: usize,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) tcp_keepalive: Option<Duration>,
    pub(crate) drain_timeout: Duration,
}

impl Limits {
    /// Connections served at once, over all listeners. Default 10 000 (Valkey's `maxclients`).
    ///
    /// A connection above the limit gets `-ERR max number of clients reached` and is closed. If more than 16 such
    /// connections wait for that at once, the others are closed (TCP) or rejected (RDMA) without a reply. A connection counts
    /// until its stream is closed. With TLS, it counts from the begin of its handshake, which may take 10 s; a connection above the limit
    /// has 1 s for the handshake, and is closed without a reply otherwise.
    ///
    /// Over RDMA each connection pins [`TransportConfig::pinned_bytes`](crate::TransportConfig::pinned_bytes), 3.1 MiB
    /// at most by default, also while it is refused with a reply; a rejected peer causes no memory to be pinned. The
    /// operating system's limit of locked memory is usually reached before this limit;
    /// [`TransportConfig::max_pinned_bytes`](crate::TransportConfig::max_pinned_bytes) sets a lower one.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.max_connections = count;
        self
    }

    /// Longest argument of a command, in bytes. Default 512 MiB (Valkey's `proto-max-bulk-len`).
    ///
    /// A longer one is answered with `-ERR Protocol error: invalid bulk length`, and the connection is closed.
    #[must_use]
    pub fn max_argument_len(mut self, len: usize) -> Self {
        self.max_argument_len = len;
        self
    }

    /// Bytes of one connection that are received and not yet passed to the handler: the command being received, and
    /// commands that wait because [replies pile up](Self::output_high_water).
    /// Default 1 GiB (Valkey's `client-query-buffer-limit`); at most 1 MiB for peers that the handler does not
    /// [trust](crate::Handler::trusts).
    ///
    /// A connection that exceeds it is closed and the reason logged, so this is also the size of the largest command. Each word of a
    /// command counts 32 bytes more than it has; the number of words has no lower limit than Valkey's, 2 147 483 647.
    /// A lower limit closes clients sooner that write a long pipeline before they read; a higher limit lets one client take
    /// more memory.
    #[must_use]
    pub fn input_limit(mut self, len: usize) -> Self {
        self.input_limit = len;
        self
    }

    /// Bytes of unsent replies above which the connection's further commands wait. Default 1 MiB, at least 1.
    ///
    /// The connection is still *read*. Blocking clients write a whole pipeline before they read its first reply; a server
    /// that stopped reading would wait for them while they wait for the server. Waiting commands are kept in their encoded
    /// form, up to [`input_limit`](Self::input_limit). So unsent replies never take more than this plus one reply, and no
    /// pipeline deadlocks.
    ///
    /// A lower value sends large replies in more and smaller batches; with a higher value a slow reader holds more memory.
    #[must_use]
    pub fn output_high_water(mut self, len: usize) -> Self {
        self.output_high_water = len.max(1);
        self
    }

    /// Bytes of messages from a [`Pusher`](crate::Pusher) that may wait for one connection. Default 32 MiB (Valkey's
    /// `client-output-buffer-limit pubsub`).
    ///
    /// A connection whose peer does not read its messages is closed at this limit. So one connection never holds more than
    /// this, [`output_high_water`](Self::output_high_water), one reply and [`input_limit`](Self::input_limit) together.
    #[must_use]
    pub fn push_limit(mut self, len: usize) -> Self {
        self.push_limit = len;
        self
    }

    /// Bytes of one connection that a [direct transfer](crate::Direct) has in flight. Default 16 MiB, at least 1. Longer
    /// ranges are transferred in pieces of half of that, of which two are in flight. A range of less than 1 KiB counts as 1 KiB.
    ///
    /// With a higher limit, a connection may hold more of what it sends.
    #[must_use]
    pub fn direct_limit(mut self, len: usize) -> Self {
        self.direct_limit = len.max(1);
        self
    }

    /// Bytes that the direct transfers of all connections have in flight together. Default 1 GiB, at least 1. Transfers wait for
    /// those before them.
    #[must_use]
    pub fn direct_limit_of_all(mut self, len: usize) -> Self {
        self.direct_limit_of_all = len.max(1);
        self
    }

    /// Time after which an idle connection is closed, over any transport. Default: none (Valkey's `timeout 0`).
    ///
    /// As in Valkey, a client is idle if it neither sends commands nor reads replies nor waits for a running command. RDMA
    /// keepalives do not count as activity.
    ///
    /// With a shorter time, clients that pause between commands have to reconnect; with a longer one, connections of clients
    /// that vanished silently are kept longer.
    #[must_use]
    pub fn idle_timeout(mut self, limit: impl Into<Option<Duration>>) -> Self {
        self.idle_timeout = limit.into();
        self
    }

    /// Time after which the kernel probes a TCP client that has sent nothing. Default 300 s (Valkey's `tcp-keepalive`); from 1 s to
    /// 9 h. `None` turns it off.
    ///
    /// A client whose machine or network is gone does not answer. After three probes, a third of this time apart, its connection
    /// ends and makes room for another: 10 minutes with the default. A live client never notices, however idle it is. Over RDMA,
    /// [`TransportConfig`](crate::TransportConfig) has a keepalive of its own.
    ///
    /// With a shorter time, a network that fails for a moment ends connections; with a longer one, vanished clients hold
    /// their place longer.
    #[must_use]
    pub fn tcp_keepalive(mut self, after: impl Into<Option<Duration>>) -> Self {
        self.tcp_keepalive = after.into();
        self
    }

    /// Time that [`Server::shutdown`](crate::Server::shutdown) gives peers to read their last replies. Default 10 s (Valkey's
    /// `shutdown-timeout`). Connections that are left afterwards are cut.
    #[must_use]
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_argument_len: 512 * 1024 * 1024,
            input_limit: 1024 * 1024 * 1024,
            output_high_water: 1024 * 1024,
            push_limit: 32 * 1024 * 1024,
            direct_limit: 16 * 1024 * 1024,
            direct_limit_of_all: 1024 * 1024 * 1024,
            idle_timeout: None,
            tcp_keepalive: Some(Duration::from_secs(300)),
            drain_timeout: Duration::from_secs(10),
        }
    }
}
