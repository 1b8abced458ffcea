//! [`Endpoint`]: the address, transport, login and options of a server, a Sentinel service or a cluster; from a URL or built in code.

use std::fmt;
use std::path::Path;

use valkey_rdma_transport::Config as TransportConfig;

mod cluster;
mod error;
mod login;
mod node_address;
mod options;
mod rdma_port;
mod sentinels;
mod settings;
mod socket;
mod url;

pub use self::error::EndpointError;
use self::login::Login;
pub(crate) use self::node_address::AddressMap;
pub use self::node_address::{MappedAddress, NodeAddress};
pub use self::rdma_port::RdmaPort;
pub use self::sentinels::Sentinels;
pub use self::settings::Endpoint;
pub(crate) use self::url::authority;
use self::url::canonical;

/// The transport of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// RDMA through kernel verbs: `rdma://`.
    Rdma,
    /// The software device, for tests and trials: `emulated://`. It is not RDMA.
    Emulated,
    /// TCP: `valkey://` and `redis://`.
    Tcp,
    /// A Unix socket of this machine: `unix:///path`.
    Unix,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rdma => "rdma",
            Self::Emulated => "emulated",
            Self::Tcp => "tcp",
            Self::Unix => "unix",
        })
    }
}

impl Endpoint {
    /// The port to connect to over this transport.
    pub(crate) fn port_on(&self, transport: Transport) -> u16 {
        match transport {
            Transport::Tcp => self.tcp_port.unwrap_or(self.port),
            Transport::Rdma | Transport::Emulated | Transport::Unix => self.port,
        }
    }

    /// `host:port`, with brackets around an IPv6 address. With Sentinels, the name of the service. Of a Unix socket, its path.
    pub(crate) fn authority(&self) -> String {
        match self.sentinels {
            None if self.transport != Transport::Unix => authority(&self.host, self.port),
            _ => self.host.clone(),
        }
    }

    /// The settings of a [`Stream`](valkey_rdma_transport::Stream) that this endpoint asks for: receive window, RDMA device, GID,
    /// source address and polling. Everything else has its default.
    pub fn transport_config(&self) -> TransportConfig {
        self.apply_to(TransportConfig::default())
    }

    /// Replaces the settings that this endpoint asks for.
    pub(crate) fn apply_to(&self, config: TransportConfig) -> TransportConfig {
        self.settings.apply_to(config)
    }

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

    /// Refuses what the setters accept and no URL can say.
    pub(crate) fn check(&self) -> Result<(), EndpointError> {
        match &self.sentinels {
            _ if self.transport == Transport::Unix => self.check_socket()?,
            Some(_) if self.is_cluster() => return Err(EndpointError::SentinelHere),
            Some(sentinels) => sentinels.check()?,
            None => {
                let others = self.other_seeds.iter().flatten().map(|(host, port)| (host, *port));
                for (host, port) in others.chain([(&self.host, self.port)]) {
                    match (host.is_empty(), port) {
                        (true, _) => return Err(EndpointError::MissingHost),
                        (false, 0) => return Err(EndpointError::PortZero),
                        _ => {}
                    }
                }
            }
        }
        if self.tls.as_ref().is_some_and(|tls| tls.cert().is_some() != tls.key().is_some()) {
            return Err(EndpointError::HalfOfAPair);
        }
        if let Some(path) = self.files().find(|path| path.to_str().is_none()) {
            return Err(EndpointError::PathNotUtf8 { path: path.into() });
        }
        let mut read_back = self.clone();
        self.options().try_for_each(|(name, value)| read_back.set_option(name, &value))
    }
}

impl Endpoint {
    /// The files that it names.
    fn files(&self) -> impl Iterator<Item = &Path> {
        let of_tls = self.tls.iter().flat_map(|tls| [tls.ca(), tls.cert(), tls.key()]);
        let sentinels =
            self.sentinels.as_ref().and_then(|sentinels| sentinels.login.password_file.as_deref());
        of_tls.chain([self.password_file(), sentinels]).flatten()
    }
}

impl From<&Endpoint> for Endpoint {
    fn from(endpoint: &Endpoint) -> Self {
        endpoint.clone()
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Endpoint");
        shown.field("url", &self.to_string());
        for (name, value) in self.options().filter(|(name, _)| *name != "sentinel_password") {
            shown.field(name, &value);
        }
        shown.finish()
    }
}

#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod tests;
