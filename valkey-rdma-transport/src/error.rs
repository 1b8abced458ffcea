//! What can go wrong between this process and the peer's queue pair.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_proto::{CloseReason, ProtocolError};

use crate::device::DeviceKind;

/// A failure of the device, the path or the peer's conduct, on one connection or listener.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// This build has no such device.
    #[error("this build has no `{device}` device: rebuild with the cargo feature `{device}`")]
    NotBuilt {
        /// The device asked for.
        device: DeviceKind,
    },
    /// The emulated device was asked for something that only an RDMA device has.
    #[error("the emulated device has no choice of {option}: leave that option out, or use an RDMA device")]
    EmulatedOption {
        /// What was asked for.
        option: &'static str,
    },
    /// There is no RDMA device on this machine.
    #[error(
        "no RDMA device on this machine: load its driver, or make a software one with \
             `rdma link add rxe0 type rxe netdev NETDEV`"
    )]
    NoDevice,
    /// The route leads to another device than the one asked for.
    #[error("the route to {peer} leads to device `{found}`, not `{wanted}`")]
    WrongDevice {
        /// Where the connection was to go.
        peer: SocketAddr,
        /// The device asked for.
        wanted: String,
        /// The device the route leads to.
        found: String,
    },
    /// No RDMA device leads to the address.
    #[error("no RDMA path to {peer}: is it the address of an RDMA device's network, and is the link up?")]
    Resolve {
        /// The address.
        peer: SocketAddr,
        /// What the connection manager said.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {addr} ({device})")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Memory cannot be had or pinned.
    #[error("cannot register {bytes} bytes of memory (memlock limit: {}); raise it with `ulimit -l` or \
             LimitMEMLOCK=, or use smaller windows", limit_text(*.limit))]
    Memory {
        /// How many bytes were to be registered.
        bytes: u64,
        /// The process's soft `RLIMIT_MEMLOCK` in bytes, where there is one.
        limit: Option<u64>,
        /// What the device said.
        #[source]
        source: io::Error,
    },
    /// A call into the device failed.
    #[error("{call} failed")]
    Device {
        /// The call, by the name its manual page has.
        call: &'static str,
        /// The OS error.
        #[source]
        source: io::Error,
    },
    /// The peer's host refused the connection.
    #[error("{peer} refused the connection ({device}): nothing listens there, or not on this transport")]
    Refused {
        /// Who refused.
        peer: SocketAddr,
        /// The device.
        device: DeviceKind,
    },
    /// The peer's host did not answer.
    #[error("{peer} is unreachable ({device}, connection manager status {status})")]
    Unreachable {
        /// Who did not answer.
        peer: SocketAddr,
        /// The device.
        device: DeviceKind,
        /// The connection manager's status.
        status: i32,
    },
    /// Connecting took too long.
    #[error("no connection to {peer} within {after:?}")]
    ConnectTimeout {
        /// The peer.
        peer: SocketAddr,
        /// The deadline.
        after: Duration,
    },
    /// The peer accepted, then closed without offering its memory.
    #[error(
        "{peer} closed the connection during the handshake: the server may be at its client limit, \
             or in protected mode"
    )]
    ClosedInHandshake {
        /// The peer.
        peer: SocketAddr,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol")]
    Protocol(#[from] ProtocolError),
    /// The connection ended for this reason.
    #[error("connection lost: {0}")]
    Lost(CloseReason),
    /// The device under the connection was removed.
    #[error("the RDMA device was removed")]
    DeviceRemoved,
    /// The connection or listener was closed on this side.
    #[error("closed on this side")]
    Closed,
}

fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes} bytes"))
}
