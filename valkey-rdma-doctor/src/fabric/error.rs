//! Why a check ended early.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::address::listen_advice;
use valkey_rdma_transport::raw::FailureStatus;

/// Why a check, or a session of a service, ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// The service's address cannot be listened on.
    #[error("cannot listen on {addr}{}: {source}", listen_advice(*.addr, .source))]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// Nothing answers at the address.
    #[error("cannot connect to {addr}: {source}; is `valkey-rdma-doctor listen {addr}` running there?")]
    Connect {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// What answers is something else, or too different a version.
    #[error("{peer} is not a valkey-rdma-doctor of this version ({reason})")]
    Stranger {
        /// The peer.
        peer: SocketAddr,
        /// What it said.
        reason: String,
    },
    /// The service does not want to.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// Its reason.
        reason: String,
    },
    /// The peer's process or connection is gone.
    #[error("{peer} vanished during {during}: its process ended, or the network between us did")]
    Vanished {
        /// The peer.
        peer: SocketAddr,
        /// What was in progress.
        during: String,
    },
    /// The peer does not answer any more.
    #[error(
        "{peer} is silent since {limit:?} during {during}: cable, switch or host down, or the process is stopped"
    )]
    Silent {
        /// The peer.
        peer: SocketAddr,
        /// What was in progress.
        during: String,
        /// How long it was waited for.
        limit: Duration,
    },
    /// Something failed at the peer.
    #[error("{peer} failed during {during}: {reason}")]
    Peer {
        /// The peer.
        peer: SocketAddr,
        /// What was in progress.
        during: String,
        /// Its error.
        reason: String,
    },
    /// Something failed on this side.
    #[error("{during} failed: {}{}", valkey_rdma_program::error_chain(.source), advice(.source))]
    Device {
        /// What was in progress.
        during: String,
        /// The error.
        source: TransportError,
    },
    /// A message longer than the device can send.
    #[error("a size of {asked} bytes is beyond device {device}: its messages have at most {limit} bytes")]
    Size {
        /// The device.
        device: String,
        /// The size asked for.
        asked: u32,
        /// The longest there is.
        limit: u32,
    },
    /// This process may open no more descriptors.
    #[error("cannot prepare to measure: {0}; `ulimit -n` shows how many descriptors a process may have")]
    Descriptors(io::Error),
    /// The TCP connections to measure beside failed.
    #[error("tcp failed: {0}")]
    Tcp(io::Error),
    /// No address of the list belongs to this machine and is free.
    #[error("none of {list} is an address of this machine with a free port (`ip address`): {source}")]
    NotInMesh {
        /// The addresses.
        list: String,
        /// Why the last one cannot be used.
        source: Box<FabricError>,
    },
}

/// What to do about an error of this side's device, where its text does not say it.
fn advice(error: &TransportError) -> &'static str {
    match error {
        TransportError::WorkRequest { status: FailureStatus::LocalQueuePair, .. } => {
            "; the device could not send: is its port still up? `valkey-rdma-doctor` without arguments shows it"
        }
        _ => "",
    }
}

/// Why a run failed on this side.
pub(super) enum Failure {
    Device(TransportError),
    Tcp(io::Error),
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Self {
        Self::Device(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Tcp(error)
    }
}
