//! Connections leave nothing behind, on the device that `VALKEY_RDMA_TEST_DEVICE` names and on each link of the emulated one.
//! One test, because it counts what the whole process has, and on an RDMA device what the machine has.

#![cfg(feature = "emulated")]
#![allow(clippy::duplicate_mod, reason = "the suite is compiled once for each link")]

/// The device that the environment names: the emulated one within this process, by default.
#[path = "."]
mod given {
    #[path = "device_peer/mod.rs"]
    mod device_peer;
    #[path = "leaks/mod.rs"]
    pub(crate) mod leaks;
}

/// The emulated device over TCP.
#[path = "."]
mod tcp {
    #[path = "device_peer/mod.rs"]
    mod device_peer;
    #[path = "leaks/mod.rs"]
    pub(crate) mod leaks;
}

/// The emulated device over Unix sockets.
#[path = "."]
mod unix {
    #[path = "device_peer/mod.rs"]
    mod device_peer;
    #[path = "leaks/mod.rs"]
    pub(crate) mod leaks;
}

#[tokio::test]
async fn connections_leave_nothing_behind() {
    given::leaks::connections_leave_nothing_behind().await;
    // On real devices the links of the emulated one show nothing new.
    if std::env::var_os("VALKEY_RDMA_TEST_DEVICE").is_none() {
        tcp::leaks::connections_leave_nothing_behind().await;
        unix::leaks::connections_leave_nothing_behind().await;
    }
}
