//! The processors, as far as latency depends on them.

use super::Root;
use crate::report::{Finding, Section};

const FOLDER: &str = "/sys/devices/system/cpu";

pub(super) fn section(root: &Root) -> Section {
    let mut section = Section::new("cpu");
    let allowed = root.read("/proc/self/status").and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some(line.trim().to_owned())
    });
    if let Some(allowed) = allowed {
        let online = root.value(&format!("{FOLDER}/online"));
        section.push(match online {
            Some(online) if online != allowed => {
                Finding::note("cpus", format!("this process may use {allowed} of {online}"))
            }
            _ => Finding::ok("cpus", allowed),
        });
    }
    section.push(governor(root));
    section
}

/// What decides on the processors' frequency.
fn governor(root: &Root) -> Finding {
    let cpus = root
        .names(FOLDER)
        .into_iter()
        .filter(|name| name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok()));
    let governors: Vec<String> =
        cpus.filter_map(|cpu| root.value(&format!("{FOLDER}/{cpu}/cpufreq/scaling_governor"))).collect();
    let slow = governors.iter().filter(|governor| *governor != "performance").count();
    match governors.iter().find(|governor| *governor != "performance") {
        None if governors.is_empty() => Finding::note(
            "governor",
            "not known here: the firmware or the hypervisor decides on the frequency",
        ),
        None => Finding::ok("governor", "performance"),
        Some(other) => {
            let value = format!("{other} on {slow} of {} CPUs: wake-ups take longer", governors.len());
            Finding::note("governor", value)
                .remedy("for the lowest latency: `cpupower frequency-set -g performance`")
        }
    }
}
