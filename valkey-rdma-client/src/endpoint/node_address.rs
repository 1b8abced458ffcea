//! [`NodeAddress`]: how a cluster, or a Sentinel, names a server. [`MappedAddress`]: where a program says that it is.

use std::fmt;
use std::sync::Arc;

use super::authority;

/// Host and port of a node, as its cluster announces them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeAddress {
    /// Host name or address, without brackets.
    pub host: String,
    /// The announced port: that of TCP.
    pub port: u16,
}

impl NodeAddress {
    /// An address.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }
}

/// `host:port`, with brackets around an IPv6 address.
impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

/// The mapping of announced addresses that a program supplies.
pub(crate) type AddressMap = Arc<dyn Fn(&NodeAddress) -> Option<MappedAddress> + Send + Sync>;

/// Where to connect to a node, according to [`Config::address_map`](crate::Config::address_map).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MappedAddress {
    /// Over the transport of the seeds, at this address.
    At(NodeAddress),
    /// Over TCP, at this address.
    Tcp(NodeAddress),
}
