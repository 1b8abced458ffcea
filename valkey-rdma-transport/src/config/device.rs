//! Settings that only the device sees: which one, its queues, its deadlines.

use std::net::IpAddr;
use std::time::Duration;

use super::Config;
use crate::device::{DeviceOptions, MAX_INLINE, SharedCq};

impl Config {
    /// The options for a device, for [`device::open`](crate::device::open) and
    /// [`device::listen`](crate::device::listen).
    #[doc(hidden)]
    pub fn device_options(&self) -> DeviceOptions {
        DeviceOptions {
            send_depth: self.send_depth,
            receive_depth: self.receive_depth,
            max_inline: MAX_INLINE,
            address_timeout: self.connect_timeout,
            route_timeout: self.connect_timeout,
            device: self.device.clone(),
            gid: self.gid,
            source: self.source,
            completion_vector: 0,
            shared_cq: self.shared_cq.clone(),
            ack_timeout: self.ack_timeout,
            retry_count: self.retry_count,
            // Only direct transfers use READ (spec clause D-4).
            read_depth: if self.may_be_direct() { DIRECT_READS } else { 0 },
            adapts: true,
        }
    }

    /// Uses this RDMA device or fails. Default: the one that the route leads to. On the emulated device, the name
    /// chooses a link (module `emulated`).
    #[must_use]
    pub fn device(mut self, name: impl Into<String>) -> Self {
        self.device = Some(name.into());
        self
    }

    /// Uses this entry of the device's table of global identifiers (`ibv_devinfo -v`, `GID[N]`), or fails. Default:
    /// the one that the route leads to. RoCE only: on InfiniBand choose by [`source`](Self::source). On a listener,
    /// the entry must be the address that it listens on, or that address the unspecified one.
    #[must_use]
    pub fn gid_index(mut self, index: u32) -> Self {
        self.gid = Some(index);
        self
    }

    /// Connects from this address of this machine, which picks device and port, or fails. Default: the route
    /// decides. A listener refuses another address than its own here.
    #[must_use]
    pub fn source(mut self, addr: IpAddr) -> Self {
        self.source = Some(addr);
        self
    }

    /// Shares completion queues with the other connections of this group. Default: each connection has one of its own. On
    /// a listener, its connections do. Kernel verbs only.
    #[must_use]
    pub fn shared_cq(mut self, group: &SharedCq) -> Self {
        self.shared_cq = Some(group.clone());
        self
    }

    /// Depth of the send queue in work requests. Default 1024, range 16 to 2^20; values outside are brought to the
    /// nearest end. The device may grant more, and that is used. If it has fewer (`ibv_devinfo -v`, `max_qp_wr`; both queues together
    /// `max_cqe`), that is what there is.
    ///
    /// Fewer save the device's memory and make many small writes wait for each other.
    #[must_use]
    pub fn send_depth(mut self, requests: u32) -> Self {
        self.send_depth = requests.clamp(MIN_DEPTH, MAX_DEPTH);
        self
    }

    /// Receives kept posted for the peer's messages. Default 1024, as the protocol's page asks of both sides; range 16 to
    /// 2^20, values outside are brought to the nearest end. Each costs 32 pinned bytes.
    ///
    /// With fewer, a peer that writes often finds none posted, and its device repeats the write. Peers that give up
    /// then, instead of repeating it without end, lose the connection. If the device has fewer, as for
    /// [`send_depth`](Self::send_depth).
    #[must_use]
    pub fn receive_depth(mut self, receives: u32) -> Self {
        self.receive_depth = receives.clamp(MIN_DEPTH, MAX_DEPTH);
        self
    }

    /// How long this side's device waits for the peer's device to acknowledge before it sends again: rounded up to
    /// 4.096 us times a power of two, range 8.192 us to some 2 h 26 min; values outside are brought to the nearest end.
    /// Default: what the connection manager computes, which on RoCE is some 2 s (seen on Linux 6.1).
    ///
    /// Devices wait up to four times as long. Together with [`retry_count`](Self::retry_count) it says after how long a peer
    /// that cannot be reached any more ends in an error. Shorter finds that sooner, and ends connections over a short outage
    /// or a congested path. Kernel verbs only. A kernel or device that cannot set it makes connecting fail in
    /// [`TransportError::Device`](crate::TransportError::Device), operation `rdma_set_option`.
    ///
    /// Source: `RDMA_OPTION_ID_ACK_TIMEOUT` in `rdma_set_option(3)`.
    #[must_use]
    pub fn ack_timeout(mut self, limit: Duration) -> Self {
        self.ack_timeout = Some(limit);
        self
    }

    /// How often a message is sent again that the peer's device does not acknowledge. Default 6, range 0 to 7; values above
    /// are brought to that. The side that connects decides for both directions. Kernel verbs only.
    ///
    /// More survives longer outages, fewer finds them sooner: after some [`ack_timeout`](Self::ack_timeout) times this and
    /// one. soft-RoCE takes 7 for "without end", and then never reports a cut cable.
    #[must_use]
    pub fn retry_count(mut self, times: u8) -> Self {
        self.retry_count = Some(times.min(MAX_RETRIES));
        self
    }
}

/// Reads in flight at once. With the pieces of transfers, 1 MiB: more than a path holds. Every device can do 4.
const DIRECT_READS: u8 = 4;

/// Some requests are kept free for messages beside data.
const MIN_DEPTH: u32 = 16;

/// More than any device is known to have.
const MAX_DEPTH: u32 = 1 << 20;

/// The field has three bits.
const MAX_RETRIES: u8 = 7;
