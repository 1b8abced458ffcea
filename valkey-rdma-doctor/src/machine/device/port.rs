//! A port of a device, with its table of global identifiers.

use std::net::{IpAddr, Ipv6Addr};

use super::super::Root;
use super::is_link_local;

/// A port of an RDMA device.
pub(in super::super) struct Port {
    pub(super) number: String,
    /// Such as `ACTIVE`.
    pub(super) state: String,
    /// Such as `LinkUp`.
    pub(super) physical: Option<String>,
    pub(super) rate: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub(super) link_layer: Option<String>,
    pub(super) gids: Vec<Gid>,
    /// How long the table is.
    pub(super) entries: usize,
}

/// An entry of the table that is in use.
pub(in super::super) struct Gid {
    pub(super) index: u32,
    /// The address it stands for, if the port is Ethernet.
    pub(super) ip: IpAddr,
    /// Such as `RoCE v2`.
    pub(super) version: Option<String>,
    /// The network interface that has the address.
    pub(super) interface: Option<String>,
}

impl Port {
    pub(super) fn all(root: &Root, device: &str) -> Vec<Self> {
        let numbers = root.names(&format!("{device}/ports")).into_iter();
        numbers.map(|number| Self::read(root, device, number)).collect()
    }

    fn read(root: &Root, device: &str, number: String) -> Self {
        let folder = format!("{device}/ports/{number}");
        let value = |file: &str| root.value(&format!("{folder}/{file}"));
        // Such as `4: ACTIVE`.
        let name = |file: &str| {
            let text = value(file)?;
            Some(text.split_once(": ").map_or(text.clone(), |(_, name)| name.to_owned()))
        };
        let indices = root.names(&format!("{folder}/gids"));
        let gids = indices.iter().filter_map(|index| {
            let gid: Ipv6Addr = value(&format!("gids/{index}"))?.parse().ok()?;
            (!gid.is_unspecified()).then_some(Gid {
                index: index.parse().ok()?,
                ip: gid.to_canonical(),
                version: value(&format!("gid_attrs/types/{index}")),
                interface: value(&format!("gid_attrs/ndevs/{index}")),
            })
        });
        Self {
            state: name("state").unwrap_or_else(|| "of unknown state".to_owned()),
            physical: name("phys_state"),
            rate: value("rate"),
            link_layer: value("link_layer"),
            gids: gids.collect(),
            entries: indices.len(),
            number,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    pub(super) fn is_ethernet(&self) -> bool {
        self.link_layer.as_deref() == Some("Ethernet")
    }

    /// The entries that connections to other machines use.
    pub(super) fn routable(&self) -> impl Iterator<Item = &Gid> {
        let ethernet = self.is_ethernet();
        self.gids.iter().filter(move |gid| ethernet && gid.is_version_2() && !is_link_local(gid.ip))
    }
}

impl Gid {
    pub(super) fn is_version_2(&self) -> bool {
        self.version.as_deref() == Some("RoCE v2")
    }
}
