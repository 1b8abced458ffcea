//! `Stream` and `Listener`, and values of a pool that they send, on the device that `VALKEY_RDMA_TEST_DEVICE` names, and on each link of
//! the emulated one. Leave out the links with `--skip tcp:: --skip unix::`.

#![cfg(feature = "emulated")]
#![allow(clippy::duplicate_mod, reason = "the suite is compiled once for each link")]

/// The device that the environment names: the emulated one within this process, by default.
#[path = "."]
mod given {
    #[path = "lending.rs"]
    mod lending;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "suite.rs"]
    mod suite;
}

/// The emulated device over TCP.
#[path = "."]
mod tcp {
    #[path = "lending.rs"]
    mod lending;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "suite.rs"]
    mod suite;
}

/// The emulated device over Unix sockets.
#[path = "."]
mod unix {
    #[path = "lending.rs"]
    mod lending;
    #[path = "../stream_pair/mod.rs"]
    mod stream_pair;
    #[path = "suite.rs"]
    mod suite;
}
