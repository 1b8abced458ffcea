//! Load with faults at random, for as long as one likes: nothing may crash, hang for good, grow without end, or harm a
//! connection that does nothing wrong.

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
    /// The device under all of it.
    pub device: DeviceKind,
    /// Where its servers listen.
    pub bind: IpAddr,
    /// For how long rounds are begun.
    pub duration: Duration,
    /// What chance starts from.
    pub seed: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Story {
    /// Rounds, each with scripts of its own.
    pub rounds: u64,
    /// Connections made by clients that met faults.
    pub connections: u64,
    /// Replies to them that were right.
    pub replies: u64,
    /// Faults that happened.
    pub faults: u64,
    /// How their connections ended, by kind of error.
    pub errors: BTreeMap<&'static str, u64>,
    /// Replies to the neighbour, who met none; all of them right.
    pub neighbour: u64,
    /// Resident memory in KiB, after the tenth round and at the end.
    pub memory: (u64, u64),
}

/// Runs rounds until the time is up. Each tells its story so far.
///
/// # Errors
/// A text for people, with the round's scripts: a neighbour was harmed, or memory has grown beyond bounds.
pub async fn run(options: &Options, mut tell: impl FnMut(&Story)) -> Result<Story, String> {
    let mut random = Rng::with_seed(options.seed);
    let mut story = Story::default();
    let end = Instant::now() + options.duration;
    while Instant::now() < end || story.rounds < WARM_UP + 1 {
        let scripts = (script(&mut random), script(&mut random));
        round(options, &scripts, &mut random, &mut story)
            .await
            .map_err(|what| format!("round {} ({} / {}): {what}", story.rounds, scripts.0, scripts.1))?;
        story.rounds += 1;
        let memory = resident().ok_or("cannot read this process's memory from /proc/self/status")?;
        if story.rounds == WARM_UP {
            story.memory.0 = memory;
        }
        story.memory.1 = memory;
        if story.rounds > WARM_UP && memory > story.memory.0 + MOST_GROWTH {
            return Err(format!("resident memory grew from {} to {memory} KiB", story.memory.0));
        }
        tell(&story);
    }
    Ok(story)
}

/// One to three faults, each now and then.
fn script(random: &mut Rng) -> String {
    let all: Vec<Fault> = Fault::all().collect();
    let mut parts = Vec::new();
    for _ in 0..random.usize(1..=3) {
        let fault = all[random.usize(0..all.len())];
        let when = [2, 10, 50][random.usize(0..3)];
        let value = random.u32(1..=64);
        // Those with a value take any of these; the parser tells which they are.
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
    story: &mut Story,
) -> Result<(), String> {
    let parse = |script: &str| script.parse::<Faults>().map_err(|error| error.to_string());
    let (of_server, of_client) = (parse(&scripts.0)?, parse(&scripts.1)?);
    let mut config = TransportConfig::default();
    config.rx_size(65_536).connect_timeout(LIMIT).keepalive(Some(Duration::from_millis(50)));
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

    let mut client_config = TransportConfig::default();
    client_config.rx_size(65_536).connect_timeout(LIMIT);
    let neighbour = connect(options.device, honest_at, &client_config, None)
        .await
        .map_err(|error| format!("the neighbour cannot connect: {error}"))?;
    let mut tasks = Vec::new();
    for number in 0..CLIENTS {
        let faults = random.bool().then(|| of_client.clone());
        tasks.push(tokio::spawn(sufferer(options.device, faulty_at, client_config.clone(), faults, number)));
    }
    for task in tasks {
        let (connections, replies, errors) = task.await.map_err(|error| format!("a client: {error}"))?;
        story.connections += connections;
        story.replies += replies;
        for error in errors {
            *story.errors.entry(error).or_default() += 1;
        }
        story.neighbour += timeout(NEIGHBOUR_LIMIT, work(&neighbour, "neighbour", 20))
            .await
            .unwrap_or(Err("no reply in time"))
            .map_err(|error| format!("the neighbour was harmed: {error:?}"))?;
    }
    story.faults += of_server.happened() + of_client.happened();
    neighbour.close().await;
    drop(server);
    Ok(())
}

/// Connects a few times, and works until something breaks.
async fn sufferer(
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

/// How long the neighbour's work may take beside the others': it is never to hang.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(30);

/// Rounds after which memory should have found its level.
const WARM_UP: u64 = 10;

/// KiB of growth that allocators and caches may cause.
const MOST_GROWTH: u64 = 256 * 1024;
