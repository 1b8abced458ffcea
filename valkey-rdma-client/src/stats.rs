//! What a connection is and what it has done: [`ConnectionInfo`], [`Counters`] and [`ConnectionStatus`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{AdaptiveOff, Polling, Stats};

use crate::endpoint::Transport;

mod counters;

pub(crate) use self::counters::AtomicCounters;

/// What a connection runs on, so that nobody needs to guess whether it is RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// What carries the bytes.
    pub transport: Transport,
    /// The server's address; none on a stream that the caller brought along.
    pub peer: Option<SocketAddr>,
    /// The RDMA device; none on TCP.
    pub device: Option<String>,
    /// The active path MTU of the device in bytes, where it has one.
    pub mtu: Option<u32>,
    /// Our receive buffer in bytes, which the server writes to; none on TCP.
    pub rx_window: Option<u32>,
    /// The server's receive buffer in bytes, which we write to; none on TCP.
    pub tx_window: Option<u32>,
    /// How it waits for its device; none on TCP.
    pub polling: Option<Polling>,
    /// Why adaptive polling, which was asked for, is off.
    pub adaptive_off: Option<AdaptiveOff>,
    /// The protocol version agreed on.
    pub protocol: Protocol,
    /// Why this is TCP although RDMA was asked for first (`fallback=tcp`).
    pub fallback: Option<String>,
}

/// One line, such as `rdma to 10.0.0.7:6379 (resp3, device mlx5_0, windows 1048576 in and 1048576 out)`.
impl fmt::Display for ConnectionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.transport)?;
        if let Some(peer) = self.peer {
            write!(f, " to {peer}")?;
        }
        write!(f, " ({}", self.protocol)?;
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

/// Whether there is a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// There is one.
    Connected,
    /// The last one was lost, and the client tries to connect again; commands wait.
    Reconnecting,
    /// There will be none: it was closed, or lost without leave to reconnect.
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

/// What a client has a connection for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Purpose {
    /// The commands of all tasks.
    Shared,
    /// One owner: [`Dedicated`](crate::Dedicated), a command that blocks, a WATCH, a value that is streamed.
    Dedicated,
    /// Subscriptions.
    Subscriber,
    /// None now: it waits for the next owner.
    Idle,
    /// None any more: over RDMA, a reply under way is read to its end before the disconnect.
    Draining,
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shared => "shared",
            Self::Dedicated => "dedicated",
            Self::Subscriber => "subscriber",
            Self::Idle => "idle",
            Self::Draining => "draining",
        })
    }
}

/// What the multiplexer has done since the client was made, over all its connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Commands handed to the transport, those of pipelines included, each time they were.
    pub commands: u64,
    /// Batches they left in. Commands per batch tell what sharing the connection saves.
    pub batches: u64,
    /// Replies received.
    pub replies: u64,
    /// Push messages received.
    pub pushes: u64,
    /// Commands without a reply right now.
    pub in_flight: u64,
    /// Connections made after a lost one.
    pub reconnects: u64,
    /// Requests sent again, or for the first time, on another connection than first meant.
    pub retries: u64,
    /// Requests whose time was up.
    pub timeouts: u64,
}

impl Counters {
    pub(crate) fn add(&mut self, other: &Self) {
        self.commands += other.commands;
        self.batches += other.batches;
        self.replies += other.replies;
        self.pushes += other.pushes;
        self.in_flight += other.in_flight;
        self.reconnects += other.reconnects;
        self.retries += other.retries;
        self.timeouts += other.timeouts;
    }
}

/// One of a client's connections, seen from outside.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// What it is for.
    pub purpose: Purpose,
    /// Whether it is there.
    pub state: State,
    /// What it runs on, or what the last one ran on.
    pub info: Arc<ConnectionInfo>,
    /// What was done on it and on those before it. Only shared connections are counted.
    pub counters: Counters,
    /// What the transport has counted on this connection: work requests, doorbells, window stalls, pinned bytes.
    /// None on TCP.
    pub transport: Option<Stats>,
}

/// Some lines of `name:value`, as in the reply to INFO.
impl fmt::Display for ConnectionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { purpose, state, info, counters, transport } = self;
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
        if let Some(stats) = transport {
            writeln!(f, "doorbells:{}", stats.device.doorbells)?;
            writeln!(f, "wake_ups:{}", stats.device.events)?;
            writeln!(f, "pinned_bytes:{}", stats.pinned_bytes)?;
        }
        Ok(())
    }
}
