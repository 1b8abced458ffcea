//! A cluster of real Valkeys with faults, under the load of a cluster client: how long which shard stands still.

#![allow(clippy::print_stdout, reason = "its output is the table")]

mod events;
mod load;
mod servers;
mod table;
mod target;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use events::Event;
use load::Load;
use servers::Servers;
use target::Target;

/// Starts three primaries and three replicas, and lets tasks count in them through a cluster client, while nodes fail and
/// slots move. Prints for each event how long each shard had no success, and what went wrong
///
/// Each task increments counters of its own, so that a command that ran twice shows. Valkey replicates late: a killed primary takes
/// acknowledged writes with it. The column `lost` counts them; the client cannot prevent that.
///
/// Exit status: 0 if no reply was wrong, no command hung and none ran twice; 1 if not, or if the cluster does not start; 2 for a
/// wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-cluster-faults", version)]
struct Args {
    /// The folder with valkey-server, valkey-cli and valkey-rdma.so
    #[arg(long, value_name = "FOLDER")]
    valkey: PathBuf,

    /// The client that is examined: ours, or redis-rs (over TCP)
    #[arg(long, value_name = "ours|redis-rs", default_value = "ours")]
    client: Client,

    /// Connect over RDMA to servers with the RDMA module
    #[arg(long)]
    rdma: bool,

    /// The address of the servers
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    /// The first of six ports
    #[arg(long, value_name = "N", default_value_t = 7600)]
    port: u16,

    /// Tasks that send one command after the other
    #[arg(long, value_name = "N", default_value_t = 1000)]
    tasks: usize,

    /// Commands per second, over all tasks
    #[arg(long, value_name = "N", default_value_t = 5000)]
    rate: u32,

    /// Seconds for all events together, from the moment when the cluster is up
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    seconds: u64,

    /// The events, in this order
    #[arg(long, value_name = "EVENT,...", value_delimiter = ',', default_values_t = Event::ALL)]
    events: Vec<Event>,

    /// Milliseconds without an answer after which the nodes call another failed (cluster-node-timeout)
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    node_timeout: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Client {
    Ours,
    RedisRs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    if args.rdma && args.client == Client::RedisRs {
        return fail("redis-rs has TCP only: leave --rdma out", ExitCode::from(2));
    }
    match run(&args).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => fail("a reply was wrong, a command hung or ran twice: see the table", ExitCode::FAILURE),
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn fail(message: &str, code: ExitCode) -> ExitCode {
    // Nothing can be done if standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    code
}

async fn run(args: &Args) -> Result<bool, String> {
    let mut servers =
        Servers::start(&args.valkey, args.bind, args.port, args.rdma, args.node_timeout).await?;
    let target = match args.client {
        Client::Ours => Target::ours(&servers.seeds()).await?,
        Client::RedisRs => Target::redis_rs(&servers.seeds()).await?,
    };
    let events: Vec<Event> =
        args.events.iter().copied().filter(|event| args.rdma || !event.is_about_rdma()).collect();
    let transport = if args.rdma { "rdma" } else { "tcp" };
    println!(
        "client {:?} over {transport}, {} tasks, {} commands/s, cluster-node-timeout {} ms, {}",
        args.client,
        args.tasks,
        args.rate,
        args.node_timeout,
        servers.version().await?
    );
    let window = Duration::from_secs(args.seconds) / u32::try_from(events.len().max(1)).unwrap_or(1);
    let target = Arc::new(target);
    let load = Load::start(target.clone(), args.tasks, args.rate);
    println!("{}", table::head());
    let mut clean = true;
    for event in events {
        servers.settled().await.map_err(|error| format!("before {event}: {error}"))?;
        load.begin();
        let affected = tokio::time::timeout(LIMIT + window, async {
            let begun = tokio::time::Instant::now();
            let affected = event.happen(&mut servers).await?;
            tokio::time::sleep_until(begun + window).await;
            event.end(&mut servers).await?;
            Ok::<_, String>(affected)
        });
        let affected = affected.await.map_err(|_| format!("{event} did not end within {LIMIT:?}"))?;
        let seen = load.end();
        clean &= seen.is_clean();
        println!("{}", table::row(event, &affected?, &seen));
    }
    load.stop().await;
    if let Some(status) = target.status() {
        println!("{status}");
    }
    Ok(clean)
}

/// Longer than any event takes beyond its window.
const LIMIT: Duration = Duration::from_secs(180);
