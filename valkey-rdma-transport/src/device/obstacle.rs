//! [`Obstacle`]: why this process cannot reach an RDMA device that the kernel has.
//!
//! All functions read files below a folder, `/` for this machine. They give the same answer for a copy of such a folder.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::error::explain::SystemError;

/// Why this process cannot reach an RDMA device, although the kernel has one.
///
/// `Display` names the cause, [`remedy`](Self::remedy) what to do. Errors of the transport and the report of `valkey-rdma-doctor`
/// have both from here.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Obstacle {
    /// Kernel modules through which programs reach devices are not loaded.
    Modules {
        /// Their names.
        missing: Vec<&'static str>,
    },
    /// A device file does not exist.
    Missing {
        /// The file.
        file: String,
    },
    /// The system does not let this process open a device file.
    Refused {
        /// The file.
        file: String,
        /// The system's error.
        error: SystemError,
    },
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modules { missing } => write!(f, "not loaded: {}", missing.join(" ")),
            Self::Missing { file } => write!(f, "{file} is missing"),
            Self::Refused { file, error } => write!(f, "this user may not open {file}: {error}"),
        }
    }
}

impl Obstacle {
    /// Looks for the cause in the files below `root`. `device`: the one that must be reachable, such as `mlx5_0`; without it,
    /// one of them is enough. `None` if the files show no cause, or no device at all.
    #[must_use]
    pub fn of(root: &Path, device: Option<&str>) -> Option<Self> {
        Self::search(root, device, &open)
    }

    /// Why `file`, a path such as `/dev/infiniband/uverbs0`, cannot be opened below `root`.
    #[must_use]
    pub fn of_file(root: &Path, file: &str) -> Option<Self> {
        Self::of_opened(file, open(&below(root, file)))
    }

    fn search(root: &Path, device: Option<&str>, open: &dyn Fn(&Path) -> io::Result<()>) -> Option<Self> {
        let wanted = devices(root).into_iter().filter(|name| device.is_none_or(|only| only == name));
        let files: Vec<Option<String>> = wanted.map(|name| device_file(root, &name)).collect();
        if files.is_empty() {
            return None;
        }
        let missing = missing_modules(root);
        if !missing.is_empty() {
            return Some(Self::Modules { missing });
        }
        let of_file = |file: &str| Self::of_opened(file, open(&below(root, file)));
        if let Some(obstacle) = of_file(CM_FILE) {
            return Some(obstacle);
        }
        let mut first = None;
        for file in files {
            // Without an obstacle, the file can be opened, or sysfs does not name it.
            let obstacle = file.and_then(|file| of_file(&file))?;
            first.get_or_insert(obstacle);
        }
        first
    }

    fn of_opened(file: &str, opened: io::Result<()>) -> Option<Self> {
        let file = file.to_owned();
        match opened.map_err(|error| (error.kind(), error)) {
            Err((io::ErrorKind::NotFound, _)) => Some(Self::Missing { file }),
            Err((io::ErrorKind::PermissionDenied, error)) => {
                Some(Self::Refused { file, error: error.into() })
            }
            // Other errors, such as a shortage of descriptors, are not about the file.
            Ok(()) | Err(_) => None,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Modules { missing } => {
                format!("`modprobe -a {}`, in a container on the host", missing.join(" "))
            }
            Self::Missing { .. } => {
                "in a container, pass the host's devices in (`docker run --device=/dev/infiniband`); on a host, run \
                 `udevadm trigger`"
                    .to_owned()
            }
            Self::Refused { .. } => {
                "`chmod 0666 /dev/infiniband/rdma_cm /dev/infiniband/uverbs*`, at every boot by a udev rule with \
                 MODE=\"0666\"; in a container, start it with `--device=/dev/infiniband`"
                    .to_owned()
            }
        }
    }
}

/// The device file of the connection manager.
pub const CM_FILE: &str = "/dev/infiniband/rdma_cm";

/// The names of the RDMA devices that the kernel lists below `root`, in order.
#[must_use]
pub fn devices(root: &Path) -> Vec<String> {
    names_in(&below(root, "/sys/class/infiniband"))
}

/// The device file of `device`, such as `/dev/infiniband/uverbs0`. `None` if sysfs does not name it.
#[must_use]
pub fn device_file(root: &Path, device: &str) -> Option<String> {
    let folder = below(root, "/sys/class/infiniband_verbs");
    let of_device = |name: &String| {
        fs::read_to_string(folder.join(name).join("ibdev")).is_ok_and(|text| text.trim() == device)
    };
    let name = names_in(&folder).into_iter().find(of_device)?;
    Some(format!("/dev/infiniband/{name}"))
}

/// The kernel modules that every device needs and that are not there, neither loaded nor built in.
#[must_use]
pub fn missing_modules(root: &Path) -> Vec<&'static str> {
    let is_there = |path: &str| below(root, path).exists();
    let missing =
        NEEDED.iter().filter(|(module, sign)| !is_there(&format!("/sys/module/{module}")) && !is_there(sign));
    missing.map(|(module, _)| *module).collect()
}

/// Modules besides the adapter's driver, and what shows that one is there even if it is built in.
const NEEDED: [(&str, &str); 2] =
    [("ib_uverbs", "/sys/class/infiniband_verbs"), ("rdma_ucm", "/sys/class/misc/rdma_cm")];

fn open(file: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(file).map(drop)
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests;
