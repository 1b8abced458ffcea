//! The device contract: what the stream asks of an RDMA device, real or emulated.
//!
//! A [`DeviceConnection`] is one queue pair with everything it needs: completion queue, event channels, memory
//! regions, and its connection-manager identifier. Its life is always the same:
//!
//! 1. It is made, unconnected, by [`open()`] (active side) or from a [`ConnectRequest`] (passive side).
//! 2. Regions are registered and receives posted, so that nothing the peer sends can find it unprepared.
//! 3. [`DeviceConnection::establish`] sends the connect request, or accepts the peer's.
//! 4. [`CmEvent::Established`] arrives; work requests flow.
//! 5. [`DeviceConnection::disconnect`], or [`CmEvent::Disconnected`] from the peer; remaining work is flushed.
//! 6. Drop frees everything, in the one order that works.
//!
//! Requests and completions are the descriptors of [`valkey_rdma_proto::work`].

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, ReceiveRequest, Region, RegionId, SendRequest};

use crate::config::Config;
use crate::error::TransportError;
use crate::pool::BufferPool;

mod group;
mod kind;
mod limits;
mod open;
mod passive;

pub use group::{SharedCq, SharedCqError};
pub use kind::DeviceKind;
pub(crate) use limits::{DeviceLimits, check_limits};
pub use open::{listen, open};
pub use passive::{ConnectRequest, DeviceListener};
pub use valkey_rdma_proto::{wire, work};

/// One queue pair with its completion queue, regions and connection-manager identifier.
///
/// Not `Sync`: one owner drives it, under a lock where several tasks share a connection.
pub trait DeviceConnection: Send {
    /// Registers `len` bytes of zeroed memory. It stays registered until the endpoint is dropped.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if the memory cannot be had or pinned (naming the `memlock` limit).
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError>;

    /// Registers a pool's memory to be sent from; nobody may write it. It stays registered, and is there, until the
    /// endpoint is dropped. What is posted must be [frozen](crate::PoolBuffer::freeze) bytes, and held by the caller for as
    /// long as the device may read them: otherwise the peer gets whatever is written there next.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if the memory cannot be pinned (naming the `memlock` limit), another if the device lends
    /// nothing.
    fn register_pool(&mut self, pool: &BufferPool) -> Result<Region, TransportError>;

    /// Lends bytes of a region to `fill`, for writing. The caller vouches, by the protocol's own bookkeeping,
    /// that no posted work request reads them and no peer may write them.
    ///
    /// # Panics
    /// If the range is outside of the region, or the region was [lent](Self::register_pool): a local bug.
    fn write_local(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8]));

    /// Appends a copy of a region's bytes to `out`. A peer may be rewriting them: the copy is what counts.
    ///
    /// # Panics
    /// If the range is outside of the region, or not frozen bytes of a region that was [lent](Self::register_pool), or `out` has no
    /// room for it: a local bug.
    fn read_local(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut);

    /// Posts a chain of sends with one doorbell, in order.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses one; those before it are under way.
    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError>;

    /// Posts a batch of receives.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses one.
    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError>;

    /// Appends up to `limit` completions to `out`, oldest first. Fewer than `limit` means none are left.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the queue cannot be read (overrun, device gone); [`TransportError::SharedQueue`] if it was
    /// shared and has ended.
    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError>;

    /// Asks for one event at the next completion. A completion that came before the call raises none, so
    /// poll after arming. To ask again, without an event in between, does no harm and makes good for one that was lost.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the device refuses; [`TransportError::SharedQueue`] as for [`poll`](Self::poll).
    fn arm(&mut self) -> Result<(), TransportError>;

    /// Takes one completion event; one follows each [`arm`](Self::arm) at most. `Pending` keeps the waker.
    ///
    /// # Errors
    /// [`TransportError::Device`] if events cannot be had; [`TransportError::SharedQueue`] as for [`poll`](Self::poll).
    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>>;

    /// Sends the connect request (active side) or accepts the peer's (passive side).
    ///
    /// The outcome arrives as a [`CmEvent`].
    ///
    /// # Errors
    /// [`TransportError::Device`] if the request cannot be made, or was made before.
    fn establish(&mut self) -> Result<(), TransportError>;

    /// Takes one connection-manager event. `Pending` keeps the waker.
    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>>;

    /// Moves the queue pair to error and tells the peer. What was not acknowledged by then is lost. Repeated
    /// calls do nothing. On the passive side, before [`establish`](Self::establish), it rejects the request. Who
    /// disconnects first is told by [`CmEvent::Disconnected`] when the peer has done so too.
    fn disconnect(&mut self);

    /// What the device granted.
    fn limits(&self) -> Limits;

    /// This side's address.
    fn local_addr(&self) -> SocketAddr;

    /// The peer's address.
    fn peer_addr(&self) -> SocketAddr;

    /// The device's name and link, for people.
    fn device(&self) -> DeviceInfo;
}

/// Who may touch a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only this side's own work requests.
    Local,
    /// Also the peer's RDMA WRITEs. There is no remote read anywhere in this protocol.
    RemoteWrite,
}

/// What is asked of a device when an endpoint is made. `..Default::default()` is what [`Config`]'s
/// default asks for.
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
    /// Ask the system for huge pages for the regions that fill one at least. Where it has none left, ordinary
    /// pages are used, and a warning logged.
    pub huge_pages: bool,
    /// How long the device waits for the peer's to acknowledge before it sends again. `None`: as the connection manager
    /// computes it.
    pub ack_timeout: Option<Duration>,
    /// How often it sends again, 0 to 7, in both directions of a connection made from this side. `None`: 6 times.
    pub retry_count: Option<u8>,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Config::default().device_options()
    }
}

/// What a device granted when the endpoint was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Depth of the send queue, in work requests; at least what was asked.
    pub send_depth: u32,
    /// Depth of the receive queue, in work requests; at least what was asked.
    pub receive_depth: u32,
    /// Bytes that a send may carry inside the request.
    pub max_inline: u32,
    /// Largest message of one work request, in bytes.
    pub max_message: u32,
}

/// The device under a connection, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Which device contract implementation this is.
    pub kind: DeviceKind,
    /// The device's name, such as `rxe0` or `mlx5_0`.
    pub name: String,
    /// The active path MTU in bytes, where there is one.
    pub mtu: Option<u32>,
    /// Whether its work is done by the machine's own CPUs: the emulated device, soft-RoCE, soft-iWARP. Then spinning
    /// for a completion takes the CPU away from what would bring it.
    pub software: bool,
}

/// What the connection manager reports about one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CmEvent {
    /// Both sides agreed; work requests flow.
    Established,
    /// The peer, or its host, refused: nothing listens there, or the listener said no.
    Rejected {
        /// The connection manager's reason number (`rdma_get_cm_event(3)`, `rdma_reject` reasons of the IB CM).
        reason: i32,
    },
    /// No answer, or no path.
    Unreachable {
        /// The connection manager's status.
        status: i32,
    },
    /// The peer answered, and the connection could not be completed: most often it has closed at once.
    ConnectError {
        /// The connection manager's status.
        status: i32,
    },
    /// The peer disconnected, or its process is gone.
    Disconnected,
    /// The device under the connection was removed.
    DeviceRemoved,
    /// The device's port went down. The connection lives on until the device gives up repeating what is not
    /// acknowledged; a link that comes back before that has lost nothing.
    PortDown,
    /// The device's port is up again.
    PortUp,
}

/// What a device reports of itself and of queue pairs outside of any completion; each ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceFault {
    /// The device as a whole failed, or is being removed.
    #[error("the device has failed or is going away")]
    Device,
    /// The queue pair failed.
    #[error("the queue pair has failed")]
    QueuePair,
    /// The peer sent what no queue pair may be sent.
    #[error("the peer sent an invalid request")]
    InvalidRequest,
    /// The peer wrote, or tried to, where it may not.
    #[error("the peer tried to access memory that it may not")]
    AccessViolation,
    /// The completion queue failed, most often because it overflowed.
    #[error("the completion queue has failed")]
    CompletionQueue,
}
