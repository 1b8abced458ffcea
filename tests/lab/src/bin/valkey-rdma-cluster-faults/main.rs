//! A cluster of real Valkeys with faults, under the load of a cluster client: how long which shard stands still.

#![allow(clippy::print_stdout, reason = "its output is the table")]

mod events;
mod load;
mod servers;
mod table;
mod target;

use std::ffi::OsString;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, ValueEnum};

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

    /// Slots that move in the events migrate and reshard
    #[arg(long, value_name = "N", default_value_t = 16384 / 3, value_parser = clap::value_parser!(u16).range(2..=5461))]
    slots: u16,

    /// Milliseconds without an answer after which the nodes call another failed (cluster-node-timeout)
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    node_timeout: u32,

    /// The address of node 2, which runs elsewhere, on the third port, as an empty node of a cluster. Ends by SHUTDOWN
    #[arg(long, value_name = "ADDR")]
    far: Option<IpAddr>,

    /// The shell command that separates the RDMA fabrics of node 2 and the client, for the event partition
    #[arg(long, value_name = "COMMAND", requires = "mend")]
    cut: Option<String>,

    /// The shell command that repairs what --cut has done
    #[arg(long, value_name = "COMMAND", requires = "cut")]
    mend: Option<String>,

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
    let args = Args::parse();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    if args.rdma && args.client == Client::RedisRs {
        return fail("redis-rs has TCP only: leave --rdma out", ExitCode::from(2));
    }
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, ExitCode::FAILURE),
    }
}

fn fail(message: &str, code: ExitCode) -> ExitCode {
    // Nothing can be done if standard error is closed.
    let _ = writeln!(std::io::stderr(), "error: {message}");
    code
}

async fn run(args: &Args) -> Result<(), String> {
    let mut servers = Servers::start(Setup {
        folder: args.valkey.clone(),
        bind: args.bind,
        first_port: args.port,
        rdma: args.rdma,
        node_timeout: args.node_timeout,
        far: args.far,
        cut: args.cut.clone(),
        mend: args.mend.clone(),
    })
    .await?;
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
        .filter(|event| event.is_possible(args.rdma, args.cut.is_some(), &version))
        .collect();
    let transport = if args.rdma { "rdma" } else { "tcp" };
    println!(
        "client {:?} over {transport}, {} tasks, {} commands/s, cluster-node-timeout {} ms, valkey {}",
        args.client, args.tasks, args.rate, args.node_timeout, version
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
