//! Why a stream has ended, and the errors that readers and writers get for it.

use std::io;

use valkey_rdma_proto::CloseReason;
use valkey_rdma_proto::work::FailureStatus;

use crate::device::{CmEvent, DeviceFault, SharedCqError};
use crate::error::TransportError;
use crate::stats::Info;

/// Why there will be no more bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum CloseCause {
    /// The connection manager refused or failed before the queue pair was connected.
    NeverConnected(CmEvent),
    /// The device under the connection was removed.
    DeviceRemoved,
    /// The device reported a fault of itself or of the connection's queues.
    Fault(DeviceFault),
    /// A call into the device failed, with this number of the OS.
    Call(&'static str, Option<i32>),
    /// The completion queue has ended that the connection shared with others.
    SharedQueue(SharedCqError),
    /// The connection ended.
    Closed(CloseReason),
}

impl CloseCause {
    /// What a failure of the device ends a connection with. `None`: with the reason that the core gives.
    pub(super) fn of_device(error: &TransportError) -> Option<Self> {
        match error {
            TransportError::DeviceRemoved => Some(CloseCause::DeviceRemoved),
            TransportError::Fault { fault, .. } => Some(CloseCause::Fault(*fault)),
            TransportError::Device { call, source } => Some(CloseCause::Call(call, source.raw_os_error())),
            TransportError::SharedQueue { cause } => Some(CloseCause::SharedQueue(*cause)),
            _ => None,
        }
    }

    /// As the error of a read or a write. `peer_gone`: the kind to use when the peer disconnected.
    pub(super) fn io_error(self, info: &Info, peer_gone: io::ErrorKind) -> io::Error {
        let kind = match self {
            CloseCause::NeverConnected(_) => io::ErrorKind::NotConnected,
            CloseCause::DeviceRemoved
            | CloseCause::Fault(_)
            | CloseCause::Call(..)
            | CloseCause::SharedQueue(_) => io::ErrorKind::ConnectionReset,
            CloseCause::Closed(CloseReason::Peer) => peer_gone,
            CloseCause::Closed(CloseReason::Protocol(_)) => io::ErrorKind::InvalidData,
            CloseCause::Closed(
                CloseReason::HandshakeTimeout { .. }
                | CloseReason::IdleTimeout { .. }
                | CloseReason::StallTimeout { .. }
                | CloseReason::KeepaliveTimeout { .. }
                | CloseReason::LocalUnfinished { .. }
                | CloseReason::Failed(FailureStatus::RetryExceeded),
            ) => io::ErrorKind::TimedOut,
            CloseCause::Closed(_) => io::ErrorKind::ConnectionReset,
        };
        io::Error::new(kind, self.error(info))
    }

    /// As the error of a connection.
    pub(super) fn error(self, info: &Info) -> TransportError {
        let (peer, device) = (info.peer_addr, info.device.kind);
        match self {
            CloseCause::Closed(CloseReason::Protocol(error)) => TransportError::Protocol(error),
            CloseCause::Closed(reason) => TransportError::Lost(reason),
            CloseCause::DeviceRemoved => TransportError::DeviceRemoved,
            CloseCause::Fault(fault) => TransportError::Fault { device: info.device.name.clone(), fault },
            CloseCause::Call(call, number) => {
                let source = number.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error);
                TransportError::Device { call, source }
            }
            CloseCause::SharedQueue(cause) => TransportError::SharedQueue { cause },
            CloseCause::NeverConnected(event) => TransportError::never_connected(event, peer, device),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{DeviceInfo, DeviceKind};
    use crate::polling::Polling;

    #[test]
    fn the_application_gets_the_error_of_the_device() {
        let addr = ([192, 0, 2, 1], 6379).into();
        let device =
            DeviceInfo { kind: DeviceKind::Verbs, name: "mlx5_0".to_owned(), mtu: None, software: false };
        let info = Info {
            device,
            local_addr: addr,
            peer_addr: addr,
            window: 0,
            windows: 1,
            peer_window: 0,
            send_buffer: 0,
            polling: Polling::Event,
            adaptive_off: None,
        };
        for error in [
            TransportError::DeviceRemoved,
            TransportError::Fault { device: "mlx5_0".to_owned(), fault: DeviceFault::QueuePair },
            TransportError::Device { call: "ibv_post_send", source: io::Error::from_raw_os_error(12) },
            TransportError::SharedQueue { cause: SharedCqError::Runtime },
        ] {
            let error_of_stream =
                CloseCause::of_device(&error).expect("it says more than the core").error(&info);
            assert_eq!(format!("{error_of_stream:?}"), format!("{error:?}"));
        }
    }
}
