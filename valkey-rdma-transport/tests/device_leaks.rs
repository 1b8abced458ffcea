//! What connections leave behind on the device that `VALKEY_RDMA_TEST_DEVICE` names, `emulated` within this process by default: nothing.

mod device_peer;
mod leaks;

/// The emulated device's link under test. None: the device that the environment names.
const LINK: Option<&str> = None;
