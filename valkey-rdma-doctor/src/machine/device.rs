//! The kernel's RDMA devices, as sysfs describes them.

mod findings;
mod kind;
mod port;

use std::net::IpAddr;

use valkey_rdma_transport::device::obstacle;

pub(super) use self::kind::Kind;
pub(super) use self::port::Port;
use super::{Probes, Root, Trial};

/// An RDMA device.
pub(super) struct Device {
    pub(super) name: String,
    /// The file through which programs reach it, such as `/dev/infiniband/uverbs0`.
    pub(super) file: Option<String>,
    kind: Kind,
    /// The kernel's driver, such as `mlx5_core`.
    driver: Option<String>,
    firmware: Option<String>,
    board: Option<String>,
    /// The adapter's address on the PCI bus.
    pci: Option<String>,
    numa_node: Option<u32>,
    local_cpus: Option<String>,
    ports: Vec<Port>,
    interfaces: Vec<Interface>,
    /// Where it can be reached best.
    address: Option<IpAddr>,
}

/// A network interface of the device.
struct Interface {
    name: String,
    mtu: Option<u32>,
    state: Option<String>,
    addresses: Vec<IpAddr>,
}

impl Device {
    /// All devices, in the order of their names. `known` are the addresses of this machine's network interfaces.
    pub(super) fn all(root: &Root, known: &[(String, IpAddr)]) -> Vec<Self> {
        let names = root.names("/sys/class/infiniband").into_iter();
        names.map(|name| Self::read(root, name, known)).collect()
    }

    fn read(root: &Root, name: String, known: &[(String, IpAddr)]) -> Self {
        let folder = format!("/sys/class/infiniband/{name}");
        let value = |file: &str| root.value(&format!("{folder}/{file}"));
        let ports = Port::all(root, &folder);
        let driver = kind::driver(root, &folder, &name);
        let kind = Kind::of(value("node_type").as_deref(), driver.as_deref(), &ports);
        let interfaces = interface_names(root, &folder, &ports);
        let interfaces: Vec<Interface> =
            interfaces.into_iter().map(|name| Interface::read(root, name, known)).collect();
        Self {
            address: best_address(&ports, &interfaces, known),
            file: obstacle::device_file(root.folder(), &name),
            kind,
            firmware: value("fw_ver"),
            board: value("board_id").or_else(|| value("hca_type")),
            pci: root.link(&format!("{folder}/device")).filter(|link| link.contains(':')),
            numa_node: value("device/numa_node").and_then(|node| node.parse().ok()),
            local_cpus: value("device/local_cpulist"),
            name,
            driver,
            ports,
            interfaces,
        }
    }

    /// Whether connections can run on it: it carried a connection to itself, or was not tried and lacks nothing.
    pub(super) fn is_usable(&self, root: &Root, probes: &Probes) -> bool {
        self.looks_usable()
            && match self.trial(probes) {
                Some(trial) => trial.outcome.is_ok(),
                None => self.missing_provider(root).is_none(),
            }
    }

    /// Whether it is worth trying: supported, with an active port and an address.
    pub(super) fn looks_usable(&self) -> bool {
        self.kind.is_supported() && self.ports.iter().any(Port::is_active) && self.address().is_some()
    }

    /// The address at which it is the most likely to be reached.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.address
    }

    /// Its connection to itself, if that was tried.
    fn trial<'a>(&self, probes: &'a Probes) -> Option<&'a Trial> {
        let address = self.address()?;
        probes.trials.iter().find(|trial| trial.address == address)
    }

    /// What serves an address: an entry of a port's GID table, or an interface.
    pub(super) fn serves(&self, address: IpAddr) -> Option<String> {
        let gids = self.ports.iter().flat_map(|port| port.routable().map(move |gid| (port, gid)));
        let mut gids = gids.filter(|(_, gid)| gid.ip == address);
        if let Some((port, gid)) = gids.next() {
            return Some(format!("{} port {}, GID {}", self.name, port.number, gid.index));
        }
        let interface = self.interfaces.iter().find(|interface| interface.addresses.contains(&address))?;
        Some(format!("{}, interface {}", self.name, interface.name))
    }
}

impl Interface {
    /// Whether the interface is in this process's network namespace.
    fn is_visible(&self) -> bool {
        self.mtu.is_some() || self.state.is_some()
    }

    fn is_down(&self) -> bool {
        self.state.as_deref() == Some("down")
    }

    fn read(root: &Root, name: String, known: &[(String, IpAddr)]) -> Self {
        let folder = format!("/sys/class/net/{name}");
        Self {
            mtu: root.value(&format!("{folder}/mtu")).and_then(|mtu| mtu.parse().ok()),
            state: root.value(&format!("{folder}/operstate")),
            addresses: known.iter().filter(|(of, _)| *of == name).map(|(_, ip)| *ip).collect(),
            name,
        }
    }
}

/// The address at which connections are the most likely to run: one that this network namespace has, on a port and an
/// interface that are up. The GID table of an adapter that pods share has their host's addresses too, often first.
fn best_address(ports: &[Port], interfaces: &[Interface], known: &[(String, IpAddr)]) -> Option<IpAddr> {
    let mut candidates = Vec::new();
    for port in ports {
        for gid in port.routable() {
            let mut of_gid =
                interfaces.iter().filter(|interface| gid.interface.as_ref() == Some(&interface.name));
            candidates.push((gid.ip, port.is_active() && !of_gid.any(Interface::is_down)));
        }
    }
    for interface in interfaces {
        let addresses = interface.addresses.iter().filter(|ip| !is_link_local(**ip));
        candidates.extend(addresses.map(|ip| (*ip, !interface.is_down())));
    }
    // Of equal ones, the first.
    let best = candidates.into_iter().min_by_key(|(ip, is_up)| {
        let is_here = known.iter().any(|(_, known)| known == ip);
        (!is_here, !is_up)
    });
    best.map(|(ip, _)| ip)
}

/// The network interfaces of a device: those that its GIDs name, that of soft-RoCE, and those of the same adapter.
fn interface_names(root: &Root, folder: &str, ports: &[Port]) -> Vec<String> {
    let mut names: Vec<String> =
        ports.iter().flat_map(|port| &port.gids).filter_map(|gid| gid.interface.clone()).collect();
    names.extend(root.value(&format!("{folder}/parent")));
    if names.is_empty() {
        names = root.names(&format!("{folder}/device/net"));
    }
    names.sort();
    names.dedup();
    names
}

/// Whether an address means something on one link only.
pub(super) fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}
