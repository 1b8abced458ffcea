//! What a device is, what it granted, and what it and the connection manager report outside of completions.

use std::fmt;
use std::str::FromStr;

/// The implementations of the device contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// Kernel verbs through rdma-core: a real adapter, or soft-RoCE.
    Verbs,
    /// Software, within this process or over sockets. For tests and trials: it is not RDMA, and its
    /// speed says nothing of RDMA's. Needs the cargo feature `emulated`.
    Emulated,
}

impl DeviceKind {
    /// Whether this build has the device: the cargo features `verbs` and `emulated`.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            DeviceKind::Verbs => cfg!(feature = "verbs"),
            DeviceKind::Emulated => cfg!(feature = "emulated"),
        }
    }

    /// The URL scheme that names this device.
    pub fn scheme(self) -> &'static str {
        match self {
            DeviceKind::Verbs => "rdma",
            DeviceKind::Emulated => "emulated",
        }
    }
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DeviceKind::Verbs => "verbs",
            DeviceKind::Emulated => "emulated",
        })
    }
}

/// A text that names none of the choices there are, as the error of `parse`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} {text:?}: use {choices}")]
pub struct UnknownName {
    what: &'static str,
    text: String,
    choices: &'static str,
}

impl UnknownName {
    pub(crate) fn new(what: &'static str, text: &str, choices: &'static str) -> Self {
        Self { what, text: text.to_owned(), choices }
    }
}

impl FromStr for DeviceKind {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "verbs" => Ok(DeviceKind::Verbs),
            "emulated" => Ok(DeviceKind::Emulated),
            other => Err(UnknownName::new("device", other, "`verbs` or `emulated`")),
        }
    }
}

/// What a device granted when the connection was made.
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
    /// How many connections with queues as deep have room in its completion queue. 1: it has that queue to itself.
    pub cq_members: u32,
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
