//! The client against a server: a mock in the same process, or a real one that `VALKEY_RDMA_TEST_SERVER` names.
//! Lua needs a real one: those tests are ignored unless asked for (`--include-ignored`).

#[cfg(feature = "blocking")]
mod blocking;
mod cache;
mod commands;
mod dedicated;
mod element_scans;
mod fallback;
mod large;
mod overtaking;
mod pubsub;
#[cfg(feature = "redis")]
mod redis_rs;
mod rights;
mod runtimes;
mod scripts;
mod target;
mod transactions;
