//! Why a stream has ended, and what that means to somebody who wanted more of it.

use std::io;

use valkey_rdma_proto::CloseReason;
use valkey_rdma_proto::work::FailureStatus;

use crate::device::{CmEvent, DeviceFault};
use crate::error::TransportError;
use crate::stats::Info;

/// Why there will be no more bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The connection manager refused or failed before the queue pair was connected.
    NeverConnected(CmEvent),
    /// The device under the connection was removed.
    DeviceRemoved,
    /// The device reported a fault of itself or of the connection's queues.
    Fault(DeviceFault),
    /// The connection ended.
    Closed(CloseReason),
}

impl End {
    /// As the error of a read or a write. `peer_gone` is the kind for the peer's own disconnect.
    pub(super) fn io_error(self, info: &Info, peer_gone: io::ErrorKind) -> io::Error {
        let kind = match self {
            End::NeverConnected(_) => io::ErrorKind::NotConnected,
            End::DeviceRemoved | End::Fault(_) => io::ErrorKind::ConnectionReset,
            End::Closed(CloseReason::Peer) => peer_gone,
            End::Closed(CloseReason::Protocol(_)) => io::ErrorKind::InvalidData,
            End::Closed(
                CloseReason::HandshakeTimeout
                | CloseReason::IdleTimeout
                | CloseReason::KeepaliveTimeout { .. }
                | CloseReason::LocalUnfinished { .. }
                | CloseReason::Failed(FailureStatus::RetryExceeded),
            ) => io::ErrorKind::TimedOut,
            End::Closed(_) => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, self.error(info))
    }

    /// As the error of a connection.
    pub(super) fn error(self, info: &Info) -> TransportError {
        let (peer, device) = (info.peer_addr, info.device.kind);
        match self {
            End::Closed(CloseReason::Protocol(error)) => TransportError::Protocol(error),
            End::Closed(reason) => TransportError::Lost(reason),
            End::DeviceRemoved => TransportError::DeviceRemoved,
            End::Fault(fault) => TransportError::Fault { device: info.device.name.clone(), fault },
            End::NeverConnected(event) => match event {
                CmEvent::Rejected { reason: REASON_CONSUMER } => TransportError::Rejected { peer, device },
                CmEvent::Rejected { .. } => TransportError::Refused { peer, device },
                CmEvent::Unreachable { status } => TransportError::Unreachable { peer, device, status },
                // A server that accepts and closes at once may be gone before this side has completed the
                // connection (spec clause H-7).
                CmEvent::ConnectError { .. } => TransportError::ClosedInHandshake { peer },
                CmEvent::DeviceRemoved => TransportError::DeviceRemoved,
                CmEvent::Established | CmEvent::Disconnected | CmEvent::PortDown | CmEvent::PortUp => {
                    TransportError::Closed
                }
            },
        }
    }
}

/// The listener's owner said no (IB CM reject reason "consumer defined"; Linux `IB_CM_REJ_CONSUMER_DEFINED`).
const REASON_CONSUMER: i32 = 28;
