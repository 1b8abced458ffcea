//! The load tool with more client libraries to choose from: `valkey-rdma-peers --library redis-rs`, and all of the load tool's flags.

#![forbid(unsafe_code)]

mod blocking;
mod fred;
mod redis_rs;
mod redis_rs_blocking;

use std::process::ExitCode;

use valkey_rdma_benchmark::{Libraries, main_with};

fn main() -> ExitCode {
    let libraries = Libraries::default()
        .with(redis_rs::RedisRs)
        .with(fred::Fred)
        .with(redis_rs_blocking::RedisRsBlocking)
        .with(blocking::ValkeyRdmaBlocking);
    main_with(&libraries)
}
