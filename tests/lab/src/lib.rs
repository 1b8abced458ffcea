//! The library of the lab's programs: what `valkey-rdma-soak` and its short test share.

#![forbid(unsafe_code)]

pub mod soak;
