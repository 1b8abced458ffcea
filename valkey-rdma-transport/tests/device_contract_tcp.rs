//! The device contract on the emulated device over TCP.

mod contract;
mod device_peer;

/// The emulated device's link under test. None: the device that the environment names.
const LINK: Option<&str> = Some("tcp");
