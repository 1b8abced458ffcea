//! The client against a server: a mock in the same process, or a real one that `VALKEY_RDMA_TEST_SERVER` names.
//! Lua needs a real one: those tests are ignored unless asked for (`--include-ignored`).
//!
//! Names of modules are marks, by which the lab's suite chooses what it runs against which real server:
//! - `mocks_only`: tests that bring mocks of their own, and nothing else.
//! - `own_server`: tests that start a server of their own, the program that `VALKEY_RDMA_REAL_SERVER` names.
//! - `server_closes`: the server closes connections, which Valkey 8.1 does not survive over RDMA.
//! - `half_a_gibibyte`: it takes that much memory several times, and minutes on an emulated processor.

#[cfg(feature = "blocking")]
mod blocking;
mod commands;
mod dedicated;
mod element_scans;
mod executor;
mod fallback;
mod large;
mod pinned;
mod pubsub;
#[cfg(feature = "redis")]
mod redis_rs;
mod rights;
mod scripts;
mod target;
mod transactions;

#[path = "."]
mod mocks_only {
    mod passwords;
    mod runtimes;
}

#[path = "."]
mod own_server {
    mod overtaking;
}

#[path = "."]
mod server_closes {
    mod cache;
}
