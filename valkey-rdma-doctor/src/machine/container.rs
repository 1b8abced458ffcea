//! Whether this is a container, which sees the host's devices only as far as it was given them.

use super::Root;
use super::privileges::Privileges;
use crate::report::{Finding, Section};

/// What started this process's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Container {
    None,
    Docker,
    Podman,
    Kubernetes,
    Other,
}

impl Container {
    pub(super) fn of(root: &Root) -> Self {
        // With cgroup v2, and without a service account, a pod shows neither of the first two.
        let groups = root.read("/proc/1/cgroup").unwrap_or_default();
        let environment = root.read("/proc/self/environ").unwrap_or_default();
        let in_a_pod = environment.split('\0').any(|line| line.starts_with("KUBERNETES_SERVICE_HOST="));
        // What systemd has found, where it runs in the container. WSL is none.
        let manager = root.value("/run/systemd/container").filter(|name| name != "wsl");
        if groups.contains("kubepods") || root.exists("/var/run/secrets/kubernetes.io") || in_a_pod {
            Self::Kubernetes
        } else if root.exists("/.dockerenv")
            || groups.contains("docker")
            || manager.as_deref() == Some("docker")
        {
            Self::Docker
        } else if root.exists("/run/.containerenv") || manager.as_deref() == Some("podman") {
            Self::Podman
        } else if manager.is_some()
            || ["lxc", "containerd", "libpod"].iter().any(|sign| groups.contains(sign))
        {
            Self::Other
        } else {
            Self::None
        }
    }

    pub(super) fn is_one(self) -> bool {
        self != Self::None
    }

    /// How to start it so that it can use the host's RDMA devices.
    pub(super) fn start(self) -> &'static str {
        match self {
            Self::Docker => {
                "start it with `docker run --network=host --device=/dev/infiniband --ulimit memlock=-1:-1`"
            }
            Self::Podman => {
                "start it with `podman run --network=host --device=/dev/infiniband --ulimit memlock=-1:-1`, as root"
            }
            Self::Kubernetes => {
                "give the pod `hostNetwork: true`, the IPC_LOCK capability, and /dev/infiniband through an RDMA device plugin"
            }
            Self::None | Self::Other => {
                "give it the host's network, /dev/infiniband, and an unlimited memlock"
            }
        }
    }
}

pub(super) fn section(root: &Root, container: Container) -> Section {
    let mut section = Section::new("container");
    section.push(match container {
        Container::None => Finding::ok("container", "no sign of one"),
        container => Finding::note(
            "container",
            format!("this is one ({container:?}): it sees what it was given of the host"),
        ),
    });
    let privileges = Privileges::of(root);
    section.push(match privileges.ipc_lock {
        true => Finding::ok("capabilities", "CAP_IPC_LOCK: the memlock limit does not apply to this process"),
        false => Finding::note("capabilities", "no CAP_IPC_LOCK: the memlock limit applies to this process"),
    });
    section
}
