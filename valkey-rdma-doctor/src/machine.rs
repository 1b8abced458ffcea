//! This machine: can RDMA work here, and what has to be done.
//!
//! [`examine`] judges facts and does nothing else: files below a [`Root`], and what [`Probes`] have tried. So it gives the
//! same answer for a made-up tree of files as for the machine that the tree is a copy of.

mod container;
mod cpu;
mod device;
mod distribution;
mod host;
mod kernel;
mod libraries;
mod limits;
mod missing;
mod mtu;
mod privileges;
mod probes;
mod root;

use std::net::IpAddr;

use self::container::Container;
use self::device::Device;
use self::distribution::Distribution;
pub use self::probes::{HostProbe, Probes, Route, Trial, Tried};
pub use self::root::Root;
use crate::report::{Finding, Report, Verdict};

/// What the user wants to do with this machine.
#[derive(Clone, Copy, Debug)]
pub struct Wishes {
    /// Connections that one process holds at once.
    pub connections: u32,
}

impl Default for Wishes {
    fn default() -> Self {
        Self { connections: 16 }
    }
}

/// Addresses at which this machine's devices can be tried: one of each device that looks usable.
pub fn addresses_to_try(root: &Root, interfaces: &[(String, IpAddr)]) -> Vec<IpAddr> {
    let devices = Device::all(root, interfaces);
    devices.iter().filter(|device| device.looks_usable()).filter_map(Device::address).collect()
}

/// Judges this machine.
pub fn examine(root: &Root, probes: &Probes, wishes: Wishes) -> Report {
    let container = Container::of(root);
    let distribution = Distribution::of(root);
    let devices = Device::all(root, &probes.interfaces);
    let usable: Vec<&Device> = devices.iter().filter(|device| device.is_usable(root, probes)).collect();

    let mut report = Report::default();
    report.push(libraries::section(root, probes, distribution));
    report.push(kernel::section(root, container, distribution, &devices, &usable));
    for device in &devices {
        let mut section = device.section(root, probes, container);
        if !usable.is_empty() {
            // Connections run on a usable device, over one of its ports. Idle ports and other devices are spares.
            section.findings = section.findings.into_iter().map(Finding::at_most_a_warning).collect();
        }
        report.push(section);
    }
    if !devices.iter().any(Device::looks_usable) {
        report.push(missing::section(root, &devices, container, distribution));
    }
    report.push(limits::section(root, wishes, container));
    report.push(cpu::section(root));
    report.push(container::section(root, container));
    if let Some(host) = &probes.host {
        report.push(host::section(host, &usable));
    }
    report
}

/// The last line of a report on this machine.
pub fn conclusion(report: &Report) -> String {
    let (problems, warnings) = (report.count(Verdict::Problem), report.count(Verdict::Warning));
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    // A trial fails for reasons that stand elsewhere.
    let mut found =
        report.findings().filter(|finding| finding.verdict == Verdict::Problem).collect::<Vec<_>>();
    found.sort_by_key(|finding| finding.id == "trial");
    let first = found.first();
    match (first, warnings) {
        (Some(first), _) => format!(
            "RDMA cannot work here yet: {}, {}. Begin with `{}`.",
            count(problems, "problem"),
            count(warnings, "warning"),
            first.id
        ),
        (None, 0) => "RDMA can work here.".to_owned(),
        (None, _) => format!("RDMA can work here, with {}.", count(warnings, "warning")),
    }
}

/// A number of bytes for people.
fn bytes(count: u64) -> String {
    const KIB: f64 = 1024.0;
    let count = count as f64;
    let (value, unit) = if count < KIB * KIB {
        (count / KIB, "KiB")
    } else if count < KIB * KIB * KIB {
        (count / KIB / KIB, "MiB")
    } else {
        (count / KIB / KIB / KIB, "GiB")
    };
    let text = format!("{value:.1}");
    format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_rounded_for_people() {
        for (count, text) in
            [(65_536, "64 KiB"), (3_244_544, "3.1 MiB"), (8 << 20, "8 MiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(super::bytes(count), text);
        }
    }
}
