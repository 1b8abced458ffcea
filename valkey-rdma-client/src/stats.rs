//! Descriptions and counters of connections: [`ConnectionInfo`], [`Counters`] and [`ConnectionStatus`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::tls::TlsInfo;
use valkey_rdma_transport::{Polling, Stats};

use crate::endpoint::Transport;

/// Describes a connection: transport, device, windows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// The transport. For a Unix socket and a stream that the program supplied, the transport of the endpoint.
    pub transport: Transport,
    /// The server's address; `None` on a Unix socket and on a stream supplied by the caller.
    pub peer: Option<SocketAddr>,
    /// The RDMA device; `None` on TCP.
    pub device: Option<String>,
    /// The active path MTU of the device in bytes, where it has one.
    pub mtu: Option<u32>,
    /// Our receive window in bytes, written by the server; `None` on TCP.
    pub rx_window: Option<u32>,
    /// The server's receive window in bytes, written by us; `None` on TCP.
    pub tx_window: Option<u32>,
    /// How many READs the server can have in flight for direct transfers; 0 on connections for anything else, `None` on TCP.
    pub read_depth: Option<u8>,
    /// How the connection waits for its device; `None` on TCP.
    pub polling: Option<Polling>,
    /// Why adaptive polling was requested but is off: a sentence without a full stop.
    pub adaptive_off: Option<&'static str>,
    /// The protocol version agreed on.
    pub protocol: Protocol,
    /// Version and cipher suite of TLS; `None` if the connection is not encrypted, as far as the client knows.
    pub tls: Option<Arc<TlsInfo>>,
    /// Why TCP is used although RDMA was tried first (`fallback=tcp`).
    pub fallback: Option<String>,
    /// False if a replica would redirect reads to its primary: the user may not run `READONLY`.
    pub(crate) may_read_replica: bool,
}

impl ConnectionInfo {
    /// A connection of which only the transport is known.
    pub(crate) fn plain(transport: Transport, protocol: Protocol) -> Self {
        Self {
            transport,
            peer: None,
            device: None,
            mtu: None,
            rx_window: None,
            tx_window: None,
            read_depth: None,
            polling: None,
            adaptive_off: None,
            protocol,
            tls: None,
            fallback: None,
            may_read_replica: true,
        }
    }
}

/// One line, such as `rdma to 10.0.0.7:6379 (resp3, device mlx5_0, windows 1048576 in and 1048576 out)`.
impl fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.transport)?;
        if let Some(peer) = self.peer {
            write!(f, " to {peer}")?;
        }
        write!(f, " ({}", self.protocol)?;
        if let Some(tls) = &self.tls {
            write!(f, ", {tls}")?;
        }
        if let Some(device) = &self.device {
            write!(f, ", device {device}")?;
        }
        if let (Some(rx), Some(tx)) = (self.rx_window, self.tx_window) {
            write!(f, ", windows {rx} in and {tx} out")?;
        }
        if let Some(polling) = self.polling.filter(|mode| *mode != Polling::default()) {
            write!(f, ", {polling} polling")?;
        }
        if let Some(off) = &self.adaptive_off {
            write!(f, ", {off}")?;
        }
        f.write_str(")")?;
        match &self.fallback {
            Some(reason) => write!(f, ", instead of rdma: {reason}"),
            None => Ok(()),
        }
    }
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Connected.
    Connected,
    /// The last connection was lost, and the client reconnects; commands wait.
    Reconnecting,
    /// Closed by `close`, or lost with reconnecting disabled.
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connected => "connected",
            Self::Reconnecting => "reconnecting",
            Self::Closed => "closed",
        })
    }
}

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// Shared by all tasks.
    Shared,
    /// Used by one owner, for anything: [`Dedicated`](crate::Dedicated), a streamed value.
    Dedicated,
    /// Direct transfers: [`Client::get_direct`](crate::Client::get_direct).
    Bulk,
    /// Used by one call: a blocking command, or a WATCH.
    Call,
    /// Used by one command that [overtakes](crate::Client#commands-that-overtake) others.
    Overtaking,
    /// Subscriptions.
    Subscriber,
    /// Idle in the pool, waiting for its next owner.
    Idle,
    /// Draining: over RDMA, outstanding replies are read before the disconnect.
    Draining,
}

impl Purpose {
    /// True if connections of this purpose carry little, and have [short buffers](crate::Config::side_buffers).
    pub(crate) fn is_small(self) -> bool {
        matches!(self, Self::Bulk | Self::Call | Self::Overtaking | Self::Subscriber)
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Dedicated => "dedicated",
            Self::Bulk => "bulk",
            Self::Call => "call",
            Self::Overtaking => "overtaking",
            Self::Subscriber => "subscriber",
            Self::Idle => "idle",
            Self::Draining => "draining",
        })
    }
}

/// Declares [`Counters`] and the [`AtomicCounters`] that they are read from: one line for each counter.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of the multiplexer since the client was created, over all its connections.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }

        /// The counters of a multiplexer, read as [`Counters`]. Callers count timeouts too, so timeouts need atomic additions.
        /// Everything else is counted under the driver's lock, or by the connection task while there is no driver: a load and a
        /// store are enough.
        #[derive(Default)]
        pub(crate) struct AtomicCounters {
            $($name: AtomicU64,)*
        }

        impl AtomicCounters {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Commands sent, including those of pipelines; a command sent again counts again.
    commands,
    /// Batches they were sent in. Commands per batch show what sharing the connection saves.
    batches,
    /// Replies received.
    replies,
    /// Push messages received.
    pushes,
    /// Times that bytes were read. Large replies take several.
    reads,
    /// Commands in flight right now.
    in_flight,
    /// Reconnects.
    reconnects,
    /// Requests moved to another connection, whether already sent or not.
    retries,
    /// Requests that timed out.
    timeouts,
    /// Polls of the connection tasks while connected. Polls per batch show what waking them costs.
    driver_polls,
    /// Polls among `driver_polls` that neither sent nor received anything.
    empty_driver_polls,
}

/// Counters of a cluster client since it was created. They count only what is out of the ordinary: no command that goes right changes
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterCounters {
    /// MOVED replies followed.
    pub moved: u64,
    /// ASK replies followed.
    pub ask: u64,
    /// TRYAGAIN replies waited out.
    pub try_again: u64,
    /// CLUSTERDOWN, LOADING, MASTERDOWN and READONLY replies waited out.
    pub not_ready: u64,
    /// Commands that met a lost connection, or none.
    pub lost: u64,
    /// Readings of the slot map.
    pub refreshes: u64,
    /// Readings that failed on every node.
    pub failed_refreshes: u64,
    /// Connections ended because their node was silent, and another had its slots.
    pub given_up: u64,
}

/// The status of one connection of a client.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// The connection's purpose.
    pub purpose: Purpose,
    /// The connection's state.
    pub state: State,
    /// Describes the connection, or the last one.
    pub info: Arc<ConnectionInfo>,
    /// Counters of this connection and its predecessors. Only shared connections are counted.
    pub counters: Counters,
    /// The transport's counters of this connection: work requests, doorbells, window stalls, pinned bytes. `None` on
    /// TCP.
    pub stats: Option<Stats>,
}

/// Lines of `name:value`, as in the reply to INFO.
impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { purpose, state, info, counters, stats } = self;
        writeln!(f, "purpose:{purpose}")?;
        writeln!(f, "state:{state}")?;
        writeln!(f, "connection:{info}")?;
        if *purpose == Purpose::Shared {
            writeln!(f, "commands:{}", counters.commands)?;
            writeln!(f, "batches:{}", counters.batches)?;
            writeln!(f, "replies:{}", counters.replies)?;
            writeln!(f, "in_flight:{}", counters.in_flight)?;
            writeln!(f, "reconnects:{}", counters.reconnects)?;
            writeln!(f, "retries:{}", counters.retries)?;
            writeln!(f, "timeouts:{}", counters.timeouts)?;
        }
        if let Some(stats) = stats {
            writeln!(f, "doorbells:{}", stats.device.doorbells)?;
            writeln!(f, "wake_ups:{}", stats.device.events)?;
            writeln!(f, "pinned_bytes:{}", stats.pinned_bytes)?;
        }
        Ok(())
    }
}

impl AtomicCounters {
    /// Counts a batch of `commands` commands. `in_flight` are now unanswered.
    pub(crate) fn batch(&self, commands: usize, in_flight: usize) {
        add(&self.commands, commands as u64);
        add(&self.batches, 1);
        self.in_flight.store(in_flight as u64, Ordering::Relaxed);
    }

    /// Counts a reply. `in_flight` commands are still unanswered.
    pub(crate) fn reply(&self, in_flight: usize) {
        add(&self.replies, 1);
        self.in_flight.store(in_flight as u64, Ordering::Relaxed);
    }

    pub(crate) fn push(&self) {
        add(&self.pushes, 1);
    }

    pub(crate) fn bytes_read(&self) {
        add(&self.reads, 1);
    }

    /// Nothing is in flight any more: the connection has ended.
    pub(crate) fn ended(&self) {
        self.in_flight.store(0, Ordering::Relaxed);
    }

    pub(crate) fn reconnected(&self) {
        add(&self.reconnects, 1);
    }

    pub(crate) fn retried(&self, requests: usize) {
        add(&self.retries, requests as u64);
    }

    pub(crate) fn timed_out(&self) {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a poll of the driver by the connection task. `moved`: it sent commands or received replies.
    pub(crate) fn driver_poll(&self, moved: bool) {
        add(&self.driver_polls, 1);
        add(&self.empty_driver_polls, u64::from(!moved));
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
}
