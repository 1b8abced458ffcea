//! The kernel: its RDMA modules, and the device files through which programs reach them.

use std::io;

use super::{Container, Distribution, Root};
use crate::report::{Finding, Section};

/// What programs need of the kernel besides the adapter's driver: the module, and what shows that it is there even if it is
/// built in.
const NEEDED: [(&str, &str); 2] =
    [("ib_uverbs", "/sys/class/infiniband_verbs"), ("rdma_ucm", "/sys/class/misc/rdma_cm")];

pub(super) fn section(
    root: &Root,
    container: Container,
    distribution: Distribution,
    has_device: bool,
) -> Section {
    let mut section = Section::new("kernel");
    let release = release(root);
    section.push(Finding::note("kernel", format!("Linux {release}")));
    let missing: Vec<&str> = NEEDED
        .iter()
        .filter(|(module, sign)| !root.exists(&format!("/sys/module/{module}")) && !root.exists(sign))
        .map(|(module, _)| *module)
        .collect();
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
        section.push(device_files(root, container, has_device));
    }
    section
}

/// Whether programs can open the device files.
fn device_files(root: &Root, container: Container, has_device: bool) -> Finding {
    let mut files = vec!["/dev/infiniband/rdma_cm".to_owned()];
    let verbs = root.names("/sys/class/infiniband_verbs");
    files.extend(
        verbs.iter().filter(|name| name.starts_with("uverbs")).map(|name| format!("/dev/infiniband/{name}")),
    );
    if has_device && files.len() == 1 {
        files.push("/dev/infiniband/uverbs0".to_owned());
    }
    let refused = files.iter().find_map(|file| Some((file, root.cannot_open(file)?)));
    let Some((file, error)) = refused else { return Finding::ok("device files", files.join(" ")) };
    match error.kind() {
        io::ErrorKind::NotFound => {
            let finding = Finding::problem("device files", format!("{file} is missing"));
            if container.is_one() {
                finding.remedy(container.start())
            } else {
                finding.remedy("`udevadm trigger`; then look for errors: `journalctl -u systemd-udevd`")
            }
        }
        _ => Finding::problem("device files", format!("{file} cannot be opened: {error}"))
            .remedy("this user may not use the device: `chmod 0666 /dev/infiniband/rdma_cm /dev/infiniband/uverbs*`")
            .remedy("at every boot: a rule with MODE=\"0666\" for them in /etc/udev/rules.d"),
    }
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
