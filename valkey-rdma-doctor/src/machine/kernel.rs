//! The kernel: its RDMA modules, and the device files through which programs reach them.

use valkey_rdma_transport::device::obstacle::{self, Obstacle};

use super::{Container, Device, Distribution, Root};
use crate::report::{Finding, Section};

pub(super) fn section(
    root: &Root,
    container: Container,
    distribution: Distribution,
    devices: &[Device],
    usable: &[&Device],
) -> Section {
    let mut section = Section::new("kernel");
    let release = release(root);
    section.push(Finding::note("kernel", format!("Linux {release}")));
    let missing = obstacle::missing_modules(root.folder());
    let absent: Vec<&str> =
        missing.iter().copied().filter(|module| module_file(root, module) == ModuleFile::Absent).collect();
    section.push(if missing.is_empty() {
        Finding::ok("modules", "ib_uverbs and rdma_ucm are loaded")
    } else if !absent.is_empty() {
        let value = format!("not loaded, and not part of this kernel: {}", absent.join(", "));
        Finding::problem("modules", value).remedy(distribution.install_modules(&release))
    } else {
        let list = missing.join(" ");
        let finding = Finding::problem("modules", format!("not loaded: {list}"));
        let place = if container.is_one() { "on the host: " } else { "" };
        finding
            .remedy(format!("{place}`modprobe -a {list}`"))
            .remedy("at every boot: write these names, one a line, into /etc/modules-load.d/rdma.conf")
    });
    // Without its module a device file cannot be there.
    if missing.is_empty() {
        section.findings.extend(device_files(root, container, devices, usable));
    }
    section
}

/// Whether programs can open the device files: that of the connection manager, and those of the usable devices. The files
/// of other devices are needed only where no device is usable.
fn device_files(root: &Root, container: Container, devices: &[Device], usable: &[&Device]) -> Vec<Finding> {
    let is_needed = |device: &&Device| usable.is_empty() || usable.iter().any(|one| one.name == device.name);
    let (needed, spare): (Vec<&Device>, Vec<&Device>) = devices.iter().partition(is_needed);
    let mut files = vec![obstacle::CM_FILE];
    files.extend(needed.iter().filter_map(|device| device.file.as_deref()));
    let refused = files.iter().find_map(|file| refusal(root, file, container));

    let mut warnings = Vec::new();
    for file in spare.iter().filter_map(|device| device.file.as_deref()) {
        match refusal(root, file, container) {
            Some(finding) => warnings.push(finding.at_most_a_warning()),
            None => files.push(file),
        }
    }
    let mut findings = vec![refused.unwrap_or_else(|| Finding::ok("device files", files.join(" ")))];
    findings.append(&mut warnings);
    findings
}

/// A problem, if a device file cannot be opened.
fn refusal(root: &Root, file: &str, container: Container) -> Option<Finding> {
    let obstacle = Obstacle::of_file(root.folder(), file)?;
    let finding = Finding::problem("device files", obstacle.to_string());
    Some(match obstacle {
        Obstacle::Missing { .. } if container.is_one() => finding.remedy(container.start()),
        _ => finding.remedy(obstacle.remedy()),
    })
}

/// The kernel's release, such as `6.1.0-40-amd64`.
pub(super) fn release(root: &Root) -> String {
    root.value("/proc/sys/kernel/osrelease").unwrap_or_else(|| "of unknown release".to_owned())
}

/// Whether a module could be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModuleFile {
    Present,
    Absent,
    /// This kernel's modules are not in this file system, as in most containers.
    Unknown,
}

pub(super) fn module_file(root: &Root, module: &str) -> ModuleFile {
    let folder = format!("/lib/modules/{}", release(root));
    let Some(loadable) = root.read(&format!("{folder}/modules.dep")) else { return ModuleFile::Unknown };
    let built_in = root.read(&format!("{folder}/modules.builtin")).unwrap_or_default();
    let file = format!("/{module}.ko");
    // Each line is `kernel/drivers/.../rdma_rxe.ko.xz: what it needs`.
    let found = loadable
        .lines()
        .chain(built_in.lines())
        .any(|line| line.split(':').next().is_some_and(|path| path.contains(&file)));
    if found { ModuleFile::Present } else { ModuleFile::Absent }
}
