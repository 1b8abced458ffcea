//! Many tasks on one client, with random cancellations, while the server is restarted: no reply may reach the wrong
//! task, and no task may wait past its timeout. For hours, and with a real server: `tests/lab/soak.py`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use valkey_rdma_client::{Backoff, Client, Command, Config, Error, Fate};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

const TASKS: usize = 200;
const RESTARTS: u64 = 5;
/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(30);
/// A task that waits this much longer than its timeout counts as hanging: time for a busy machine to tell it.
const GRACE: Duration = Duration::from_secs(60);
/// How long some thousand commands may take before nothing moves any more.
const STUCK: Duration = Duration::from_secs(300);
/// What became of the commands.
#[derive(Debug, Default)]
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
    async fn progress(&self, more: u64) {
        let wanted = self.right() + more;
        let reach = async {
            while self.right() < wanted {
                tokio::task::yield_now().await;
            }
        };
        timeout(STUCK, reach).await.unwrap_or_else(|_| panic!("stuck before {wanted} right: {self:?}"));
    }

    fn check(&self, client: &Client) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = client.counters();
        assert_eq!((read(&self.wrong), read(&self.hung)), (0, 0), "wrong and hung: {self:?}, {counters:?}");
        assert_eq!(read(&self.refused_by_server), 0, "right commands were refused: {self:?}, {counters:?}");
        assert!(counters.reconnects >= RESTARTS && self.right() > 0, "{self:?}, {counters:?}");
        assert_eq!(counters.in_flight, 0, "commands are still in flight: {self:?}, {counters:?}");
    }
}

/// Sends commands whose replies only this task can expect, until told to stop.
async fn work(client: Client, task: usize, counts: Arc<Counts>) {
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
        let call = client.command(command.timeout(LIMIT));
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
            match timeout(LIMIT + GRACE, call).await {
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

/// Against a mock, in counts and not in time.
async fn soak() {
    let mut address = "127.0.0.1:0".parse().expect("an address");
    let serve = |address| {
        Server::builder(Mock::new()).rdma(DeviceKind::Emulated, address, &TransportConfig::default()).start()
    };
    let mut server = serve(address).await.expect("a free port");
    let url = server.urls().next().expect("one listener");
    address = url.trim_start_matches("emulated://").parse().expect("an address");
    let pauses = Backoff::default().first(Duration::from_millis(10)).max(Duration::from_millis(500));
    let config = Config::default().reconnect(pauses);
    let client = Client::connect_with(url.as_str(), &config).await.expect("connected");
    let counts = Arc::new(Counts::default());
    let mut running = JoinSet::new();
    for task in 0..TASKS {
        running.spawn(work(client.clone(), task, counts.clone()));
    }
    for _ in 0..RESTARTS {
        counts.progress(4000).await;
        server.shutdown().await;
        server = serve(address).await.expect("the same port");
    }
    counts.progress(4000).await;
    counts.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ended.expect("no task panics");
    }
    // The replies of cancelled commands may be pending; this one comes after them.
    client.command(["PING"]).await.expect("PONG");
    counts.check(&client);
}

#[tokio::test]
async fn no_reply_reaches_the_wrong_task_on_one_thread() {
    soak().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reply_reaches_the_wrong_task_on_several_threads() {
    soak().await;
}
