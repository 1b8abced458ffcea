//! Load with random faults: nothing may crash, hang, keep growing, or harm a connection that does nothing wrong.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fastrand::Rng;
use tokio::time::{Instant, timeout};
use valkey_rdma_client::{Client, Endpoint, Error, Transport, Value};
use valkey_rdma_mock::faults::{Fault, Faults};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_transport::{Listener, Stream, device};

/// What a soak does.
#[derive(Clone, Debug)]
pub struct Options {
    /// The device of all connections.
    pub device: DeviceKind,
    /// The address of the servers.
    pub bind: IpAddr,
    /// How long new rounds are started.
    pub duration: Duration,
    /// How many rounds there are at least.
    pub rounds: u64,
    /// The seed of all random choices.
    pub seed: u64,
    /// How memory is measured, and how much it may grow.
    pub memory: Memory,
}

/// How memory is measured, and how much it may grow.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Returns the memory in use, in KiB. `None` if it cannot be measured.
    pub measure: fn() -> Option<u64>,
    /// How much it may grow after the first ten rounds, in KiB.
    pub growth: u64,
}

impl Default for Memory {
    /// Resident memory of this process, which may grow by 256 MiB: allocators and caches keep much of what was freed.
    fn default() -> Self {
        Self { measure: resident, growth: 256 * 1024 }
    }
}

/// The results of a soak.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Rounds, each with its own faults.
    pub rounds: u64,
    /// Connections made by clients with faults.
    pub connections: u64,
    /// Right replies to them.
    pub replies: u64,
    /// Faults that happened.
    pub faults: u64,
    /// How their connections ended, by kind of error.
    pub errors: BTreeMap<&'static str, u64>,
    /// Replies to the neighbour, which has no faults. All of them were right.
    pub neighbour: u64,
    /// Memory in KiB, after the tenth round and at the end.
    pub memory: (u64, u64),
}

/// Runs rounds until the time is up, and passes the results so far to `progress` after each.
///
/// # Errors
/// A text for people, with the faults of the round: the neighbour was harmed, or memory has grown too much.
pub async fn run(options: &Options, mut progress: impl FnMut(&Summary)) -> Result<Summary, String> {
    let mut random = Rng::with_seed(options.seed);
    let mut summary = Summary::default();
    let end = Instant::now() + options.duration;
    while Instant::now() < end || summary.rounds < options.rounds {
        let scripts = (script(&mut random), script(&mut random));
        round(options, &scripts, &mut random, &mut summary)
            .await
            .map_err(|what| format!("round {} ({} / {}): {what}", summary.rounds, scripts.0, scripts.1))?;
        summary.rounds += 1;
        let memory = (options.memory.measure)().ok_or("memory in use cannot be measured")?;
        if summary.rounds == WARM_UP {
            summary.memory.0 = memory;
        }
        summary.memory.1 = memory;
        if summary.rounds > WARM_UP && memory > summary.memory.0 + options.memory.growth {
            return Err(format!("memory grew from {} to {memory} KiB", summary.memory.0));
        }
        progress(&summary);
    }
    Ok(summary)
}

/// One to three faults, each of which happens now and then.
fn script(random: &mut Rng) -> String {
    let all: Vec<Fault> = Fault::all().collect();
    let mut parts = Vec::new();
    for _ in 0..random.usize(1..=3) {
        let fault = all[random.usize(0..all.len())];
        let when = [2, 10, 50][random.usize(0..3)];
        let value = random.u32(1..=64);
        // A fault with a value takes any of these. The parser knows which faults have one.
        let with_value = format!("{}={value}@1/{when}", fault.name());
        let parses = with_value.parse::<Faults>().is_ok();
        parts.push(if parses { with_value } else { format!("{}@1/{when}", fault.name()) });
    }
    format!("{},seed={}", parts.join(","), random.u32(..))
}

async fn round(
    options: &Options,
    scripts: &(String, String),
    random: &mut Rng,
    summary: &mut Summary,
) -> Result<(), String> {
    let parse = |script: &str| script.parse::<Faults>().map_err(|error| error.to_string());
    let (of_server, of_client) = (parse(&scripts.0)?, parse(&scripts.1)?);
    let config = TransportConfig::default()
        .rx_size(65_536)
        .connect_timeout(LIMIT)
        .keepalive(Some(Duration::from_millis(50)));
    let any = SocketAddr::new(options.bind, 0);
    let mut listeners = Vec::new();
    for _ in 0..2 {
        let listener = device::listen(options.device, any, &config.device_options()).await;
        listeners.push(listener.map_err(|error| error.to_string())?);
    }
    let (honest, faulty) = (listeners.remove(0), listeners.remove(0));
    let (honest_at, faulty_at) = (honest.local_addr(), faulty.local_addr());
    let server = Server::builder(Mock::new())
        .listener(Listener::over(honest, &config))
        .listener(Listener::over(of_server.listener(faulty), &config))
        .start()
        .await
        .map_err(|error| error.to_string())?;

    let client_config = TransportConfig::default().rx_size(65_536).connect_timeout(LIMIT);
    let neighbour = connect(options.device, honest_at, &client_config, None)
        .await
        .map_err(|error| format!("the neighbour cannot connect: {error}"))?;
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        let faults = random.bool().then(|| of_client.clone());
        tasks.push(tokio::spawn(faulty_client(
            options.device,
            faulty_at,
            client_config.clone(),
            faults,
            number,
        )));
    }
    for task in tasks {
        let (connections, replies, errors) = task.await.map_err(|error| format!("a client: {error}"))?;
        summary.connections += connections;
        summary.replies += replies;
        for error in errors {
            *summary.errors.entry(error).or_default() += 1;
        }
        summary.neighbour += timeout(NEIGHBOUR_LIMIT, work(&neighbour, "neighbour", 20))
            .await
            .unwrap_or(Err("no reply in time"))
            .map_err(|error| format!("the neighbour was harmed: {error:?}"))?;
    }
    summary.faults += of_server.happened() + of_client.happened();
    neighbour.close().await;
    drop(server);
    Ok(())
}

/// Connects a few times, and works on each connection until something breaks.
async fn faulty_client(
    device: DeviceKind,
    addr: SocketAddr,
    config: TransportConfig,
    faults: Option<Faults>,
    number: usize,
) -> (u64, u64, Vec<&'static str>) {
    let mut errors = Vec::new();
    let (mut connections, mut replies) = (0, 0);
    for _ in 0..CONNECTIONS {
        let client = match timeout(LIMIT, connect(device, addr, &config, faults.as_ref())).await {
            Ok(Ok(client)) => client,
            Ok(Err(_)) => {
                errors.push("not connected");
                continue;
            }
            Err(_) => {
                errors.push("connecting timed out");
                continue;
            }
        };
        connections += 1;
        match timeout(LIMIT, work(&client, &format!("key{number}"), 50)).await {
            Ok(Ok(count)) => replies += count,
            Ok(Err(error)) => errors.push(error),
            Err(_) => errors.push("no reply in time"),
        }
    }
    (connections, replies, errors)
}

async fn connect(
    device: DeviceKind,
    addr: SocketAddr,
    config: &TransportConfig,
    faults: Option<&Faults>,
) -> Result<Client, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let mut endpoint =
        device::open(device, addr, &config.device_options()).await.map_err(|error| text(&error))?;
    if let Some(faults) = faults {
        endpoint = faults.endpoint(endpoint).map_err(|error| text(&error))?;
    }
    let stream = Stream::connect_over(endpoint, config).await.map_err(|error| text(&error))?;
    let transport = match device {
        DeviceKind::Verbs => Transport::Rdma,
        DeviceKind::Emulated => Transport::Emulated,
    };
    let login = Endpoint::new(transport, addr.ip().to_string(), addr.port());
    Client::from_stream(stream, &login).await.map_err(|error| text(&error))
}

/// Sets and gets values of growing length. Returns how many replies were right.
async fn work(client: &Client, key: &str, times: u64) -> Result<u64, &'static str> {
    for number in 0..times {
        let value = vec![b'a' + (number % 26) as u8; (number * number * 40) as usize];
        client.command([b"SET", key.as_bytes(), &value]).await.map_err(kind)?;
        let reply = client.command(["GET", key]).await.map_err(kind)?;
        if reply != Value::Bulk(value.into()) {
            return Err("another value");
        }
    }
    Ok(2 * times)
}

fn kind(error: Error) -> &'static str {
    match error {
        Error::Lost(_) => "connection lost",
        Error::Server(_) => "error reply",
        Error::Connect(_) => "not connected",
        _ => "other error",
    }
}

/// Resident memory of this process in KiB.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Clients per round, and connections that each makes.
const CLIENTS: usize = 6;
const CONNECTIONS: usize = 3;

/// How long a client waits for anything before it gives up.
const LIMIT: Duration = Duration::from_secs(2);

/// How long the neighbour's work may take beside the others'. Only a hang exceeds it.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(300);

/// Rounds after which the memory in use no longer grows.
const WARM_UP: u64 = 10;
