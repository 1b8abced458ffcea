//! What RDMA devices the kernel knows, read from sysfs: to choose a source address by GID index, and to say why no
//! path was found.

use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::{Path, PathBuf};

use crate::error::{GidProblem, TransportError};

/// The devices below a folder that looks like `/sys/class/infiniband`.
pub(super) struct Sysfs {
    devices: PathBuf,
    interfaces: PathBuf,
}

/// An entry of a device's table of global identifiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Gid {
    pub(super) device: String,
    index: u32,
    ip: IpAddr,
    /// The number of the network interface that has the address.
    interface: u32,
}

impl Gid {
    /// The address it stands for. A link-local one needs the interface to mean anything.
    pub(super) fn addr(&self, port: u16) -> SocketAddr {
        match self.ip {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.interface).into()
            }
            ip => SocketAddr::new(ip, port),
        }
    }

    /// Refuses an address that was chosen too and is another.
    pub(super) fn must_stand_for(&self, wanted: IpAddr) -> Result<(), TransportError> {
        if self.ip == wanted {
            return Ok(());
        }
        let problem = GidProblem::OtherAddress { gid: self.ip, wanted };
        Err(TransportError::Gid { device: self.device.clone(), index: self.index, problem })
    }
}

/// One port of a device.
struct Port {
    device: String,
    number: u8,
    /// As the kernel names it: `ACTIVE`, `DOWN`, `INIT`, ...
    state: String,
}

impl Port {
    fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

impl Sysfs {
    /// This machine's.
    pub(super) fn of_this_machine() -> Self {
        Self::below(Path::new("/"))
    }

    /// That of the machine whose files are below `root`.
    pub(super) fn below(root: &Path) -> Self {
        Self { devices: root.join("sys/class/infiniband"), interfaces: root.join("sys/class/net") }
    }

    /// The names of all devices, in order.
    fn devices(&self) -> Vec<String> {
        names_in(&self.devices)
    }

    /// The ports of all devices.
    fn ports(&self) -> Vec<Port> {
        let of_device = |device: String| {
            let mut numbers =
                self.port_numbers(&device).iter().filter_map(|name| name.parse().ok()).collect::<Vec<u8>>();
            numbers.sort_unstable();
            numbers.into_iter().map(move |number| (device.clone(), number)).collect::<Vec<_>>()
        };
        let ports = self.devices().into_iter().flat_map(of_device);
        ports.filter_map(|(device, number)| self.port(device, number)).collect()
    }

    /// The error that a port is down.
    pub(super) fn down(&self, device: String, port: u8) -> TransportError {
        let state = self.port(device.clone(), port).map_or_else(|| "not up".to_owned(), |port| port.state);
        TransportError::PortDown { device, port, state }
    }

    fn port(&self, device: String, number: u8) -> Option<Port> {
        // Such as `4: ACTIVE`.
        let state = read(&self.devices.join(&device).join("ports").join(number.to_string()).join("state"))?;
        let state = state.split_once(": ").map_or(state.as_str(), |(_, name)| name).to_owned();
        Some(Port { device, number, state })
    }

    fn port_numbers(&self, device: &str) -> Vec<String> {
        names_in(&self.devices.join(device).join("ports"))
    }

    /// The error that a port is down, if no port is up that could serve: of the device `wanted`, or of any.
    pub(super) fn all_down(&self, wanted: Option<&str>) -> Option<TransportError> {
        let ports = self.ports();
        let mut ports = ports.into_iter().filter(|port| wanted.is_none_or(|name| name == port.device));
        let first = ports.next()?;
        let down = !first.is_active() && ports.all(|port| !port.is_active());
        let Port { device, number, state } = first;
        down.then_some(TransportError::PortDown { device, port: number, state })
    }

    /// Entry `index` of a device's table of global identifiers. `device` may be left out where there is only one.
    pub(super) fn gid(&self, device: Option<&str>, index: u32) -> Result<Gid, TransportError> {
        let known = self.devices();
        let device = match (device, &known[..]) {
            (_, []) => return Err(TransportError::NoDevice),
            (Some(name), _) => name.to_owned(),
            (None, [only]) => only.clone(),
            (None, _) => {
                let devices = known.join(", ");
                return Err(TransportError::Gid { device: devices, index, problem: GidProblem::WhichDevice });
            }
        };
        let refused = |problem| TransportError::Gid { device: device.clone(), index, problem };
        if !known.contains(&device) {
            return Err(refused(GidProblem::NoSuchDevice { known: known.join(", ") }));
        }
        let ports = self.port_numbers(&device);
        let [port] = &ports[..] else { return Err(refused(GidProblem::SeveralPorts { ports: ports.len() })) };
        let port = self.devices.join(&device).join("ports").join(port);
        if read(&port.join("link_layer")).as_deref() != Some("Ethernet") {
            return Err(refused(GidProblem::NotRoce));
        }
        let entry = read(&port.join("gids").join(index.to_string()));
        let gid = match entry.and_then(|text| text.parse::<Ipv6Addr>().ok()) {
            Some(gid) if !gid.is_unspecified() => gid,
            other => {
                let entries = names_in(&port.join("gids")).len();
                let used = used_entries(&port);
                return Err(refused(match other {
                    Some(_) => GidProblem::Empty { used },
                    None => GidProblem::OutOfRange { entries, used },
                }));
            }
        };
        // The connection manager takes the entry for RoCE version 2 wherever an address has both.
        if read(&port.join("gid_attrs/types").join(index.to_string())).as_deref() != Some("RoCE v2") {
            return Err(refused(GidProblem::NotVersion2));
        }
        let interface = read(&port.join("gid_attrs/ndevs").join(index.to_string())).unwrap_or_default();
        let interface = read(&self.interfaces.join(interface).join("ifindex"));
        let interface = interface.and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Gid { device, index, ip: gid.to_canonical(), interface })
    }
}

/// The entries that stand for an address, in order, such as `0, 1, 3`.
fn used_entries(port: &Path) -> String {
    let mut used = names_in(&port.join("gids"))
        .into_iter()
        .filter(|name| {
            let gid = read(&port.join("gids").join(name)).and_then(|text| text.parse::<Ipv6Addr>().ok());
            gid.is_some_and(|gid| !gid.is_unspecified())
        })
        .filter_map(|name| name.parse().ok())
        .collect::<Vec<u32>>();
    used.sort_unstable();
    used.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>();
    names.sort_unstable();
    names
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests;
