//! Blocking clients beside each other: threads that wait for each reply, with ours and with redis-rs's connections.
//!
//! Runs both in interleaved rounds on one server, and prints the medians of the rounds, with the lowest and the highest ratio. Our
//! threads share a client. redis-rs's threads have a connection each, because its blocking connections cannot be shared.

use std::error::Error;
use std::io::{Write, stdout};
use std::num::{NonZeroU64, NonZeroUsize};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::time::{ClockId, clock_gettime};
use valkey_rdma_client::blocking::Client;

/// Compares blocking GETs of this project's client and of redis-rs
#[derive(Debug, Parser)]
struct Args {
    /// The server, as both libraries want it: redis://HOST:PORT
    #[arg(long)]
    url: String,

    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2,8")]
    threads: Vec<NonZeroUsize>,

    /// GETs in a round, over all threads
    #[arg(short = 'n', default_value = "20000")]
    requests: NonZeroU64,

    /// Size of the value in bytes
    #[arg(short = 'd', default_value_t = 3)]
    value_len: usize,

    /// Give each of our threads a client of its own
    #[arg(long)]
    own_clients: bool,

    /// Rounds, of which each runs both libraries
    #[arg(long, default_value = "7")]
    rounds: NonZeroUsize,
}

const KEY: &str = "key:blocking-load";

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What a GET took.
#[derive(Clone, Copy)]
struct Cost {
    elapsed: Duration,
    /// Of this process, over all threads.
    cpu: Duration,
}

fn main() -> Outcome<()> {
    let args = Args::parse();
    let redis = redis::Client::open(args.url.as_str())?;
    let ours = Client::connect(args.url.as_str())?;
    ours.command(["SET".as_bytes(), KEY.as_bytes(), &vec![b'x'; args.value_len]])?;
    let mut out = stdout();
    writeln!(
        out,
        "{:>7}  {:>21}  {:>25}  {:>25}",
        "threads", "ours, redis-rs: GET/s", "rate: ours / redis-rs", "CPU: ours / redis-rs"
    )?;
    for &threads in &args.threads {
        let mut rounds = Vec::new();
        for _ in 0..args.rounds.get() {
            let get_ours = || {
                let client =
                    if args.own_clients { Client::connect(args.url.as_str())? } else { ours.clone() };
                Ok(move || Ok(client.query::<Vec<u8>>(["GET", KEY])?.len()))
            };
            let get_theirs = || {
                let mut connection = redis.get_connection()?;
                Ok(move || Ok(redis::cmd("GET").arg(KEY).query::<Vec<u8>>(&mut connection)?.len()))
            };
            rounds.push((measure(&args, threads, get_ours)?, measure(&args, threads, get_theirs)?));
        }
        let rate = |cost: &Cost| args.requests.get() as f64 / cost.elapsed.as_secs_f64();
        let ours: Vec<_> = rounds.iter().map(|(ours, _)| rate(ours)).collect();
        let theirs: Vec<_> = rounds.iter().map(|(_, theirs)| rate(theirs)).collect();
        let rates = rounds.iter().map(|(ours, theirs)| rate(ours) / rate(theirs)).collect();
        let cpu =
            rounds.iter().map(|(ours, theirs)| ours.cpu.as_secs_f64() / theirs.cpu.as_secs_f64()).collect();
        writeln!(
            out,
            "{threads:>7}  {:>10.0} {:>10.0}  {:>25}  {:>25}",
            median(ours),
            median(theirs),
            with_range(rates),
            with_range(cpu),
        )?;
    }
    ours.close();
    Ok(())
}

/// Runs a round: each thread makes its GET, and calls it.
fn measure<G>(args: &Args, threads: NonZeroUsize, get: impl Fn() -> Outcome<G>) -> Outcome<Cost>
where
    G: FnMut() -> Outcome<usize> + Send,
{
    let gets = (0..threads.get()).map(|_| get()).collect::<Outcome<Vec<_>>>()?;
    let each = args.requests.get() / threads.get() as u64;
    let (begin, cpu) = (Instant::now(), cpu_time());
    thread::scope(|scope| {
        let load = |mut get: G| {
            move || -> Outcome<()> {
                for _ in 0..each {
                    assert_eq!(get()?, args.value_len);
                }
                Ok(())
            }
        };
        let threads: Vec<_> = gets.into_iter().map(|get| scope.spawn(load(get))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| -> Outcome<()> { thread.join().expect("it does not panic") })
    })?;
    Ok(Cost { elapsed: begin.elapsed(), cpu: cpu_time() - cpu })
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn with_range(samples: Vec<f64>) -> String {
    let lowest = samples.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = samples.iter().copied().fold(0.0, f64::max);
    format!("{:.2} ({lowest:.2} to {highest:.2})", median(samples))
}
