//! What the lab's programs and tests share.

#![forbid(unsafe_code)]

pub mod soak;
pub mod valkey;
