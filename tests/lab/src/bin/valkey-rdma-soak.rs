//! Runs this project's client and server against each other, with random faults, for a while.

use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use valkey_rdma_lab::soak::{Memory, Options, run};
use valkey_rdma_transport::DeviceKind;

/// Runs this project's client and server against each other, with random faults
///
/// A neighbour without faults must get every reply right, and memory must not keep growing.
///
/// Exit status: 0 if so, 1 if not, 2 for a wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-soak", version)]
struct Args {
    /// The device that client and server use
    #[arg(long, value_name = "verbs|emulated", default_value = "emulated")]
    device: DeviceKind,

    /// The address of the servers
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    bind: IpAddr,

    /// How long to start new rounds, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds)]
    duration: Duration,

    /// The seed of the random faults; drawn and printed if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    let options = Options {
        device: args.device,
        bind: args.bind,
        duration: args.duration,
        rounds: 20,
        seed,
        memory: Memory::default(),
    };
    let print = |line: &str| drop(writeln!(std::io::stdout(), "{line}"));
    print(&format!("seed {seed}"));
    let mut next = Instant::now();
    let outcome = run(&options, |summary| {
        if Instant::now() >= next {
            next = Instant::now() + PROGRESS;
            print(&format!("{summary:?}"));
        }
    });
    match outcome.await {
        Ok(summary) => {
            print(&format!("{summary:?}"));
            ExitCode::SUCCESS
        }
        Err(what) => {
            print(&format!("failed: {what}"));
            ExitCode::FAILURE
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(10);
