//! A cluster of real Valkeys with faults, under the load of a cluster client: how long which shard stands still.

#![allow(clippy::print_stdout, reason = "its output is the table")]

mod events;
mod load;
mod servers;
mod table;
mod target;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use valkey_rdma_program::{LevelFilter, fail, refuse, start};

use events::Event;
use load::Load;
use servers::{Servers, Setup};
use target::Target;

/// Starts three primaries and three replicas, and lets tasks count in them through a cluster client, while nodes fail and
/// slots move. Prints for each event how long each shard had no success, and what went wrong
///
/// Each task increments counters of its own, so that a command that ran twice shows. Valkey replicates late: a killed primary takes
/// acknowledged writes with it. The column `lost` counts them; the client cannot prevent that.
///
/// Exit status: 0 if no reply was wrong, no command hung and none ran twice, or if COMMAND succeeded; 1 if not, or if the cluster does
/// not start; 2 for a wrong flag.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-cluster-faults", version)]
struct Args {
    #[command(flatten)]
    setup: Setup,

    /// The client that is examined: ours, or redis-rs (over TCP)
    #[arg(long, value_name = "ours|redis-rs", default_value = "ours")]
    client: Client,

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

    /// Slots that move in the events migrate and reshard
    #[arg(long, value_name = "N", default_value_t = 16384 / 3, value_parser = clap::value_parser!(u16).range(2..=5461))]
    slots: u16,

    /// Load and events after COMMAND too, in the same cluster, which is emptied before
    #[arg(long, requires = "command")]
    load: bool,

    /// Instead of load and events: the command that runs while the cluster is up, with the nodes' URLs, separated by commas, in
    /// VALKEY_RDMA_TEST_CLUSTER
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Client {
    Ours,
    RedisRs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = match start(LevelFilter::ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    if (args.setup.rdma || args.setup.tls) && args.client == Client::RedisRs {
        return refuse("redis-rs connects over plain TCP here: leave --rdma and --tls out");
    }
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let mut servers = Servers::start(args.setup.clone()).await?;
    let result = lend_and_examine(args, &mut servers).await;
    servers.end().await;
    result
}

async fn lend_and_examine(args: &Args, servers: &mut Servers) -> Result<(), String> {
    if let Some((program, words)) = args.command.split_first() {
        lend(servers, program, words).await?;
        if !args.load {
            return Ok(());
        }
        servers.empty().await?;
    }
    examine(args, servers).await
}

/// Runs a command while the cluster is up.
async fn lend(servers: &Servers, program: &OsString, words: &[OsString]) -> Result<(), String> {
    println!("valkey {} for {}", servers.version().await?, program.display());
    let mut command = tokio::process::Command::new(program);
    command.args(words).env("VALKEY_RDMA_TEST_CLUSTER", servers.urls().join(",")).kill_on_drop(true);
    let status = command.status().await;
    let status = status.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if status.success() { Ok(()) } else { Err("the command failed: see its output".to_owned()) }
}

/// Lets events happen under load, and prints what they do to it. Fails if anything was wrong.
async fn examine(args: &Args, servers: &mut Servers) -> Result<(), String> {
    let target = match args.client {
        Client::Ours => Target::ours(&servers.seeds()).await?,
        Client::RedisRs => Target::redis_rs(&servers.seeds()).await?,
    };
    let version = servers.version().await?;
    let events: Vec<Event> = args
        .events
        .iter()
        .copied()
        .filter(|event| event.is_possible(args.setup.rdma, args.setup.cut.is_some(), &version))
        .collect();
    let transport = if args.setup.rdma {
        "rdma"
    } else if args.setup.tls {
        "tls"
    } else {
        "tcp"
    };
    println!(
        "client {:?} over {transport}, {} tasks, {} commands/s, cluster-node-timeout {} ms, valkey {}",
        args.client, args.tasks, args.rate, args.setup.node_timeout, version
    );
    let window = Duration::from_secs(args.seconds) / u32::try_from(events.len().max(1)).unwrap_or(1);
    let target = Arc::new(target);
    let load = Load::start(target.clone(), args.tasks, args.rate);
    println!("{}", table::head());
    let mut clean = true;
    for event in events {
        servers.settled().await.map_err(|error| format!("before {event}: {error}"))?;
        load.begin();
        let length = window.max(event.lasts());
        let effect = tokio::time::timeout(LIMIT + length, async {
            let begun = tokio::time::Instant::now();
            let effect = event.happen(servers, args.slots.into()).await?;
            tokio::time::sleep_until(begun + length).await;
            event.end(servers).await?;
            servers.settled().await?;
            Ok::<_, String>(effect)
        });
        let effect = effect.await.map_err(|_| format!("{event} did not end within {LIMIT:?}"))?;
        let seen = load.end();
        clean &= seen.is_clean();
        println!("{}", table::row(event, &effect?, &seen));
    }
    load.stop().await;
    if let Some(status) = target.status() {
        println!("{status}");
    }
    if clean {
        Ok(())
    } else {
        Err("a reply was wrong, a command hung or ran twice: see the table".to_owned())
    }
}

/// Longer than any event takes beyond its window: moving a third of the slots one by one takes a quarter
/// of an hour and more on emulated processors.
const LIMIT: Duration = Duration::from_secs(1800);
