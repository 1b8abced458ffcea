//! What was tried, as values: loading the libraries, a connection of a device to itself, names and routes.

use std::net::IpAddr;
use std::time::Duration;

/// What was tried on this machine. [`examine`](super::examine) judges it together with the files.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    /// Why rdma-core's libraries could not be loaded.
    pub load_error: Option<String>,
    /// The addresses of the network interfaces.
    pub interfaces: Vec<(String, IpAddr)>,
    /// Connections of devices to themselves.
    pub trials: Vec<Trial>,
    /// The host that was asked for.
    pub host: Option<HostProbe>,
}

/// A connection of a device to itself.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The device's address.
    pub address: IpAddr,
    /// What it was like, or why there was none.
    pub outcome: Result<Tried, String>,
}

/// A connection that worked.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The device's name.
    pub device: String,
    /// The path MTU in bytes, where there is one.
    pub mtu: Option<u32>,
    /// How long it took to connect and to exchange some bytes.
    pub took: Duration,
}

/// How a host can be reached.
#[derive(Clone, Debug)]
pub struct HostProbe {
    /// The host's name or address.
    pub name: String,
    /// How long resolving its name took.
    pub took: Duration,
    /// Its addresses, each with the way there; or why it has none.
    pub routes: Result<Vec<Route>, String>,
}

/// The way to an address.
#[derive(Clone, Debug)]
pub struct Route {
    /// The address.
    pub to: IpAddr,
    /// The address of this machine from which packets leave, or why there is no way.
    pub from: Result<IpAddr, String>,
}
