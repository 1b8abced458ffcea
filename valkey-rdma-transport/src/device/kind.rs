//! Which device a connection runs on.

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

/// The text names no device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown device {0:?}: use `verbs` or `emulated`")]
pub struct UnknownDevice(String);

impl FromStr for DeviceKind {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "verbs" => Ok(DeviceKind::Verbs),
            "emulated" => Ok(DeviceKind::Emulated),
            other => Err(UnknownDevice(other.to_owned())),
        }
    }
}
