//! The load tool: `valkey-rdma-benchmark --help`. The program is the library's [`main`](valkey_rdma_benchmark::main).

use std::process::ExitCode;

fn main() -> ExitCode {
    valkey_rdma_benchmark::main()
}
