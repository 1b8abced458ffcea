//! The machine, kernel, device and programs that results were measured with.

use std::path::Path;
use std::thread::available_parallelism;
use std::time::SystemTime;

use crate::drive::LinkInfo;

/// The machine, the kernel, the versions and the link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    /// Names and values, in the order in which they are shown.
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Environment {
    /// What can be known here and now of a connection that runs on `link`; `server` is the server's own description.
    pub(crate) fn look(link: &LinkInfo, server: Option<String>, polling: &str) -> Environment {
        let mut facts =
            vec![("tool", concat!("valkey-rdma-benchmark ", env!("CARGO_PKG_VERSION")).to_owned())];
        facts.extend(server.map(|server| ("server", server)));
        facts.push(("started", humantime::format_rfc3339_seconds(SystemTime::now()).to_string()));
        if let Ok(system) = nix::sys::utsname::uname() {
            let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            facts.push(("kernel", format!("{} {}", text(system.sysname()), text(system.release()))));
            facts.push(("machine", text(system.machine())));
        }
        facts.extend(available_parallelism().ok().map(|count| ("cpus", count.to_string())));
        facts.extend(cpu_model().map(|model| ("cpu", model)));
        if let Some(device) = &link.device {
            facts.push(("device", device.clone()));
            facts.extend(device_facts(Path::new("/sys/class/infiniband"), device));
            facts.push(("polling", polling.to_owned()));
        }
        facts.extend(link.mtu.map(|mtu| ("mtu", mtu.to_string())));
        Environment { facts }
    }

    /// A fact by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.0 == name).map(|fact| fact.1.as_str())
    }

    /// The link's speed in bytes per second, if it is known.
    pub(crate) fn link_speed(&self) -> Option<f64> {
        let gigabits: f64 = self.get("link")?.split(' ').next()?.parse().ok()?;
        Some(gigabits * 1e9 / 8.0)
    }
}

fn cpu_model() -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// What sysfs says about an RDMA device; its first port stands for it.
fn device_facts(root: &Path, device: &str) -> Vec<(&'static str, String)> {
    let root = root.join(device);
    let read = |file: &str| {
        let text = std::fs::read_to_string(root.join(file)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let facts = [
        ("link", read("ports/1/rate")),
        ("link layer", read("ports/1/link_layer")),
        ("gid", read("ports/1/gids/1").or_else(|| read("ports/1/gids/0"))),
        ("firmware", read("fw_ver")),
        ("numa node", read("device/numa_node")),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_of_a_device_is_reported_with_its_speed() {
        let root = std::env::temp_dir().join(format!("valkey-rdma-sysfs-{}", std::process::id()));
        let port = root.join("rxe0/ports/1");
        std::fs::create_dir_all(&port).unwrap();
        std::fs::write(port.join("rate"), "100 Gb/sec (4X EDR)\n").unwrap();
        let environment = Environment { facts: device_facts(&root, "rxe0") };
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(environment.get("link"), Some("100 Gb/sec (4X EDR)"));
        assert_eq!(environment.link_speed(), Some(12.5e9));
    }

    #[test]
    fn kernel_and_cpus_are_always_known() {
        let environment = Environment::look(&LinkInfo::default(), Some("valkey 9.1.2".to_owned()), "event");
        assert!(environment.get("kernel").is_some() && environment.get("cpus").is_some());
        assert_eq!((environment.get("device"), environment.link_speed()), (None, None));
    }
}
