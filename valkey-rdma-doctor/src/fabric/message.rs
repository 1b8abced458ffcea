//! What the two ends say to each other over the control connection: a line of JSON each.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use valkey_rdma_transport::raw::RemoteRegion;

use super::figures::{Figures, Side};
use super::matrix::{Link, Matrix};
use super::run::{Device, Run};

/// The version of these messages.
pub(super) const VERSION: u32 = 1;

/// One message.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub(super) enum Message {
    /// The first message of the end that leads.
    Hello { doctor: u32, device: String, queue_pairs: u32, longest: u32, patience_ms: u64 },
    /// The answer: where its queue pairs and its TCP connections are accepted.
    Welcome { rdma: SocketAddr, tcp: SocketAddr },
    /// The other answer.
    Refuse { reason: String },
    /// The memory of each queue pair, in their order, the device, and how many TCP connections were made.
    Memory { windows: Vec<Window>, device: Device, tcp: usize },
    /// Measure this. The end that drives says `Stop`, the other says `Done`.
    Run { run: Run, reverse: bool },
    /// That was all.
    Stop { messages: u64 },
    /// All of that has arrived.
    Done { side: Side },
    /// What the end that drove has measured, if that was not the one that leads.
    Measured { figures: Figures },
    /// Compare buffers of this length on this queue pair.
    Compare { lane: usize, size: u32, seed: u64, reverse: bool },
    /// The bytes are written; they may be looked at.
    Written,
    /// They were looked at; they may be read back.
    Looked,
    /// What does not match.
    Compared { differences: Vec<String> },
    /// The error that ends the session.
    Failed { reason: String },
    /// This node of a mesh is there.
    Join { node: usize, nodes: usize },
    /// Check this node of the mesh now.
    Pair { node: usize },
    /// What came of that.
    Link { link: Link },
    /// What came of all of them.
    Matrix { matrix: Matrix },
}

/// Memory that the peer may write and read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Window {
    addr: u64,
    rkey: u32,
    len: u32,
}

impl From<RemoteRegion> for Window {
    fn from(RemoteRegion { addr, rkey, len }: RemoteRegion) -> Self {
        Self { addr, rkey, len }
    }
}

impl From<Window> for RemoteRegion {
    fn from(Window { addr, rkey, len }: Window) -> Self {
        Self { addr, rkey, len }
    }
}
