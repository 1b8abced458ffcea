//! Where there is no usable device: adapters whose RDMA driver is missing, and soft-RoCE.

use super::kernel::{ModuleFile, module_file, release};
use super::{Container, Device, Distribution, Root};
use crate::report::{Finding, Section};

pub(super) fn section(
    root: &Root,
    devices: &[Device],
    container: Container,
    distribution: Distribution,
) -> Section {
    let mut section = Section::new("devices");
    let adapters = idle_adapters(root);
    if devices.is_empty() {
        let finding = Finding::problem("devices", "this machine has no RDMA device");
        section.push(match (&adapters[..], container.is_one()) {
            ([], true) => finding.remedy(format!("if the host has one: {}", container.start())),
            ([], false) => finding
                .remedy("with an RDMA adapter: load its driver (`lspci -k` names adapters and drivers)")
                .remedy("without one: soft-RoCE, below"),
            _ => finding.remedy("load the adapter's RDMA driver, below"),
        });
    }
    for (pci, driver, module) in adapters {
        let value =
            format!("PCI {pci}, driver {driver}: models of this kind do RDMA, but {module} is not loaded");
        section.push(Finding::note("adapter", value).remedy(format!("`modprobe {module}`")));
    }
    section.push(soft_roce(root, container, distribution));
    section
}

/// Network adapters whose driver has a companion for RDMA that is not loaded: PCI address, driver, companion.
fn idle_adapters(root: &Root) -> Vec<(String, String, &'static str)> {
    let addresses = root.names("/sys/bus/pci/devices").into_iter();
    let with_driver = addresses.filter_map(|pci| {
        let driver = root.link(&format!("/sys/bus/pci/devices/{pci}/driver"))?;
        let module = match driver.as_str() {
            "mlx5_core" => "mlx5_ib",
            "mlx4_core" => "mlx4_ib",
            "bnxt_en" => "bnxt_re",
            "ice" | "i40e" => "irdma",
            "cxgb4" => "iw_cxgb4",
            "qede" => "qedr",
            "mana" => "mana_ib",
            "hns3" => "hns_roce_hw_v2",
            _ => return None,
        };
        Some((pci, driver, module))
    });
    with_driver.filter(|(_, _, module)| !root.exists(&format!("/sys/module/{module}"))).collect()
}

/// Whether RDMA can be had in software, and how.
fn soft_roce(root: &Root, container: Container, distribution: Distribution) -> Finding {
    let loaded = root.exists("/sys/module/rdma_rxe");
    let place = if container.is_one() { "on the host: " } else { "" };
    let interface = interface(root);
    let add = format!("{place}`rdma link add rxe0 type rxe netdev {interface}`");
    let commands = |finding: Finding| {
        let finding = if loaded { finding } else { finding.remedy(format!("{place}`modprobe rdma_rxe`")) };
        let finding = finding.remedy(add.clone());
        if has_rdma_command(root) {
            finding
        } else {
            finding.remedy(format!("(`rdma` is missing: {})", distribution.install("iproute2", "iproute")))
        }
    };
    match module_file(root, "rdma_rxe") {
        _ if loaded => {
            commands(Finding::note("soft-roce", "loaded: RDMA in software, on any network interface"))
        }
        ModuleFile::Present => {
            commands(Finding::note("soft-roce", "available: RDMA in software, on any network interface"))
        }
        ModuleFile::Absent => {
            Finding::note("soft-roce", format!("kernel {} does not have it (rdma_rxe)", release(root)))
                .remedy(format!("{place}{}", distribution.install_modules(&release(root))))
                .remedy("without it: `emulated://` URLs, and `listen` and `check` with `--device emulated`, need no RDMA at all")
        }
        ModuleFile::Unknown => commands(Finding::note(
            "soft-roce",
            "not loaded; the kernel's modules are not in this file system, so try:",
        )),
    }
}

/// The interface of the default route, or the first that is not loopback.
fn interface(root: &Root) -> String {
    let routes = root.read("/proc/net/route").unwrap_or_default();
    let default = routes.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then(|| interface.to_owned())
    });
    // On InfiniBand's own interfaces there is no soft-RoCE.
    let is_ethernet = |name: &String| {
        name != "lo" && root.value(&format!("/sys/class/net/{name}/type")).as_deref() != Some(INFINIBAND)
    };
    let any = || root.names("/sys/class/net").into_iter().find(is_ethernet);
    default.or_else(any).unwrap_or_else(|| "NETDEV".to_owned())
}

/// `ARPHRD_INFINIBAND` (`linux/if_arp.h`).
const INFINIBAND: &str = "32";

fn has_rdma_command(root: &Root) -> bool {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin"].iter().any(|folder| root.exists(&format!("{folder}/rdma")))
}
