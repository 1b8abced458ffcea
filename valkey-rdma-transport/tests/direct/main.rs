//! Direct transfers on the device that `VALKEY_RDMA_TEST_DEVICE` names, and on each link of the emulated one. Leave out the links with
//! `--skip tcp:: --skip unix::`.

#![cfg(feature = "emulated")]
#![allow(clippy::duplicate_mod, reason = "the suite is compiled once for each link")]

/// The device that the environment names: the emulated one within this process, by default.
#[path = "."]
mod given {
    #[path = "ends.rs"]
    mod ends;
    #[path = "peers.rs"]
    mod peers;
    #[path = "refusals.rs"]
    mod refusals;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "transfers.rs"]
    mod transfers;
}

/// The emulated device over TCP.
#[path = "."]
mod tcp {
    #[path = "ends.rs"]
    mod ends;
    #[path = "peers.rs"]
    mod peers;
    #[path = "refusals.rs"]
    mod refusals;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "transfers.rs"]
    mod transfers;
}

/// The emulated device over Unix sockets.
#[path = "."]
mod unix {
    #[path = "ends.rs"]
    mod ends;
    #[path = "peers.rs"]
    mod peers;
    #[path = "refusals.rs"]
    mod refusals;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "transfers.rs"]
    mod transfers;
}
