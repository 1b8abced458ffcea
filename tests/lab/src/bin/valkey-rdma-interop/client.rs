//! The clients. Each is run for one case, and its work is verified.

mod ours;
mod valkey_benchmark;
mod valkey_cli;

use crate::case::{Case, ClientKind};
use crate::programs::Programs;

/// Requests per second, one per test, as the client reports them; empty if it does not.
pub(crate) type Rates = Vec<f64>;

/// Runs the client of a case.
pub(crate) async fn run(programs: &Programs, case: &Case) -> Result<Rates, String> {
    match case.client {
        ClientKind::Ours => ours::run(programs, case).await,
        ClientKind::ValkeyBenchmark => valkey_benchmark::run(programs, case).await,
        ClientKind::ValkeyCli => valkey_cli::run(programs, case).await,
    }
}
