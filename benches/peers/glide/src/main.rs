//! The load tool with valkey-glide to choose from: `valkey-rdma-peer-glide --library glide`, and all of the load tool's flags.

#![forbid(unsafe_code)]

mod glide;

use std::process::ExitCode;

use valkey_rdma_benchmark::{Libraries, main_with};

fn main() -> ExitCode {
    main_with(&Libraries::default().with(glide::Glide))
}
