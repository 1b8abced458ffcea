//! [`PeerOptions`]: settings of a raw peer.

use std::time::Duration;

use valkey_rdma_transport::device::DeviceOptions;

/// Settings of a peer.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Receives posted before connecting. Default 1024, as the specification asks; range 1 to 1024.
    pub receives: u32,
    /// How long to wait for anything that must come. Default 5 s.
    pub patience: Duration,
    /// The RDMA device to use. Default: the one the route leads to.
    pub device: Option<String>,
    /// Index into the device's table of GIDs, which chooses the address to connect from. Default: the route decides.
    pub gid: Option<u32>,
    /// READs of the other side at once. Default 0: as for peers that know none, the request asks for 1, and none is expected.
    pub read_depth: u8,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self { receives: DEPTH, patience: Duration::from_secs(5), device: None, gid: None, read_depth: 0 }
    }
}

impl PeerOptions {
    /// For a device, with queues of [`DEPTH`].
    pub(super) fn device_options(&self) -> DeviceOptions {
        DeviceOptions {
            send_depth: DEPTH,
            receive_depth: DEPTH,
            max_inline: 0,
            address_timeout: self.patience,
            route_timeout: self.patience,
            device: self.device.clone(),
            gid: self.gid,
            read_depth: self.read_depth,
            ..DeviceOptions::default()
        }
    }
}

/// Depth of both queues, and so the most receives.
pub(super) const DEPTH: u32 = 1024;
