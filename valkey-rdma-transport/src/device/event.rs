//! What the connection manager and the device report outside of completions.

/// What the connection manager reports about one connection.
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

/// The listener's owner said no (IB CM reject reason "consumer defined"; Linux `IB_CM_REJ_CONSUMER_DEFINED`).
pub(crate) const REASON_CONSUMER: i32 = 28;

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

/// Why a completion queue that connections [share](super::SharedCq) has ended:
/// [`TransportError::SharedQueue`](crate::TransportError::SharedQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SharedCqError {
    /// A call into the device failed, or the device reported a fault of the queue. The log has the details. Connect
    /// again.
    #[error("the RDMA device reported an error on it (details in the log); connect again")]
    Failed,
    /// The runtime that made the first of the connections has shut down. Use one group per runtime.
    #[error("the runtime that made the first of them has shut down; use one SharedCq per runtime")]
    Runtime,
}
