//! The warning that connections were to share a completion queue, and that the device has none with room for two.

use std::collections::BTreeSet;
use std::fmt;

use crate::sync::{Mutex, lock};

/// A device whose connections cannot share completion queues.
#[derive(Debug)]
pub(super) struct TooSmall {
    pub(super) device: String,
    /// Completions that one connection may have in flight.
    pub(super) depth: u32,
    /// Entries of the device's deepest queue.
    pub(super) deepest: u32,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, depth, deepest } = self;
        write!(
            f,
            "connections over {device} share no completion queue, and each has its own: two of them need {} entries, and the device has \
             at most {deepest}; to share, set send_depth and receive_depth to {} together",
            depth.saturating_mul(2),
            deepest / 2
        )
    }
}

/// Logs a warning, unless it was logged for this device before.
pub(super) fn warn_once(case: TooSmall) {
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if is_first(&mut lock(&LOGGED), &case) {
        tracing::warn!("{case}");
    }
}

fn is_first(logged: &mut BTreeSet<String>, case: &TooSmall) -> bool {
    logged.insert(case.device.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceLimits;

    fn device(completion_depth: u32) -> DeviceLimits {
        DeviceLimits { queue_depth: 1 << 15, completion_depth, completion_vectors: 1, read_depth: 0 }
    }

    /// Azure's MANA has 2048 entries, which one connection with the default depths needs.
    #[test]
    fn a_queue_is_shared_by_as_many_as_it_has_room_for() {
        for (deepest, depth, members) in [
            (2048, 2048, 1),
            (4095, 2048, 1),
            (4096, 2048, 2),
            (2048, 1024, 2),
            (1 << 22, 2048, 64),
            (16, 32, 1),
        ] {
            assert_eq!(device(deepest).cq_members(depth), members, "{depth} of {deepest}");
        }
    }

    #[test]
    fn the_warning_says_what_is_needed_and_what_there_is_and_what_to_set() {
        let case = TooSmall { device: "mana_0".to_owned(), depth: 2048, deepest: 2048 };
        let text = case.to_string();
        for part in
            ["mana_0", "need 4096 entries", "at most 2048", "send_depth and receive_depth to 1024 together"]
        {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(device(2048).cq_members(1024), 2, "what it says is enough");
    }

    #[test]
    fn each_device_is_warned_of_once() {
        let case = |device: &str| TooSmall { device: device.to_owned(), depth: 2048, deepest: 2048 };
        let mut logged = BTreeSet::new();
        let first = ["mana_0", "mana_0", "mana_1", "mana_0"].map(|name| is_first(&mut logged, &case(name)));
        assert_eq!(first, [true, false, true, false]);
    }
}
