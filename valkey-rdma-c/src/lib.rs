//! The C library `libvalkey_rdma`: connections over RDMA as file descriptors. `include/valkey_rdma.h` is its documentation.
//!
//! What it does is in `connection`; `abi` translates between C and Rust, and is the only part with unsafe code.

#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "the C boundary")]
mod abi;
mod connection;
mod texts;
