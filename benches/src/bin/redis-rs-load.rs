//! redis-rs over TCP under the same load as ours: tasks that share one `MultiplexedConnection`, one request each.
//!
//! A peer for `valkey-rdma-side-by-side`; prints valkey-benchmark's CSV.

use std::io::{Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use hdrhistogram::Histogram;
use redis::aio::MultiplexedConnection;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Test {
    Set,
    Get,
}

/// Loads a server through redis-rs.
#[derive(Debug, Parser)]
struct Args {
    /// The server
    #[arg(long)]
    url: String,

    /// Tasks that share the connection
    #[arg(long, default_value_t = 50)]
    tasks: u64,

    /// Requests, over all tasks
    #[arg(short = 'n', default_value_t = 100_000)]
    requests: u64,

    /// Size of values in bytes
    #[arg(short = 'd', default_value_t = 3)]
    value_len: usize,

    /// What to do
    #[arg(short = 't', value_enum)]
    test: Test,
}

const KEY: &str = "key:redis-rs";

/// 3 digits, up to a minute, in nanoseconds: three digits always fit.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let client = redis::Client::open(args.url.as_str())?;
    let connection = client.get_multiplexed_async_connection().await?;
    let value = Arc::new(vec![b'x'; args.value_len]);
    let mut prepare = connection.clone();
    redis::cmd("SET").arg(KEY).arg(&*value).query_async::<()>(&mut prepare).await?;

    let left = Arc::new(AtomicU64::new(args.requests));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..args.tasks)
        .map(|_| tokio::spawn(load(connection.clone(), args.test, Arc::clone(&value), Arc::clone(&left))))
        .collect();
    let mut latencies = histogram();
    for task in tasks {
        latencies.add(task.await??)?;
    }
    report(&latencies, begin.elapsed(), args.test)?;
    Ok(())
}

async fn load(
    mut connection: MultiplexedConnection,
    test: Test,
    value: Arc<Vec<u8>>,
    left: Arc<AtomicU64>,
) -> redis::RedisResult<Histogram<u64>> {
    let mut latencies = histogram();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let begin = Instant::now();
        match test {
            Test::Set => {
                let reply: String =
                    redis::cmd("SET").arg(KEY).arg(&*value).query_async(&mut connection).await?;
                assert_eq!(reply, "OK");
            }
            Test::Get => {
                let reply: Vec<u8> = redis::cmd("GET").arg(KEY).query_async(&mut connection).await?;
                assert_eq!(reply, *value);
            }
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
