//! One client library under the load of an application: tasks that share one connection, one request each at a time, on a
//! runtime of one thread or of several.
//!
//! A peer for `valkey-rdma-side-by-side`, which runs redis-rs and ours through the same loop; prints valkey-benchmark's CSV.

use std::error::Error;
use std::io::{Write, stderr, stdout};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::runtime;
use valkey_rdma_client::{Client, Command, Counters};

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Library {
    ValkeyRdma,
    RedisRs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Test {
    Set,
    Get,
}

/// Loads a server through a client library.
#[derive(Debug, Parser)]
struct Args {
    /// Which one
    #[arg(long, value_enum)]
    library: Library,

    /// The server, as the library wants it
    #[arg(long)]
    url: String,

    /// Tasks that share the connection
    #[arg(long, default_value_t = 50)]
    tasks: u64,

    /// Threads of the runtime: 1 is a runtime of one thread, more are one that moves tasks between them
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,

    /// Connect on a thread and a runtime of its own, which then drives the connection
    #[arg(long)]
    driver_thread: bool,

    /// Requests, over all tasks
    #[arg(short = 'n', default_value_t = 100_000)]
    requests: u64,

    /// Size of values in bytes
    #[arg(short = 'd', default_value_t = 3)]
    value_len: usize,

    /// What to do
    #[arg(short = 't', value_enum)]
    test: Test,

    /// Also print, on standard error, how often the runtime's threads parked and, of our library, how often the
    /// connection task was polled, per 1000 requests and per batch
    #[arg(long)]
    counts: bool,
}

const KEY: &str = "key:client-load";

/// What a task holds of the shared connection.
#[derive(Clone)]
enum Connection {
    ValkeyRdma(Client),
    RedisRs(MultiplexedConnection),
}

impl Connection {
    async fn open(library: Library, url: &str) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(match library {
            Library::ValkeyRdma => Self::ValkeyRdma(Client::connect(url).await?),
            Library::RedisRs => {
                // Its default of 500 ms ends runs under callgrind; ours is this.
                let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
                let client = redis::Client::open(url)?;
                Self::RedisRs(client.get_multiplexed_async_connection_with_config(&config).await?)
            }
        })
    }

    /// In good order: a Valkey server minds RDMA clients that vanish.
    async fn close(self) {
        if let Self::ValkeyRdma(client) = self {
            client.close().await;
        }
    }

    async fn set(&mut self, value: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            Self::ValkeyRdma(client) => {
                let reply = client.command(Command::new("SET").arg(KEY).arg(value)).await?;
                assert_eq!(reply.as_bytes(), Some(&b"OK"[..]));
            }
            Self::RedisRs(connection) => {
                let reply: String = redis::cmd("SET").arg(KEY).arg(value).query_async(connection).await?;
                assert_eq!(reply, "OK");
            }
        }
        Ok(())
    }

    async fn get(&mut self, expected: &[u8]) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self {
            Self::ValkeyRdma(client) => {
                let reply = client.command(Command::new("GET").arg(KEY)).await?;
                assert_eq!(reply.as_bytes(), Some(expected));
            }
            Self::RedisRs(connection) => {
                let reply: Vec<u8> = redis::cmd("GET").arg(KEY).query_async(connection).await?;
                assert_eq!(reply, expected);
            }
        }
        Ok(())
    }
}

/// 3 digits, up to a minute, in nanoseconds: three digits always fit.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let args = Args::parse();
    let mut runtime = match args.threads.get() {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let runtime = runtime.worker_threads(args.threads.get()).enable_all().build()?;
    if !args.driver_thread {
        let connection = runtime.block_on(Connection::open(args.library, &args.url))?;
        return runtime.block_on(run(connection, args));
    }
    let driver = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let connection = driver.block_on(Connection::open(args.library, &args.url))?;
    runtime.block_on(run(connection, args))
}

async fn run(mut connection: Connection, args: Args) -> Result<(), Box<dyn Error + Send + Sync>> {
    let value = Arc::new(vec![b'x'; args.value_len]);
    connection.set(&value).await?;

    let left = Arc::new(AtomicU64::new(args.requests));
    // Each takes a tenth of a millisecond to make, and to add: not while the clock runs.
    let mut histograms: Vec<_> = (0..args.tasks).map(|_| histogram()).collect();
    let before = Counts::read(&connection);
    let begin = Instant::now();
    let tasks: Vec<_> = histograms
        .drain(..)
        .map(|latencies| {
            tokio::spawn(load(
                connection.clone(),
                args.test,
                Arc::clone(&value),
                Arc::clone(&left),
                latencies,
            ))
        })
        .collect();
    for task in tasks {
        histograms.push(task.await??);
    }
    let elapsed = begin.elapsed();
    if args.counts {
        Counts::read(&connection).report(&before, args.requests)?;
    }
    connection.close().await;
    let mut latencies = histogram();
    for task in histograms {
        latencies.add(task)?;
    }
    report(&latencies, elapsed, args.test)?;
    Ok(())
}

/// What the runtime and the library count.
struct Counts {
    /// How often a thread parked, over all threads.
    parks: u64,
    library: Option<Counters>,
}

impl Counts {
    fn read(connection: &Connection) -> Self {
        let metrics = runtime::Handle::current().metrics();
        Self {
            parks: (0..metrics.num_workers()).map(|worker| metrics.worker_park_count(worker)).sum(),
            library: match connection {
                Connection::ValkeyRdma(client) => Some(client.counters()),
                Connection::RedisRs(_) => None,
            },
        }
    }

    fn report(&self, before: &Self, requests: u64) -> std::io::Result<()> {
        let mut out = stderr();
        let parks = self.parks - before.parks;
        writeln!(out, "parks per 1000 requests: {:.1}", parks as f64 * 1000.0 / requests as f64)?;
        if let (Some(now), Some(before)) = (&self.library, &before.library) {
            let batches = now.batches - before.batches;
            let per_batch = |count: u64| count as f64 / batches as f64;
            writeln!(
                out,
                "per batch: {:.2} commands, {:.2} driver polls, {:.2} empty ones, {:.2} parks",
                per_batch(now.commands - before.commands),
                per_batch(now.driver_polls - before.driver_polls),
                per_batch(now.empty_driver_polls - before.empty_driver_polls),
                per_batch(parks),
            )?;
        }
        Ok(())
    }
}

async fn load(
    mut connection: Connection,
    test: Test,
    value: Arc<Vec<u8>>,
    left: Arc<AtomicU64>,
    mut latencies: Histogram<u64>,
) -> Result<Histogram<u64>, Box<dyn Error + Send + Sync>> {
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let begin = Instant::now();
        match test {
            Test::Set => connection.set(&value).await?,
            Test::Get => connection.get(&value).await?,
        }
        latencies.saturating_record(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}

fn report(latencies: &Histogram<u64>, elapsed: Duration, test: Test) -> std::io::Result<()> {
    let name = match test {
        Test::Set => "SET",
        Test::Get => "GET",
    };
    let ms = |nanoseconds: u64| nanoseconds as f64 / 1e6;
    let mut out = stdout();
    writeln!(
        out,
        "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\""
    )?;
    writeln!(
        out,
        "\"{name}\",\"{:.2}\",\"{:.3}\",\"{:.3}\",\"{:.3}\",\"{:.3}\",\"{:.3}\",\"{:.3}\"",
        latencies.len() as f64 / elapsed.as_secs_f64(),
        latencies.mean() / 1e6,
        ms(latencies.min()),
        ms(latencies.value_at_quantile(0.5)),
        ms(latencies.value_at_quantile(0.95)),
        ms(latencies.value_at_quantile(0.99)),
        ms(latencies.max()),
    )
}
