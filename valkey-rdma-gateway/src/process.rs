//! What any process shows to Prometheus, under the names that its client libraries use, so that usual alerts and dashboards find it.

use std::fmt::Write;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::descriptors;

/// Linux returns the number since 6.2. Before, the list must be read, which takes milliseconds where there are 10 000.
fn open_descriptors() -> Option<u64> {
    const LIST: &str = "/proc/self/fd";
    match fs::metadata(LIST).ok()?.len() {
        // One of them reads the list.
        0 => Some((fs::read_dir(LIST).ok()?.count() as u64).saturating_sub(1)),
        open => Some(open),
    }
}

/// The figures of this process, which began at `started`. Those that the system does not tell are left out.
pub(crate) fn prometheus(started: SystemTime) -> String {
    let start = started.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64());
    let open = open_descriptors().map(|open| open as f64);
    let limit = descriptors::limit().map(|limit| limit as f64);
    let mut text = String::new();
    for (name, help, value) in [
        ("start_time_seconds", "When this process started, in seconds since 1970", start),
        ("open_fds", "File descriptors that this process has open", open),
        ("max_fds", "File descriptors that it may have open", limit),
    ] {
        if let Some(value) = value {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "# HELP process_{name} {help}\n# TYPE process_{name} gauge\nprocess_{name} {value}"
            );
        }
    }
    text
}
