//! What this process may do beyond its limits.

use super::Root;

pub(super) struct Privileges {
    /// The kernel pins memory for the process beyond its memlock limit.
    pub(super) ipc_lock: bool,
}

impl Privileges {
    pub(super) fn of(root: &Root) -> Self {
        let status = root.read("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
        // In a user namespace, its root has the capability there, and the kernel asks for that of the whole machine.
        let whole_machine = root
            .read("/proc/self/uid_map")
            .is_none_or(|map| map.split_whitespace().eq(["0", "0", "4294967295"]));
        Self { ipc_lock: effective & CAP_IPC_LOCK != 0 && whole_machine }
    }
}

/// Bit 14 (`linux/capability.h`).
const CAP_IPC_LOCK: u64 = 1 << 14;
