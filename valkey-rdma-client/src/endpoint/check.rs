//! Which settings of an [`Endpoint`] are possible, and possible together.

use valkey_rdma_transport::Polling;

use super::{Endpoint, EndpointError, RdmaPort, Transport};

/// [`Endpoint::RX_SIZES`] in words.
pub(super) const ALLOWED_RX_SIZES: &str = "a number of bytes from 65536 to 16777216";

pub(super) const ALLOWED_DEVICES: &str = "the name of an RDMA device";

impl Endpoint {
    /// Refuses Sentinels and clusters, where the address must be that of a server.
    pub(crate) fn check_direct(&self) -> Result<(), EndpointError> {
        match (&self.sentinels, &self.other_seeds) {
            (Some(_), _) => Err(EndpointError::SentinelHere),
            (None, Some(_)) => Err(EndpointError::ClusterHere),
            (None, None) => Ok(()),
        }
    }

    /// Refuses a cluster, and what only makes sense for one, where one server is needed.
    pub(crate) fn check_single(&self) -> Result<(), EndpointError> {
        match self.rdma_port {
            _ if self.is_cluster() => Err(EndpointError::ClusterHere),
            RdmaPort::Same => Ok(()),
            _ if self.sentinels.is_some() => Ok(()),
            _ => Err(EndpointError::OnlyForClusters { option: "rdma_port" }),
        }
    }

    /// Checks values that the setters accept, and combinations.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        match &self.sentinels {
            Some(sentinels) => sentinels.check()?,
            None if self.host.is_empty() => return Err(EndpointError::MissingHost),
            None if self.port == 0 => return Err(EndpointError::PortZero),
            None => {}
        }
        for (host, port) in self.other_seeds.iter().flatten() {
            match (host.is_empty(), port) {
                (true, _) => return Err(EndpointError::MissingHost),
                (false, 0) => return Err(EndpointError::PortZero),
                _ => {}
            }
        }
        if self.sentinels.is_some() && self.is_cluster() {
            return Err(EndpointError::SentinelHere);
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
        let bad = |name: &str, value: String, allowed| {
            Err(EndpointError::BadOption { name: name.to_owned(), value, allowed })
        };
        match (self.rx_size, &self.device, self.rdma_port) {
            (Some(bytes), ..) if !Self::RX_SIZES.contains(&bytes) => {
                bad("rx_size", bytes.to_string(), ALLOWED_RX_SIZES)
            }
            (_, Some(name), _) if name.is_empty() => bad("device", name.clone(), ALLOWED_DEVICES),
            (.., rule @ (RdmaPort::Offset(0) | RdmaPort::Fixed(0))) => {
                bad("rdma_port", rule.to_string(), super::rdma_port::ALLOWED)
            }
            _ => Ok(()),
        }
    }
}
