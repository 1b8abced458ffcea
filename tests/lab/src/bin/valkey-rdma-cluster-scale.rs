//! A cluster of many nodes, simulated in this process, and many clients: what connecting and refreshing cost.

#![allow(clippy::print_stdout, reason = "its output is the table")]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::task::JoinSet;
use tokio::time::sleep;
use valkey_rdma_client::Client;
use valkey_rdma_mock::{DeviceKind, MockCluster, TransportConfig, Transports};
use valkey_rdma_program::{LevelFilter, fail, millis, start};

/// Starts a mock cluster of many nodes in this process, connects many clients, and fails some primaries over while all clients
/// send commands. Prints times, memory, and how often the nodes were asked for their map
///
/// Nodes and clients share one process and its processors: times are upper limits, and memory is that of both sides.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-cluster-scale", version)]
struct Args {
    /// Primaries; each gets one replica
    #[arg(long, value_name = "N", default_value_t = 500)]
    primaries: usize,

    /// Clients
    #[arg(long, value_name = "N", default_value_t = 200)]
    clients: usize,

    /// Primaries that are failed over, one after the other
    #[arg(long, value_name = "N", default_value_t = 10)]
    failovers: usize,

    /// Commands that each client sends at once after each failover
    #[arg(long, value_name = "N", default_value_t = 50)]
    commands: usize,

    /// Use TCP instead of the emulated device
    #[arg(long)]
    tcp: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = match start(LevelFilter::ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match run(&args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

async fn run(args: &Args) -> Result<(), String> {
    let buffers = TransportConfig::default().rx_size(65_536);
    let transports = if args.tcp { Transports::Tcp } else { Transports::Rdma(DeviceKind::Emulated) };
    let (before, begun) = (resident_kib(), Instant::now());
    let cluster = MockCluster::builder(args.primaries).replicas(1).transports(transports).transport(&buffers);
    let cluster =
        cluster.start().await.map_err(|error| format!("the mock cluster does not start: {error}"))?;
    show("nodes", &format!("{} started in {}", cluster.len(), ms(begun.elapsed())));
    show("memory", &format!("{} KiB for each node", (resident_kib() - before) / cluster.len() as i64));

    // One process is all nodes and clients: each of them may be late.
    let option = if args.tcp { "?timeout=60s" } else { "?timeout=60s&rx_size=65536" };
    let seeds: Vec<String> = cluster.urls().iter().take(3).map(|url| format!("{url}{option}")).collect();
    let (before, begun) = (resident_kib(), Instant::now());
    let mut clients = Vec::new();
    let mut longest = Duration::ZERO;
    for _ in 0..args.clients {
        let begun = Instant::now();
        clients.push(Client::connect(&seeds).await.map_err(|error| error.to_string())?);
        longest = longest.max(begun.elapsed());
    }
    let each = begun.elapsed() / u32::try_from(args.clients.max(1)).unwrap_or(u32::MAX);
    show("connect", &format!("{} clients, {} each, at most {}", args.clients, ms(each), ms(longest)));
    show(
        "memory",
        &format!("{} KiB for each client", (resident_kib() - before) / args.clients.max(1) as i64),
    );
    show("maps read", &format!("{} to connect", maps(&cluster)));

    for failover in 0..args.failovers {
        let primary = failover % args.primaries;
        let key = cluster.key_of(primary, 0);
        // So that every client has a connection to the node that is about to lose its role.
        all(&clients, &key, args.commands).await?;
        let asked = maps(&cluster);
        let before: Vec<u64> = clients.iter().map(readings).collect();
        let redirected = cluster.calls_everywhere("get");
        cluster.fail_over(args.primaries + primary);
        let begun = Instant::now();
        all(&clients, &key, args.commands).await?;
        let took = begun.elapsed();
        // Readings that were put off.
        sleep(Duration::from_secs(2)).await;
        let most = clients.iter().zip(before).map(|(client, before)| readings(client) - before).max();
        let commands = args.clients * args.commands;
        show(
            "failover",
            &format!(
                "{commands} commands in {}, {} of them redirected, {} maps read, at most {} by one client",
                ms(took),
                cluster.calls_everywhere("get") - redirected - commands as u64,
                maps(&cluster) - asked,
                most.unwrap_or(0)
            ),
        );
    }
    Ok(())
}

/// Lets every client send the same command many times at once.
async fn all(clients: &[Client], key: &str, commands: usize) -> Result<(), String> {
    let mut tasks = JoinSet::new();
    for client in clients {
        for _ in 0..commands {
            let (client, key) = (client.clone(), key.to_owned());
            tasks.spawn(async move { client.command(["GET", &key]).await.map(drop) });
        }
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// How often any node was asked for the map.
fn maps(cluster: &MockCluster) -> u64 {
    cluster.calls_everywhere("cluster|slots") + cluster.calls_everywhere("cluster|shards")
}

/// How often a client has read the map again.
fn readings(client: &Client) -> u64 {
    client.cluster().map_or(0, |cluster| cluster.status().counters.refreshes)
}

/// The memory of this process, in KiB. 0 where the system does not say.
fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.trim().parse().ok()).unwrap_or(0)
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", millis(time))
}

fn show(what: &str, text: &str) {
    println!("{what:<10} {text}");
}
