//! What a connection asks of its device.

use std::net::IpAddr;
use std::time::Duration;

use super::SharedCq;

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
    /// RDMA READs that may be in flight at once, in either direction; the smaller wish of the two sides counts. 0: this
    /// side reads nothing and lets nothing be read, as on every connection of the Valkey protocol.
    pub read_depth: u8,
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
        }
    }
}

/// Receives that the protocol's page asks both sides to post, and as many sends (valkey `src/rdma.c`,
/// `VALKEY_RDMA_MAX_WQE`).
pub(crate) const QUEUE_DEPTH: u32 = 1024;

/// Fills a 256-byte work queue entry of the common adapters together with the request's header.
pub(crate) const MAX_INLINE: u32 = 220;

const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);
