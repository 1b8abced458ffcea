//! What is known of a connection from outside: what it runs on, and what it has counted.

use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_proto::Counters;

use crate::device::DeviceInfo;
use crate::polling::Polling;

/// Exact counts of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// What the protocol counted: work requests, messages, windows, bytes.
    pub protocol: Counters,
    /// What the device was asked for.
    pub device: DeviceCounters,
    /// Bytes registered with the device now, [pools](crate::BufferPool) and [direct memory](crate::DirectMemory) included; 0 once the connection has ended and
    /// everything was read.
    pub pinned_bytes: u64,
    /// With [`Polling::Adaptive`]: how long it looks on, as things are, before it sleeps.
    pub spin_budget: Duration,
}

/// Calls into the device. On soft-RoCE a doorbell, an arm and an event are one system call each. Connections of a
/// [`SharedCq`](crate::SharedCq) share those calls: their `events` and `arms` count the events each received and the
/// arms each asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceCounters {
    /// Posts of chains of sends.
    pub doorbells: u64,
    /// Posts of batches of receives.
    pub receive_posts: u64,
    /// Completion events taken: wake-ups by the device.
    pub events: u64,
    /// How often the completion queue was armed.
    pub arms: u64,
    /// Reads of the completion queue.
    pub polls: u64,
    /// Empty polls: the completion queue was empty, and the connection polled again instead of sleeping (busy and
    /// adaptive [polling](crate::Polling)).
    pub spins: u64,
    /// How often the connection's task went to sleep: the queue armed, and empty.
    pub sleeps: u64,
    /// Bytes copied from the application into the send buffer, or for a [direct](crate::Direct) write.
    pub copied_in: u64,
    /// Bytes that the application encoded in the send buffer, without a copy.
    pub filled_in_place: u64,
    /// Bytes sent from a [pool](crate::BufferPool), without a copy.
    pub lent: u64,
    /// Bytes copied from the windows to the application.
    pub copied_out: u64,
}

/// What a listener has counted, and what its connections take now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Requests that could not be taken or accepted for want of something, or because they came over another
    /// device than the one asked for.
    pub failed: u64,
    /// Requests refused because as many connections as allowed were open.
    pub refused_connections: u64,
    /// Requests refused because their memory would have been more than may be pinned.
    pub refused_memory: u64,
    /// Connections there are now, requests in the caller's hands included.
    pub connections: usize,
    /// Bytes that they pin, or are about to.
    pub pinned_bytes: u64,
}

/// What a connection runs on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Info {
    /// The device and its link.
    pub device: DeviceInfo,
    /// This side's address.
    pub local_addr: SocketAddr,
    /// The peer's address.
    pub peer_addr: SocketAddr,
    /// Length in bytes of the window offered to the peer.
    pub window: u32,
    /// How many such windows rotate.
    pub windows: u32,
    /// Length in bytes of the window the peer offers; 0 before its first Register.
    pub peer_window: u32,
    /// Length in bytes of the send buffer, which [grows](crate::Config::send_buffer).
    pub send_buffer: u32,
    /// How many READs a server can have in flight, to read values of its client ([direct transfers](crate::Direct)); 0 if the two sides have
    /// agreed on none, and before they have.
    pub read_depth: u8,
    /// How many connections like this one have room in its completion queue. 1: it has one to itself, because none is
    /// [shared](crate::SharedCq), or the device has none for two connections.
    pub cq_members: u32,
    /// How it waits for its device: what was asked for, unless that is off.
    pub polling: Polling,
    /// Why [`Polling::Adaptive`] is off, if it was asked for: a sentence without a full stop.
    pub adaptive_off: Option<&'static str>,
}
