//! [`Limits`]: how much the clients of a gateway may use, one by one and together.

use std::time::Duration;

use serde::Deserialize;
use valkey_rdma_transport::Config as TransportConfig;

/// Limits of a gateway. `Limits::default()` works unedited. In a configuration file this is the table `[limits]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// Local clients at once. Default 10 000; fewer if this process may open too few files. For one more, a client that has closed its side
    /// and waits for replies is closed (not with `share = "never"`). If there is none, the new one gets `-ERR max number of clients reached` and is closed.
    pub clients: usize,
    /// Connections to the server at once, shared and private ones together, per server. Default 256; fewer if this process may open
    /// too few files. Clients that need one more get the error `NOUPSTREAM`.
    pub upstreams: usize,
    /// Bytes of pinned memory that the connections to one RDMA server may take together. Default 1 GiB: this lowers
    /// [`upstreams`](Self::upstreams) if that many connections need more.
    pub pinned_bytes: u64,
    /// Bytes of each of the two windows, and of the send buffer, of a client of a listener `rdma:`. Default 1 MiB, range 64 KiB to 16 MiB.
    /// With 64 KiB a client pins 225 KiB here instead of up to 3.1 MiB, and values longer than that take more round trips. A change
    /// holds for listeners that are new.
    pub client_buffer_bytes: usize,
    /// Bytes of pinned memory that the direct transfers of a client pass through, from its first one until it ends. Default 1 MiB, range 64 KiB
    /// to 64 MiB. With less, large values take more round trips.
    pub direct_bytes: usize,
    /// The same for all clients together. Default 256 MiB, at least [`direct_bytes`](Self::direct_bytes). Clients for which there is no room are referred to the stream.
    pub direct_bytes_total: usize,
    /// Bytes of a command that are kept until all of it has arrived. Default 64 KiB, range 1 KiB to 16 MiB. A longer command is passed
    /// on in pieces, over a private connection.
    pub command_bytes: usize,
    /// Bytes of a command to a cluster, which is kept until all of it has arrived. Default 64 MiB, range 64 KiB to 512 MiB. A client
    /// that sends a longer one gets an error.
    pub cluster_command_bytes: usize,
    /// Commands of one client that may wait for their replies. Default 1024, at least 1. At most
    /// [`command_bytes`](Self::command_bytes) more are read from the client until replies arrive. A client with a private connection may send 1 048 576 before it reads.
    pub commands_in_flight: usize,
    /// Bytes of such commands. Default 4 MiB, at least 64 KiB. A client may exceed it by one command.
    pub queued_bytes: usize,
    /// The same for all clients together. Default 256 MiB, at least 1 MiB. Above it, a client may send one
    /// command at a time; above twice of it, none.
    pub queued_bytes_total: usize,
    /// Bytes of replies, and of messages of a cluster, that a client may leave unread. Default 32 MiB, at least 1 MiB. A client that leaves more unread
    /// must take 1 MiB in each [`slow_reader_ms`](Self::slow_reader_ms), or send something, or it is closed. What the gateway itself would
    /// answer has to wait then, and at most [`command_bytes`](Self::command_bytes) more are read from the client. In front of a cluster, one with a transaction or
    /// watched keys must take 1 MiB, and a subscriber must be below the limit after that time. Others do not wait for it, up to
    /// [`unread_bytes_total`](Self::unread_bytes_total). Clients with a private connection are not closed: the server keeps their replies.
    pub unread_bytes: usize,
    /// The same for all clients together. Default 1 GiB. Above it, a shared connection is not read while the client whose turn it is has more than
    /// 1 MiB unread. After [`slow_reader_ms`](Self::slow_reader_ms) such a client is closed; a subscriber of a cluster at once.
    /// Clients with less unread are not slowed: all together may leave 1 MiB for each client unread, if that is more.
    pub unread_bytes_total: usize,
    /// The time in which a client above [`unread_bytes`](Self::unread_bytes) must take 1 MiB or send something, in milliseconds. Default 1000.
    pub slow_reader_ms: u64,
    /// How long commands wait for a connection, in milliseconds. Default 10 000, at least 100: longer than it takes to connect. Then
    /// their clients are closed. Until then a command may run, even if its client has given up on it and stays connected: set this below the time
    /// limit of clients. Commands for a cluster that was not reached yet also wait until the current attempt to connect ends: up to `timeout=` of the URL for each of its nodes.
    pub offline_ms: u64,
    /// How long a stop waits for replies to commands already sent, in milliseconds. Default 10 000.
    pub drain_ms: u64,
    /// How long clients may stay with a server that a reload has removed from the configuration, in milliseconds. Not set by default: until
    /// they end. They are then closed as in a stop: after their replies, at most [`drain_ms`](Self::drain_ms) later.
    pub former_ms: Option<u64>,
    /// Private connections that are kept open for the next client that needs one, per user, database and protocol. Default 16. They
    /// are closed after 60 s to 120 s, over RDMA after an hour, or when another connection needs their place.
    pub idle_upstreams: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            clients: 10_000,
            upstreams: 256,
            pinned_bytes: 1 << 30,
            client_buffer_bytes: 1 << 20,
            direct_bytes: 1 << 20,
            direct_bytes_total: 256 << 20,
            command_bytes: 64 * 1024,
            cluster_command_bytes: 64 << 20,
            commands_in_flight: 1024,
            queued_bytes: 4 << 20,
            queued_bytes_total: 256 << 20,
            unread_bytes: 32 << 20,
            unread_bytes_total: 1 << 30,
            slow_reader_ms: 1000,
            offline_ms: 10_000,
            drain_ms: 10_000,
            former_ms: None,
            idle_upstreams: 16,
        }
    }
}

impl Limits {
    /// # Errors
    /// The name, value and range of a limit that is out of range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let most = usize::MAX;
        let offline_ms = usize::try_from(self.offline_ms).unwrap_or(most);
        let limits = [
            ("clients", self.clients, 1, most),
            ("upstreams", self.upstreams, 2, most),
            ("client_buffer_bytes", self.client_buffer_bytes, 64 << 10, 16 << 20),
            ("direct_bytes", self.direct_bytes, 64 << 10, 64 << 20),
            ("direct_bytes_total", self.direct_bytes_total, 64 << 10, most),
            ("command_bytes", self.command_bytes, 1024, 16 << 20),
            ("cluster_command_bytes", self.cluster_command_bytes, 64 << 10, 512 << 20),
            ("commands_in_flight", self.commands_in_flight, 1, most),
            ("queued_bytes", self.queued_bytes, 64 << 10, most),
            ("queued_bytes_total", self.queued_bytes_total, 1 << 20, most),
            ("unread_bytes", self.unread_bytes, 1 << 20, most),
            ("unread_bytes_total", self.unread_bytes_total, 1 << 20, most),
            ("offline_ms", offline_ms, 100, most),
        ];
        if self.direct_bytes > self.direct_bytes_total {
            let (one, all) = (self.direct_bytes, self.direct_bytes_total);
            return Err(format!("limits.direct_bytes = {one}: at most direct_bytes_total, which is {all}"));
        }
        match limits.into_iter().find(|(_, value, from, to)| !(from..=to).contains(&value)) {
            None => Ok(()),
            Some((name, value, from, to)) if to == most => {
                Err(format!("limits.{name} = {value}: at least {from}"))
            }
            Some((name, value, from, to)) => Err(format!("limits.{name} = {value}: {from} to {to}")),
        }
    }

    /// Whether a client with `unread` bytes takes up too much, because all together have `total`.
    /// A subscriber of a cluster is closed at once. A shared connection is not read until the client has less, and after [`slow_reader_ms`](Self::slow_reader_ms) the client is closed.
    pub(crate) fn exceeds_total(&self, unread: usize, total: usize) -> bool {
        unread > MUCH && total > self.unread_bytes_total
    }

    /// Settings of the connections of clients over RDMA.
    pub(crate) fn client_transport(&self) -> TransportConfig {
        let bytes = u32::try_from(self.client_buffer_bytes).unwrap_or(u32::MAX);
        // A long send buffer has a first part, which is let go when the rest is pinned.
        let first = if bytes > 128 << 10 { 64 << 10 } else { 0 };
        TransportConfig::default().rx_size(bytes).send_buffer(bytes.saturating_add(first))
    }

    pub(crate) fn slow_reader(&self) -> Duration {
        Duration::from_millis(self.slow_reader_ms)
    }

    pub(crate) fn offline(&self) -> Duration {
        Duration::from_millis(self.offline_ms)
    }

    pub(crate) fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub(crate) fn former(&self) -> Option<Duration> {
        self.former_ms.map(Duration::from_millis)
    }
}

/// Unread bytes above which a client may be closed for the sake of all.
const MUCH: usize = 1 << 20;
