//! Which Linux it is, for the commands that install something.

use super::Root;

/// A family of distributions, by the commands that install something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    Debian,
    Ubuntu,
    RedHat,
    Other,
}

impl Distribution {
    pub(super) fn of(root: &Root) -> Self {
        let text = root.read("/etc/os-release").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        let words = format!("{} {}", field("ID"), field("ID_LIKE"));
        let has = |word: &str| words.split_whitespace().any(|found| found == word);
        if has("ubuntu") {
            Self::Ubuntu
        } else if has("debian") {
            Self::Debian
        } else if has("fedora") || has("rhel") || has("centos") {
            Self::RedHat
        } else {
            Self::Other
        }
    }

    /// The command that installs packages, by the names that Debian and Red Hat have for them.
    pub(super) fn install(self, debian: &str, red_hat: &str) -> String {
        match self {
            Self::Debian | Self::Ubuntu => format!("`apt install {debian}`"),
            Self::RedHat => format!("`dnf install {red_hat}`"),
            Self::Other => {
                format!("`apt install {debian}`, `dnf install {red_hat}`, or what your system calls them")
            }
        }
    }

    /// The command that installs the kernel's less common modules.
    pub(super) fn install_modules(self, release: &str) -> String {
        match self {
            Self::Debian => {
                "`apt install linux-image-amd64` and boot it (Debian's cloud kernels have no RDMA)".to_owned()
            }
            Self::Ubuntu => format!("`apt install linux-modules-extra-{release}`"),
            Self::RedHat => "`dnf install kernel-modules kernel-modules-extra`".to_owned(),
            Self::Other => format!(
                "install all modules of kernel {release}, or boot your distribution's standard kernel"
            ),
        }
    }
}
