//! What a server allows one peer, and all of them together.

use std::time::Duration;

/// Limits of a [`Server`](crate::Server). `Config::default()` works unedited.
///
/// Setters take and return `&mut Self`; what they set holds for connections accepted afterwards.
#[derive(Debug, Clone)]
pub struct Config {
    pub(crate) max_connections: usize,
    pub(crate) max_argument_len: usize,
    pub(crate) input_limit: usize,
    pub(crate) output_high_water: usize,
    pub(crate) push_limit: usize,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) drain_timeout: Duration,
}

impl Config {
    /// Connections served at once, over all listeners. Default 10 000 (Valkey's `maxclients`).
    ///
    /// One more is told `-ERR max number of clients reached` and closed; of more than 16 such at once, the others are
    /// sent away untold: closed over TCP, rejected over RDMA. A connection counts until its stream is closed.
    ///
    /// Over RDMA each one pins [`TransportConfig::pinned_bytes`](crate::TransportConfig::pinned_bytes), 3 MiB and
    /// 33 KiB by default, and so do the 16 while they are told; who is rejected pins nothing. The limit of locked
    /// memory is usually met before this one:
    /// [`TransportConfig::max_pinned_bytes`](crate::TransportConfig::max_pinned_bytes) sets one below it.
    pub fn max_connections(&mut self, count: usize) -> &mut Self {
        self.max_connections = count;
        self
    }

    /// Longest argument of a command, in bytes. Default 512 MiB (Valkey's `proto-max-bulk-len`).
    ///
    /// A longer one is answered with `-ERR Protocol error: invalid bulk length`, and the connection
    /// is closed.
    pub fn max_argument_len(&mut self, len: usize) -> &mut Self {
        self.max_argument_len = len;
        self
    }

    /// Bytes one connection may have sent that no handler has taken yet: the command being received, and
    /// the commands waiting because [replies pile up](Self::output_high_water).
    /// Default 1 GiB (Valkey's `client-query-buffer-limit`); 1 MiB at most for peers that the handler does not
    /// [trust](crate::Handler::trusts).
    ///
    /// A connection that exceeds it is closed and the reason logged. This is therefore also the size of the
    /// largest command. Lower, and a client that writes a long pipeline before it reads is cut off sooner;
    /// higher, and one client can take more memory.
    pub fn input_limit(&mut self, len: usize) -> &mut Self {
        self.input_limit = len;
        self
    }

    /// Bytes of unsent replies from which on further commands of the connection wait. Default 1 MiB.
    ///
    /// The connection is still *read*: blocking clients write a whole pipeline before they read its first
    /// reply, and a server that stopped reading would wait for them while they wait for it
    /// (hazard H22 of the reference clients). Commands wait in their compact form instead of as
    /// replies, up to [`input_limit`](Self::input_limit). So replies never hold more than this plus one
    /// reply, and no pipeline deadlocks.
    ///
    /// Lower, and large replies are sent in more and smaller turns; higher, and a slow reader holds more memory.
    /// At least 1.
    pub fn output_high_water(&mut self, len: usize) -> &mut Self {
        self.output_high_water = len.max(1);
        self
    }

    /// Bytes of messages from a [`Pusher`](crate::Pusher) that may wait for one connection. Default 32 MiB (Valkey's
    /// `client-output-buffer-limit pubsub`).
    ///
    /// A connection whose peer lets more pile up is closed. So one connection never holds more than this,
    /// [`output_high_water`](Self::output_high_water), one reply and [`input_limit`](Self::input_limit).
    pub fn push_limit(&mut self, len: usize) -> &mut Self {
        self.push_limit = len;
        self
    }

    /// How long a connection may lie idle before it is closed, whatever it runs on. Default: for ever (Valkey's `timeout 0`).
    ///
    /// Idle is, as in Valkey, a client that neither sends commands nor takes replies and does not wait for a command
    /// under way either. RDMA keepalives do not count.
    ///
    /// Lower, and clients with pauses between commands have to reconnect; higher, and those that vanished without a word
    /// hold their place for longer.
    pub fn idle_timeout(&mut self, limit: Option<Duration>) -> &mut Self {
        self.idle_timeout = limit;
        self
    }

    /// How long a graceful shutdown waits for peers to take their last replies. Default 10 s
    /// (Valkey's `shutdown-timeout`). Afterwards the remaining connections are cut.
    pub fn drain_timeout(&mut self, timeout: Duration) -> &mut Self {
        self.drain_timeout = timeout;
        self
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_argument_len: 512 * 1024 * 1024,
            input_limit: 1024 * 1024 * 1024,
            output_high_water: 1024 * 1024,
            push_limit: 32 * 1024 * 1024,
            idle_timeout: None,
            drain_timeout: Duration::from_secs(10),
        }
    }
}
