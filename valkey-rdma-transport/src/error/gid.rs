//! Why a GID index cannot be used.

use std::net::IpAddr;

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
