//! What an RDMA device speaks on the wire, and whether Valkey over RDMA can run on that.

use super::super::Root;
use super::Port;

/// What an RDMA device speaks on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Kind {
    InfiniBand,
    RoceV2,
    /// RoCE, and no entry of the GID table is for version 2.
    RoceV1,
    Iwarp,
    /// Alibaba Cloud's, which connects as iWARP does.
    Erdma,
    /// A device without reliable connections, such as Amazon's EFA.
    Datagrams,
}

impl Kind {
    pub(super) fn of(node_type: Option<&str>, driver: Option<&str>, ports: &[Port]) -> Self {
        let ethernet = ports.first().is_some_and(Port::is_ethernet);
        match (driver, node_type) {
            (Some("erdma"), _) => Self::Erdma,
            (Some("efa" | "usnic_verbs"), _) => Self::Datagrams,
            (_, Some(node)) if node.contains("RNIC") => Self::Iwarp,
            (_, Some(node)) if !node.contains("CA") => Self::Datagrams,
            _ if !ethernet => Self::InfiniBand,
            _ => {
                let gids = || ports.iter().flat_map(|port| &port.gids);
                // Without an address there is no entry to judge by.
                let version_2 = gids().count() == 0 || gids().any(|gid| gid.is_version_2());
                if version_2 { Self::RoceV2 } else { Self::RoceV1 }
            }
        }
    }

    pub(super) fn is_supported(self) -> bool {
        matches!(self, Self::InfiniBand | Self::RoceV2 | Self::Erdma)
    }
}

/// The kernel's driver of a device. Those in software have no adapter that could name it.
pub(super) fn driver(root: &Root, folder: &str, name: &str) -> Option<String> {
    if name.starts_with("siw") {
        // Its `device` is the network adapter below it.
        return Some("siw".to_owned());
    }
    if root.exists(&format!("{folder}/parent")) {
        return Some("rdma_rxe".to_owned());
    }
    root.link(&format!("{folder}/device/driver"))
}

/// The driver in user space that goes with a driver of the kernel (rdma-core, `providers/`).
pub(super) fn provider(driver: &str) -> Option<&'static str> {
    Some(match driver {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "rdma_rxe" => "rxe",
        "siw" => "siw",
        "bnxt_en" | "bnxt_re" => "bnxt_re",
        "ice" | "i40e" | "irdma" => "irdma",
        "cxgb4" => "cxgb4",
        "qede" => "qedr",
        "efa" => "efa",
        "erdma" => "erdma",
        "mana" => "mana",
        "hfi1" => "hfi1verbs",
        "hns3" => "hns",
        "vmw_pvrdma" => "vmw_pvrdma",
        _ => return None,
    })
}
