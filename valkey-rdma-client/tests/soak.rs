//! Many tasks on one client, with random cancellations, while the server is restarted: no reply may reach the wrong
//! task, and no task may wait past its timeout.
//!
//! `cargo test` runs a small one against a mock that it restarts itself. Against a real server, which it starts and
//! restarts too:
//!
//! ```text
//! soak URL TASKS SECONDS RESTARTS SERVER [ARGUMENTS...]
//! ```
//!
//! It prints what it counted, and fails if anything was wrong.

#![expect(clippy::print_stdout, reason = "a program of its own, that tells its counts")]

use std::env;
use std::process::{Child, Command as Program, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use valkey_rdma_client::{Backoff, Client, Command, Config, Endpoint, Error, Fate};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

/// A task that waits this much longer than its timeout counts as hanging: time for a busy machine to tell it.
const GRACE: Duration = Duration::from_secs(60);
/// How long some thousand commands may take before nothing moves any more.
const STUCK: Duration = Duration::from_secs(300);
/// How much more memory the process may have at the end than at the first restart, when all its tasks were at work.
const GROWTH_KIB: u64 = 16 * 1024;

/// What became of the commands.
#[derive(Default)]
struct Counts {
    right: AtomicU64,
    wrong: AtomicU64,
    cancelled: AtomicU64,
    not_sent: AtomicU64,
    may_have_run: AtomicU64,
    timed_out: AtomicU64,
    not_ready: AtomicU64,
    refused_by_server: AtomicU64,
    hung: AtomicU64,
    stop: AtomicBool,
}

impl Counts {
    fn right(&self) -> u64 {
        self.right.load(Ordering::Relaxed)
    }

    /// Waits until so many more commands went right.
    async fn progress(&self, more: u64) -> Result<(), String> {
        let wanted = self.right() + more;
        let reach = async {
            while self.right() < wanted {
                tokio::task::yield_now().await;
            }
        };
        timeout(STUCK, reach).await.map_err(|_| format!("stuck at {} of {wanted} right", self.right()))
    }

    fn report(&self, client: &Client, restarts: u64) -> Result<(), String> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = client.counters();
        println!(
            "right {}, wrong {}, hung {}, cancelled {}, not sent {}, may have run {}, timed out {}, not ready {}, server errors {}",
            self.right(),
            read(&self.wrong),
            read(&self.hung),
            read(&self.cancelled),
            read(&self.not_sent),
            read(&self.may_have_run),
            read(&self.timed_out),
            read(&self.not_ready),
            read(&self.refused_by_server),
        );
        println!("restarts {restarts}; {counters:?}");
        if read(&self.wrong) + read(&self.hung) > 0 {
            return Err("replies reached the wrong task, or tasks hung".to_owned());
        }
        if read(&self.refused_by_server) > 0 {
            return Err("the server refused commands that are right".to_owned());
        }
        if counters.reconnects < restarts || self.right() == 0 {
            return Err(format!("{} reconnects for {restarts} restarts", counters.reconnects));
        }
        if counters.in_flight > 0 {
            return Err(format!("{} commands still in flight", counters.in_flight));
        }
        Ok(())
    }
}

/// Sends commands whose replies only this task can expect, until told to stop.
async fn work(client: Client, task: usize, limit: Duration, counts: Arc<Counts>) {
    let key = format!("soak:{task}");
    for round in 0_u64.. {
        if counts.stop.load(Ordering::Relaxed) {
            return;
        }
        let mine = format!("{key}:{round}");
        let command = match fastrand::u8(..4) {
            0 => Command::new("SET").arg(&key).arg(&mine),
            1 => Command::new("GET").arg(&key).idempotent(),
            2 => Command::new("ECHO").arg(&mine),
            _ => Command::new("ECHO").arg(&mine).idempotent(),
        };
        let (sets, gets) = (format!("{command:?}").contains("SET"), format!("{command:?}").contains("GET"));
        let call = client.command(command.timeout(limit));
        let reply = if fastrand::u8(..8) == 0 {
            let moment = Duration::from_micros(fastrand::u64(..3000));
            match timeout(moment, call).await {
                Ok(reply) => reply,
                Err(_) => {
                    counts.cancelled.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
            }
        } else {
            match timeout(limit + GRACE, call).await {
                Ok(reply) => reply,
                Err(_) => {
                    counts.hung.fetch_add(1, Ordering::Relaxed);
                    return;
                }
            }
        };
        let counter = match &reply {
            Ok(value) if sets && value.is_ok() => &counts.right,
            // Values are lost with the server.
            Ok(value) if gets && value.is_nil() => &counts.right,
            Ok(value) if gets && value.as_str().is_some_and(|text| text.starts_with(&format!("{key}:"))) => {
                &counts.right
            }
            Ok(value) if !sets && !gets && value.as_str() == Some(&mine) => &counts.right,
            Ok(_) => &counts.wrong,
            // A server that starts may say that it is not ready.
            Err(Error::Server(error)) if error.is_transient() => &counts.not_ready,
            Err(Error::Server(_)) => &counts.refused_by_server,
            Err(Error::TimedOut(_)) => &counts.timed_out,
            Err(error) if error.fate() == Fate::NotSent => &counts.not_sent,
            Err(_) => &counts.may_have_run,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

fn config() -> Config {
    Config::default()
        .reconnect(Backoff::default().first(Duration::from_millis(10)).max(Duration::from_millis(500)))
}

fn start(client: &Client, tasks: usize, limit: Duration) -> (JoinSet<()>, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(work(client.clone(), task, limit, counts.clone()));
    }
    (running, counts)
}

async fn stop(mut running: JoinSet<()>, counts: &Counts) {
    counts.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics");
    }
}

/// Against a mock, in counts and not in time.
async fn small() -> Result<(), String> {
    let mut address = "127.0.0.1:0".parse().expect("an address");
    let serve = |address| {
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, address, &TransportConfig::default()).start()
    };
    let mut server = serve(address).await.map_err(|error| error.to_string())?;
    let url = server.urls().next().expect("one listener");
    address = url.trim_start_matches("emulated://").parse().expect("an address");
    let client = Client::connect_with(url.as_str(), &config()).await.map_err(|error| error.to_string())?;
    let (running, counts) = start(&client, 200, Duration::from_secs(30));
    for _ in 0..5 {
        counts.progress(4000).await?;
        server.shutdown().await;
        server = serve(address).await.map_err(|error| error.to_string())?;
    }
    counts.progress(4000).await?;
    stop(running, &counts).await;
    // The replies of cancelled commands may still be under way; this one comes after them.
    client.command(["PING"]).await.map_err(|error| error.to_string())?;
    counts.report(&client, 5)
}

/// Against a real server, for so long.
async fn long(
    endpoint: Endpoint,
    tasks: usize,
    seconds: u64,
    restarts: u64,
    server: &[String],
) -> Result<(), String> {
    let (program, arguments) = server.split_first().ok_or("which server?")?;
    let serve = || -> Result<Child, String> {
        let child = Program::new(program).args(arguments).stdout(Stdio::null()).spawn();
        child.map_err(|error| format!("{program}: {error}"))
    };
    let mut child = serve()?;
    let client = loop {
        match Client::connect_with(&endpoint, &config()).await {
            Ok(client) => break client,
            Err(error) => println!("{error}"),
        }
        sleep(Duration::from_millis(500)).await;
    };
    println!("{}", client.info());
    let (running, counts) = start(&client, tasks, Duration::from_secs(10));
    let share =
        Duration::from_secs(seconds) / u32::try_from(restarts + 1).map_err(|error| error.to_string())?;
    let mut first = None;
    for restart in 1..=restarts {
        sleep(share).await;
        let resident = resident_kib();
        first.get_or_insert(resident);
        println!("restart {restart}: {} right, {resident} KiB resident", counts.right());
        child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
        child = serve()?;
    }
    sleep(share).await;
    let resident = resident_kib();
    println!("end: {} right, {resident} KiB resident", counts.right());
    stop(running, &counts).await;
    client.command(["PING"]).await.map_err(|error| error.to_string())?;
    for connection in client.connections() {
        println!("{connection}");
    }
    let report = counts.report(&client, restarts);
    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
    report?;
    match first {
        Some(first) if resident > first + GROWTH_KIB => Err(format!("{first} KiB became {resident} KiB")),
        _ => Ok(()),
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn main() -> ExitCode {
    let arguments: Vec<_> = env::args()
        .skip(1)
        .filter(|argument| argument.contains("://") || !argument.starts_with("--"))
        .collect();
    let runtime = Runtime::new().expect("a runtime");
    let outcome = match &arguments[..] {
        [url, tasks, seconds, restarts, ..] if url.contains("://") => {
            let server: Vec<_> = env::args().skip(5).collect();
            match (url.parse(), tasks.parse(), seconds.parse(), restarts.parse()) {
                (Ok(url), Ok(tasks), Ok(seconds), Ok(restarts)) => {
                    runtime.block_on(long(url, tasks, seconds, restarts, &server))
                }
                _ => Err("usage: soak URL TASKS SECONDS RESTARTS SERVER [ARGUMENTS...]".to_owned()),
            }
        }
        _ => {
            let one_thread = Builder::new_current_thread().enable_all().build().expect("a runtime");
            [runtime, one_thread].iter().try_for_each(|runtime| runtime.block_on(small()))
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error}");
            ExitCode::FAILURE
        }
    }
}
