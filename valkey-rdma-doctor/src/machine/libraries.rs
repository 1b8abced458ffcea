//! The libraries of rdma-core, as this process has loaded them.

use super::{Distribution, Probes, Root};
use crate::report::{Finding, Section};

/// The oldest rdma-core with all functions that connections use.
const OLDEST: u32 = 35;

pub(super) fn section(root: &Root, probes: &Probes, distribution: Distribution) -> Section {
    let mut section = Section::new("libraries");
    let maps = root.read("/proc/self/maps").unwrap_or_default();
    let install = distribution.install("libibverbs1 librdmacm1 ibverbs-providers", "libibverbs librdmacm");
    for name in ["libibverbs", "librdmacm"] {
        let finding = match loaded_file(&maps, name) {
            Some(file) => match version(&file, name) {
                Some(version)
                    if version.split('.').next().and_then(|major| major.parse().ok()) < Some(OLDEST) =>
                {
                    let value = format!("{file}, rdma-core {version}: too old, {OLDEST} is needed");
                    Finding::problem(name, value)
                        .remedy(format!("update it: {install}, from a newer release"))
                }
                Some(version) => Finding::ok(name, format!("{file}, rdma-core {version}")),
                None => Finding::ok(name, file),
            },
            None => {
                let why = probes.load_error.as_deref().filter(|error| error.contains(name));
                let why = why.map(|error| format!(": {error}")).unwrap_or_default();
                Finding::problem(name, format!("not loaded{why}")).remedy(install.clone())
            }
        };
        section.push(finding);
    }
    let known = providers(root);
    section.push(if known.is_empty() {
        Finding::warning("providers", "no driver for any adapter in /etc/libibverbs.d")
            .remedy(distribution.install("ibverbs-providers", "libibverbs"))
    } else {
        Finding::ok("providers", known.join(" "))
    });
    section
}

/// The drivers in user space that are installed.
pub(super) fn providers(root: &Root) -> Vec<String> {
    let files = root.names("/etc/libibverbs.d").into_iter();
    files.filter_map(|file| file.strip_suffix(".driver").map(str::to_owned)).collect()
}

/// The file that is mapped into this process under a library's name.
fn loaded_file(maps: &str, library: &str) -> Option<String> {
    // Such as `7f..-7f.. r-xp 00000000 fe:00 1234   /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44.0`.
    let paths = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..]));
    let mut found = paths.filter(|path| {
        let file = path.rsplit('/').next().unwrap_or(path);
        file.strip_prefix(library).is_some_and(|rest| rest.starts_with(".so"))
    });
    found.next().map(str::to_owned)
}

/// The version of rdma-core in the file's name: what follows the numbers of the interface in
/// `libibverbs.so.1.14.44.0`.
fn version(file: &str, library: &str) -> Option<String> {
    let (_, numbers) = file.rsplit_once(&format!("{library}.so."))?;
    let package = numbers.splitn(3, '.').nth(2)?;
    package.starts_with(|digit: char| digit.is_ascii_digit()).then(|| package.to_owned())
}
