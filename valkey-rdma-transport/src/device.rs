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

mod contract;
mod interrupt;
pub mod obstacle;
mod open;
mod options;
pub(crate) mod report;

pub use contract::{Access, ConnectRequest, DeviceConnection, DeviceLayer, DeviceListener};
pub use interrupt::Interrupt;
pub(crate) use interrupt::WakeFd;
pub use obstacle::Obstacle;
pub use open::{listen, open};
pub(crate) use options::{DeviceLimits, MAX_INLINE, QUEUE_DEPTH, check_reads};
pub use options::{DeviceOptions, SharedCq};
pub use report::{CmEvent, DeviceFault, DeviceInfo, DeviceKind, Limits, SharedCqError, UnknownName};
pub use valkey_rdma_proto::{Role, wire, work};

pub use crate::send_memory::SendMemory;
