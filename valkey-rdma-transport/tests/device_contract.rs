//! The device contract on the device that `VALKEY_RDMA_TEST_DEVICE` names, `emulated` within this process by default.

mod contract;
mod device_peer;

/// The emulated device's link under test. None: the device that the environment names.
const LINK: Option<&str> = None;
