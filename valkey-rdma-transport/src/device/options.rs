//! What a connection asks of its device, with the queues that it shares, and the refusal of what is beyond the device.

use std::fmt;
use std::net::IpAddr;
#[cfg(feature = "verbs")]
use std::sync::Arc;
use std::time::Duration;

use valkey_rdma_proto::work::{SendOp, SendRequest};

use crate::error::TransportError;
#[cfg(feature = "verbs")]
use crate::verbs::Queues;

/// What a connection or a listener asks of its device.
#[derive(Clone, Debug)]
pub struct DeviceOptions {
    /// Depth of the send queue, in work requests.
    pub send_depth: u32,
    /// Depth of the receive queue, in work requests.
    pub receive_depth: u32,
    /// Bytes that a send may carry inside the request. 0: none. What the device cannot is halved until it
    /// can.
    pub max_inline: u32,
    /// How long it may take to find the device that leads to the address, in whole milliseconds.
    pub address_timeout: Duration,
    /// How long it may take to find a path from that device, in whole milliseconds.
    pub route_timeout: Duration,
    /// Use this device or fail. `None`: the one the route leads to.
    pub device: Option<String>,
    /// Use this entry of the device's table of global identifiers, or fail. RoCE only, where each entry stands for
    /// an address of the network interface. `None`: the one the route leads to.
    pub gid: Option<u32>,
    /// Connect from this address of this machine, or fail. `None`: the route decides. A listener is bound to its
    /// own address, and refuses another one here.
    pub source: Option<IpAddr>,
    /// Which of the device's interrupt vectors announces completions.
    pub completion_vector: u32,
    /// Share completion queues with these connections. `None`: a queue of its own.
    pub shared_cq: Option<SharedCq>,
    /// How long the device waits for the peer's to acknowledge before it sends again. `None`: as the connection manager
    /// computes it.
    pub ack_timeout: Option<Duration>,
    /// How often it sends again, 0 to 7, in both directions of a connection made from this side. `None`: 6 times.
    pub retry_count: Option<u8>,
    /// RDMA READs that may be in flight at once, in either direction; the smaller wish of the two sides counts, and fewer if a device can do
    /// no more. 0: this
    /// side reads nothing and lets nothing be read, as on every connection of the Valkey protocol.
    pub read_depth: u8,
    /// True: queues are as deep as asked for, or as the device allows. False: deeper ones than it allows are an error.
    pub adapts: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            send_depth: QUEUE_DEPTH,
            receive_depth: QUEUE_DEPTH,
            max_inline: MAX_INLINE,
            address_timeout: ADDRESS_TIMEOUT,
            route_timeout: ADDRESS_TIMEOUT,
            device: None,
            gid: None,
            source: None,
            completion_vector: 0,
            shared_cq: None,
            ack_timeout: None,
            retry_count: None,
            read_depth: 0,
            adapts: false,
        }
    }
}

/// Receives that the protocol's page asks both sides to post, and as many sends (valkey `src/rdma.c`,
/// `VALKEY_RDMA_MAX_WQE`).
pub(crate) const QUEUE_DEPTH: u32 = 1024;

/// Fills a 256-byte work queue entry of the common adapters together with the request's header.
pub(crate) const MAX_INLINE: u32 = 220;

const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that share completion queues: however many of them are ready at once, one event of the device and one
/// request for the next serve them all. Clones are the same group.
///
/// Useful where one thread drives many connections, such as those of a server: with 50 of them, 17 to 19 % more requests per
/// second on soft-RoCE (8 pairs of runs). Events pass through a dispatcher task. On one thread its cost is not measurable; across
/// threads it costs a wake-up and lock contention, so use one `SharedCq` per thread.
///
/// A queue has room for 64 connections as deep as its first, fewer where the device has none that deep: a connection takes as
/// many entries as it may have work requests, [`send_depth`](crate::Config::send_depth) and
/// [`receive_depth`](crate::Config::receive_depth) together. When a queue is full, another one is made; each device has its own.
/// Where a device has no queue with room for two (`ibv_devinfo -v`, `max_cqe`; Azure's MANA with the default depths), each connection has a
/// queue to itself. The log has one warning for each such device, with the depths that would do, and
/// [`Info::cq_members`](crate::Info::cq_members) is 1.
/// A queue is allocated at full size: 8 MiB with the default depths and the 64 bytes that common adapters use for an entry. No
/// count of pinned bytes includes it.
///
/// If a queue fails, or the runtime that created its first connection shuts down, all its connections end. Each reports
/// [`TransportError::SharedQueue`](crate::TransportError::SharedQueue), the error of its device, or
/// [`TransportError::RuntimeEnded`](crate::TransportError::RuntimeEnded) if that runtime drove it.
///
/// Each connection's [`DeviceCounters::events`](crate::DeviceCounters::events) and
/// [`arms`](crate::DeviceCounters::arms) count its own share of those calls. Kernel verbs only.
#[derive(Clone, Default)]
pub struct SharedCq {
    #[cfg(feature = "verbs")]
    queues: Arc<Queues>,
}

impl SharedCq {
    /// A group without connections.
    pub fn new() -> Self {
        Self::default()
    }

    #[cfg(feature = "verbs")]
    pub(crate) fn queues(&self) -> &Queues {
        &self.queues
    }
}

impl fmt::Debug for SharedCq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCq").finish_non_exhaustive()
    }
}

/// How many connections share a queue, if all have the depth of the first and the device offers queues that deep. If the queue
/// fails, all of them end, and they contend for its lock. More members save hardly anything.
#[cfg(feature = "verbs")]
const CQ_MEMBERS: u32 = 64;

/// What a device can do at most.
pub(crate) struct DeviceLimits {
    /// Entries of a send or receive queue.
    pub(crate) queue_depth: u32,
    /// Entries of a completion queue.
    pub(crate) completion_depth: u32,
    /// Completion vectors.
    pub(crate) completion_vectors: u32,
    /// READs in flight in either direction.
    pub(crate) read_depth: u8,
}

impl DeviceLimits {
    /// How many connections can share a completion queue, of [`CQ_MEMBERS`] at most, if each has up to `depth` completions in flight.
    #[cfg(feature = "verbs")]
    pub(crate) fn cq_members(&self, depth: u32) -> u32 {
        (self.completion_depth / depth.max(1)).clamp(1, CQ_MEMBERS)
    }

    /// What this device can do of what is asked for.
    ///
    /// # Errors
    /// [`TransportError::QueueDepth`], unless the options adapt; [`TransportError::CompletionVector`]. The device itself would only
    /// report an invalid argument.
    pub(crate) fn fit(&self, name: &str, options: &DeviceOptions) -> Result<DeviceOptions, TransportError> {
        let mut options = options.clone();
        options.read_depth = options.read_depth.min(self.read_depth);
        if options.adapts {
            // Receives first: a peer that finds none posted has to send again.
            options.receive_depth =
                options.receive_depth.min(self.queue_depth).min(self.completion_depth / 2);
            let left = self.completion_depth.saturating_sub(options.receive_depth);
            options.send_depth = options.send_depth.min(self.queue_depth).min(left);
        }
        let both = options.send_depth.saturating_add(options.receive_depth);
        for (queue, asked, limit) in [
            ("send queue", options.send_depth, self.queue_depth),
            ("receive queue", options.receive_depth, self.queue_depth),
            ("completion queue", both, self.completion_depth),
        ] {
            if asked > limit {
                return Err(TransportError::QueueDepth { device: name.to_owned(), queue, asked, limit });
            }
        }
        let (asked, count) = (options.completion_vector, self.completion_vectors);
        if asked >= count {
            return Err(TransportError::CompletionVector { device: name.to_owned(), asked, count });
        }
        Ok(options)
    }
}

/// Refuses reads where none can be in flight: a device would let them wait for ever, or refuse them in a way of its own.
pub(crate) fn check_reads(chain: &[SendRequest], depth: impl FnOnce() -> u8) -> Result<(), TransportError> {
    let reads = chain.iter().any(|request| matches!(request.op, SendOp::Read { .. }));
    if reads && depth() == 0 { Err(TransportError::ReadsOff) } else { Ok(()) }
}
