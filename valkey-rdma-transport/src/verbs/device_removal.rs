//! Closing a device that was removed.
//!
//! librdmacm opens each device once and keeps it open. A removed device therefore keeps two descriptors. Drivers that cannot
//! remove a device while it is open (soft-RoCE) wait until it is closed. librdmacm closes a device when it lists the devices,
//! finds that one missing, and no connection uses it.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use super::sys;
use crate::process::without_signals;
use crate::sync::{Mutex, lock};

/// The time between two looks at whether the kernel still lists the device, and the number of looks.
const PERIOD: Duration = Duration::from_millis(50);
const LOOKS: u32 = 200;

/// Has the device closed as soon as the last connection on it is gone, by a thread that ends with that.
///
/// Where the device was the only one of the machine, librdmacm keeps it open until the process ends.
pub(super) fn release_removed_device(device: String) {
    static UNDER_WAY: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let under_way = || lock(&UNDER_WAY);
    if !under_way().insert(device.clone()) {
        return;
    }
    let name = device.clone();
    let look = move || {
        let hidden = (0..LOOKS).any(|_| {
            let hidden = !is_listed(&name);
            if !hidden {
                thread::sleep(PERIOD);
            }
            hidden
        });
        if !hidden {
            // Another one may have got its name.
            let waited = PERIOD * LOOKS;
            tracing::warn!(
                device = name,
                ?waited,
                "removed, and still listed: it may stay open until the process ends"
            );
        }
        sys::look_for_devices();
        under_way().remove(&name);
    };
    let thread = thread::Builder::new().name("rdma-removal".to_owned());
    if let Err(error) = without_signals(|| thread.spawn(look)) {
        under_way().remove(&device);
        tracing::warn!(%error, device, "a removed device stays open until the process ends");
    }
}

/// Whether the kernel offers the device to programs.
fn is_listed(device: &str) -> bool {
    let offered = fs::read_dir("/sys/class/infiniband_verbs").into_iter().flatten().flatten();
    let mut names = offered.filter_map(|entry| fs::read_to_string(entry.path().join("ibdev")).ok());
    names.any(|name| name.trim() == device)
}
