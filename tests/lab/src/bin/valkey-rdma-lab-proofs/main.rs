//! Proofs on kernel verbs: however a connection ends, it leaves nothing behind and harms no other connection. Each proof
//! counts what process and device hold before, during and after.
//!
//! Runs inside the lab (`./dev lab` builds it and starts it there), as root: it makes and removes devices, sets
//! limits and kills processes that it started.
#![allow(clippy::print_stdout, reason = "its output is the table")]

mod cable;
mod census;
mod child;
mod device;
mod frozen;
mod held;
mod killed;
mod limits;
mod listener;
mod outcome;
mod peers;
mod roles;
mod stalled;

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use valkey_rdma_program::{LevelFilter, error_chain, fail, runtime, start};

use outcome::Outcome;
use roles::Role;

/// Shows on a real kernel's RDMA device that connections leave nothing behind.
///
/// Exit status: 0 if every proof held, 1 if not, 2 for a wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-lab-proofs", version)]
struct Args {
    /// Print the names of the proofs, run nothing
    #[arg(long)]
    list: bool,

    /// Run only the proofs whose name contains this text
    #[arg(long, value_name = "SUBSTRING", default_value = "", hide_default_value = true)]
    only: String,

    #[command(flatten)]
    scale: Scale,

    #[command(subcommand)]
    role: Option<Role>,
}

/// The size of the proofs.
#[derive(Clone, Copy, Debug, clap::Args)]
struct Scale {
    /// Connections made and closed, in all
    #[arg(long, env = "VALKEY_RDMA_LAB_CHURN", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    churn: u64,

    /// Connections held at once
    #[arg(long, env = "VALKEY_RDMA_LAB_HELD", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..))]
    held: u64,
}

const PROOFS: [&str; 9] = [
    "many connections",
    "peer killed",
    "server frozen",
    "server without a next window",
    "listener closed under load",
    "memlock exhausted",
    "descriptors exhausted",
    "device removed under traffic",
    "device down",
];

fn main() -> ExitCode {
    let args: Args = match start(LevelFilter::ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let runtime = match runtime(2) {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    if let Some(role) = args.role {
        return match runtime.block_on(roles::play(role)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                println!("{}", error_chain(error.as_ref()));
                ExitCode::FAILURE
            }
        };
    }
    let chosen = PROOFS.into_iter().filter(|name| name.contains(&args.only)).collect::<Vec<_>>();
    if args.list {
        chosen.iter().for_each(|name| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    runtime.block_on(run_all(&chosen, args.scale))
}

async fn run_all(chosen: &[&str], scale: Scale) -> ExitCode {
    let mut failed = Vec::new();
    for name in chosen {
        let began = Instant::now();
        println!("== {name}");
        let outcome = run(name, scale).await;
        let seconds = began.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("== {name}: holds ({seconds:.1} s)"),
            Err(error) => {
                println!("== {name}: FAILED ({seconds:.1} s)\n   {}", error_chain(error.as_ref()));
                failed.push(*name);
            }
        }
    }
    println!("{} of {} proofs hold", chosen.len() - failed.len(), chosen.len());
    failed.iter().for_each(|name| println!("FAILED  {name}"));
    // A run of nothing shows nothing.
    if failed.is_empty() && !chosen.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn run(name: &str, scale: Scale) -> Outcome {
    match name {
        "many connections" => held::prove(scale.held, scale.churn).await,
        "peer killed" => killed::prove().await,
        "server frozen" => frozen::prove().await,
        "server without a next window" => stalled::prove().await,
        "listener closed under load" => listener::prove().await,
        "memlock exhausted" => limits::memlock().await,
        "descriptors exhausted" => limits::descriptors().await,
        "device removed under traffic" => device::removed().await,
        "device down" => device::down().await,
        other => Err(format!("no proof is called {other:?}").into()),
    }
}
