//! Which settings of an [`Endpoint`] are possible, and possible together.

use valkey_rdma_transport::Polling;

use super::{Endpoint, EndpointError, RdmaPort, Transport};

/// [`Endpoint::RX_SIZES`] in words.
pub(super) const ALLOWED_RX_SIZES: &str = "a number of bytes from 65536 to 16777216";

impl Endpoint {
    /// Refuses Sentinels, where the address must be that of a server.
    pub(crate) fn check_direct(&self) -> Result<(), EndpointError> {
        if self.sentinels.is_some() { Err(EndpointError::SentinelHere) } else { Ok(()) }
    }

    /// Refuses what only makes sense for a cluster.
    pub(crate) fn check_single(&self) -> Result<(), EndpointError> {
        match self.rdma_port {
            RdmaPort::Same => Ok(()),
            _ if self.sentinels.is_some() => Ok(()),
            _ => Err(EndpointError::OnlyForClusters { option: "rdma_port" }),
        }
    }

    /// Checks values that the setters accept, and combinations.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        if self.host.is_empty() {
            return Err(EndpointError::MissingHost);
        }
        if self.transport != Transport::Rdma && self.gid.is_some() {
            return Err(EndpointError::OnlyOnRdma { option: "gid" });
        }
        if self.transport == Transport::Emulated && self.source.is_some() {
            return Err(EndpointError::NotOnEmulated { option: "source" });
        }
        let not_on_tcp = [
            ("rx_size", self.rx_size.is_some()),
            ("device", self.device.is_some()),
            ("fallback", self.fallback),
            ("poll", self.polling != Polling::default()),
            ("rdma_port", self.rdma_port != RdmaPort::Same),
        ];
        if self.transport == Transport::Tcp
            && let Some((option, _)) = not_on_tcp.into_iter().find(|(_, is_set)| *is_set)
        {
            return Err(EndpointError::NotOnTcp { option });
        }
        match self.rx_size {
            Some(bytes) if !Self::RX_SIZES.contains(&bytes) => Err(EndpointError::BadOption {
                name: "rx_size".to_owned(),
                value: bytes.to_string(),
                allowed: ALLOWED_RX_SIZES,
            }),
            _ => Ok(()),
        }
    }
}
