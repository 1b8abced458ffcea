//! What connections leave behind on the emulated device over TCP: nothing.

mod device_peer;
mod leaks;

/// The emulated device's link under test. None: the device that the environment names.
const LINK: Option<&str> = Some("tcp");
