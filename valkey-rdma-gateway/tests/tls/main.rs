//! Encrypted listeners, and servers that the gateway reaches over TLS. Not in the package, which has no test kit.

#![cfg(all(feature = "emulated", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../gateway/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

mod certificates;
mod clients;
mod door;
mod hostile;
mod refused;
