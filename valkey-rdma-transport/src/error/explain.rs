//! The system's errors, and what its numbers mean here: a failed call, a status of the connection manager, a limit.
//! The texts of failed completions are in `valkey-rdma-proto/src/work.rs`: `FailureStatus`.

use std::error::Error;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::{fmt, io, iter};

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// An error of the operating system. Clones are the same error. It stands for the [`io::Error`] in it: that is the source of the
/// [`TransportError`](super::TransportError) which holds it.
#[derive(Clone)]
pub struct SystemError(Arc<io::Error>);

impl Deref for SystemError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl<E: Into<io::Error>> From<E> for SystemError {
    fn from(error: E) -> Self {
        Self(Arc::new(error.into()))
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Whether `error` has come about because this process, or this machine, may open no more descriptors. Looks at the whole chain of
/// sources. For our other crates.
#[doc(hidden)]
pub fn is_out_of_descriptors(error: &(dyn Error + 'static)) -> bool {
    let chain = iter::successors(Some(error), |&error| error.source());
    let mut system = chain.filter_map(|error| error.downcast_ref::<io::Error>());
    system.any(|error| matches!(error.raw_os_error(), Some(EMFILE | ENFILE)))
}

/// The process's limit is reached. Every Unix has this number; the standard library has no name for it.
pub(super) const EMFILE: i32 = 24;

/// The machine's limit is reached.
pub(super) const ENFILE: i32 = 23;

/// The soft limit on open descriptors, if there is one.
pub(crate) fn descriptor_limit() -> Option<u64> {
    soft_limit(Resource::RLIMIT_NOFILE)
}

/// The soft limit on locked memory in bytes, if there is one.
#[cfg(feature = "verbs")]
pub(crate) fn memlock_limit() -> Option<u64> {
    soft_limit(Resource::RLIMIT_MEMLOCK)
}

/// The soft limit of a resource. `None`: there is no limit, or the system does not say.
#[allow(clippy::useless_conversion, reason = "the system's type has 32 bits on 32-bit machines")]
fn soft_limit(resource: Resource) -> Option<u64> {
    let (soft, _) = getrlimit(resource).ok()?;
    (soft != RLIM_INFINITY).then(|| soft.into())
}

/// What to do about an OS error of a call into the device, where the number has a usual cause.
pub(super) fn device_hint(error: &io::Error) -> &'static str {
    // `io::ErrorKind` has no name for this one.
    const ENODEV: i32 = 19;

    match (error.raw_os_error(), error.kind()) {
        (None, _) => "",
        (_, io::ErrorKind::OutOfMemory) => {
            " (the device has no queue pair, completion queue or memory left: compare max_qp, max_cq and max_mr of \
             `ibv_devinfo -v`; or the memlock limit is too low: `ulimit -l`. Hold fewer connections, or ask for shallower \
             queues: send_depth, receive_depth)"
        }
        (_, io::ErrorKind::InvalidInput) => {
            " (the device or its driver does not accept a setting: compare send_depth, receive_depth and max_inline with \
             `ibv_devinfo -v`, or leave them at their defaults)"
        }
        (_, io::ErrorKind::PermissionDenied) => {
            " (this user may not use the device: check the permissions of /dev/infiniband/* and the memlock limit, \
             `ulimit -l`)"
        }
        (_, io::ErrorKind::Unsupported) => {
            " (the device, its driver or the kernel cannot do this: update rdma-core and the kernel)"
        }
        (Some(ENODEV), _) => " (the device is gone, or its driver is not loaded: check `rdma link`)",
        _ => "",
    }
}

/// A status of the connection manager: a negated number of the OS, or a number of its own.
pub(super) fn status_text(status: i32) -> String {
    match status.checked_neg().filter(|number| *number > 0) {
        Some(number) => {
            format!("{}, connection manager status {status}", io::Error::from_raw_os_error(number))
        }
        None => format!("connection manager status {status}"),
    }
}

/// A limit in bytes, where there is one.
pub(super) fn limit_text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "none".to_owned(), |bytes| format!("{bytes} bytes"))
}

/// Why a GID index cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GidProblem {
    /// The table is shorter.
    #[error("its table has {entries} entries, of which these are in use: {used}")]
    OutOfRange {
        /// The length of the table.
        entries: usize,
        /// The entries in use, separated by commas.
        used: String,
    },
    /// The entry stands for no address.
    #[error("the entry is empty; these are in use: {used}")]
    Empty {
        /// The entries in use, separated by commas.
        used: String,
    },
    /// The entry stands for another address than the one asked for as well.
    #[error("it stands for {gid}, and {wanted} was asked for too: leave one of the two out")]
    OtherAddress {
        /// What the entry stands for.
        gid: IpAddr,
        /// The source address, or the address to listen on.
        wanted: IpAddr,
    },
    /// The entry is for version 1 of RoCE.
    #[error("the entry is not for RoCE v2, which connections use: choose one that is (`ibv_devinfo -v`)")]
    NotVersion2,
    /// The link is InfiniBand.
    #[error(
        "its link is not Ethernet, so that no entry stands for an address: choose by source address instead"
    )]
    NotRoce,
    /// There are several devices, and none was named.
    #[error("this machine has several RDMA devices: add device=NAME")]
    WhichDevice,
    /// There is no such device.
    #[error("there is no such device; there are: {known}")]
    NoSuchDevice {
        /// The devices there are, separated by commas.
        known: String,
    },
    /// There are several ports.
    #[error("it has {ports} ports, each with a table of its own: choose by source address instead")]
    SeveralPorts {
        /// How many there are.
        ports: usize,
    },
}

/// The whole error: which index, of which device, and why not.
pub(super) fn gid_text(device: &str, index: u32, problem: &GidProblem) -> String {
    match problem {
        // Here `device` lists all of them.
        GidProblem::WhichDevice => format!(
            "GID index {index} is ambiguous, because this machine has several RDMA devices: {device}; add device=NAME"
        ),
        problem => format!("GID index {index} of RDMA device {device} cannot be used: {problem}"),
    }
}
