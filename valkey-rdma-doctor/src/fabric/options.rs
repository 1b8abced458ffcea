//! What to check, and with what.

use std::time::Duration;

use valkey_rdma_transport::raw::DeviceOptions;
use valkey_rdma_transport::{DeviceKind, Polling};

use super::run::Operation;

/// What to check, and with what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device.
    pub kind: DeviceKind,
    /// The name of the RDMA device. `None`: the one that the route leads to.
    pub device: Option<String>,
    /// The entry of the device's GID table to connect from. `None`: the one that the route leads to.
    pub gid: Option<u32>,
    /// Queue pairs that carry bytes at once.
    pub queue_pairs: u32,
    /// Lengths of messages in bytes.
    pub sizes: Vec<u32>,
    /// What is measured.
    pub operations: Vec<Operation>,
    /// How completions are waited for.
    pub polling: Vec<Polling>,
    /// How long each figure is measured.
    pub time: Duration,
    /// Whether TCP is measured beside.
    pub tcp: bool,
    /// Whether the peer sends too.
    pub both_ways: bool,
    /// How long a peer may be silent.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: DeviceKind::Verbs,
            device: None,
            gid: None,
            queue_pairs: 1,
            sizes: vec![1, 64, 4 << 10, 64 << 10, 1 << 20, 8 << 20],
            operations: Operation::ALL.to_vec(),
            polling: vec![Polling::Event, Polling::Busy],
            time: Duration::from_millis(100),
            tcp: true,
            both_ways: true,
            patience: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// The length of the longest message.
    pub(super) fn longest(&self) -> u32 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }

    /// What is asked of the device. A service connects from nowhere, and takes no GID.
    pub(super) fn device_options(&self) -> DeviceOptions {
        DeviceOptions {
            send_depth: SEND_DEPTH,
            receive_depth: RECEIVES,
            device: self.device.clone(),
            gid: self.gid,
            read_depth: READ_DEPTH,
            ..DeviceOptions::default()
        }
    }
}

/// Work requests in the send queue at most: the messages in flight, and answers of an earlier run, which complete with a later message.
pub(super) const SEND_DEPTH: u32 = 256;

/// Receives posted on each queue pair at any time.
pub(super) const RECEIVES: u32 = 512;

/// What common adapters can.
const READ_DEPTH: u8 = 16;

/// What is reported while a check runs: how many steps are done, of how many, and the next one.
pub type Progress<'a> = &'a dyn Fn(usize, usize, &str);
