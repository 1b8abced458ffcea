//! The command line: valkey-benchmark's flags with the same meaning, and ours.
//!
//! A flag is a field here, with its range; what contradicts another flag is refused in `check`; what this tool cannot
//! do is refused in `refused`, with the reason.

mod check;
mod refused;
mod secret;
mod target;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, CommandFactory, FromArgMatches, Parser, ValueEnum};
use valkey_rdma_client::Endpoint;

use crate::generator::{Arrivals, Verify};
use crate::matrix::{Axis, Matrix};
use crate::workload::{DefaultTest, Distribution, Keys, Mix, Populate, Sizes, TestsError, tests_from_list};

pub(crate) use refused::REFUSED;
pub(crate) use secret::{Password, ServerUrl};

/// What the user typed, each flag within its own range.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "valkey-rdma-benchmark",
    version,
    about = "Measures a Valkey server over RDMA, over TCP and over the emulated device, and checks every reply.",
    disable_help_flag = true,
    disable_version_flag = true,
    override_usage = "valkey-rdma-benchmark [OPTIONS] [--] [COMMAND ARGS...]",
    after_help = AFTER_HELP
)]
pub(crate) struct Args {
    /// Server host name or address
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// Server port
    #[arg(short = 'p', value_name = "PORT", default_value_t = 6379, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// Server's Unix socket, instead of host and port
    #[arg(short = 's', value_name = "SOCKET", conflicts_with_all = ["url", "rdma", "transport"])]
    pub(crate) socket: Option<PathBuf>,

    /// Password
    #[arg(short = 'a', value_name = "PASSWORD")]
    pub(crate) password: Option<Password>,

    /// User name; needs -a
    #[arg(long, value_name = "NAME", requires = "password")]
    pub(crate) user: Option<String>,

    /// Server as a URL.
    #[arg(
        short = 'u',
        long,
        help = "Server as a URL: rdma://, emulated://, valkey:// or redis:// [user[:password]@]host[:port][/db][?options]",
        value_name = "URL",
        conflicts_with_all = ["host", "port", "password", "user", "dbnum", "rdma", "transport"]
    )]
    pub(crate) url: Option<ServerUrl>,

    /// Connect over RDMA: as --transport rdma
    #[arg(long, conflicts_with = "transport")]
    pub(crate) rdma: bool,

    /// How to reach the server given by -h and -p; emulated is software, not RDMA
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Transport::Tcp)]
    pub(crate) transport: Transport,

    /// Size of our receive window in bytes, 65536 to 16777216 (RDMA and emulated)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(rx_sizes()))]
    pub(crate) rx_size: Option<u32>,

    /// How completions are awaited (RDMA and emulated): event, busy or adaptive
    #[arg(long, value_name = "MODE")]
    pub(crate) poll: Option<String>,

    /// Send values of 8 KiB and more from registered memory, without a copy (RDMA and emulated)
    #[arg(long)]
    pub(crate) pool: bool,

    /// Number of parallel connections
    #[arg(short = 'c', value_name = "CLIENTS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) clients: u32,

    /// Tasks that share each connection through the client library; without it, connections are driven directly
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) tasks_per_connection: Option<u32>,

    /// Total number of requests per test, over all connections; a sequence of commands is one [default: 100000]
    #[arg(short = 'n', value_name = "REQUESTS", conflicts_with = "duration", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) requests: Option<u64>,

    /// Run each test for so many seconds, instead of -n
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,

    /// Run each test for so many seconds before anything is recorded
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) warmup: Option<Duration>,

    /// Size of values in bytes: one, or several with weights, as in 64:10,1024-4096:1
    #[arg(short = 'd', value_name = "SIZES", default_value = "3")]
    pub(crate) sizes: Sizes,

    /// Database to SELECT
    #[arg(long, value_name = "DB", default_value_t = 0)]
    pub(crate) dbnum: u32,

    /// Speak RESP3
    #[arg(short = '3')]
    pub(crate) resp3: bool,

    /// Number of threads that drive the connections
    #[arg(long, value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=512))]
    pub(crate) threads: u16,

    /// Send CLIENT TRACKING ON on every connection
    #[arg(long)]
    pub(crate) enable_tracking: bool,

    /// 1: keep connections; 0: connect anew for every request, or pipeline of requests
    #[arg(short = 'k', value_name = "BOOLEAN", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) keep_alive: u8,

    /// Put random numbers from 0 to KEYSPACE-1 in place of __rand_int__; without it, all requests use one key
    #[arg(short = 'r', value_name = "KEYSPACE", value_parser = clap::value_parser!(u64).range(1..=Keys::MAX))]
    pub(crate) keyspace: Option<u64>,

    /// Count through the keyspace of -r instead of drawing at random
    #[arg(long, requires = "keyspace", conflicts_with = "key_dist")]
    pub(crate) sequential: bool,

    /// How often keys of -r are used: uniform, zipf:EXPONENT, hot:KEYS%:ACCESSES%
    #[arg(long, value_name = "KIND", default_value = "uniform", requires = "keyspace")]
    pub(crate) key_dist: Distribution,

    /// Requests per pipeline: so many are sent before the first reply is awaited
    #[arg(short = 'P', value_name = "NUMREQ", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) pipeline: u32,

    /// One line per test: requests per second and p50
    #[arg(short = 'q')]
    pub(crate) quiet: bool,

    /// Decimal places of latencies in milliseconds, 0 to 6
    #[arg(long, value_name = "DIGITS", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub(crate) precision: u8,

    /// CSV: valkey-benchmark's columns first, ours after them
    #[arg(long)]
    pub(crate) csv: bool,

    /// Loop: run the tests until interrupted
    #[arg(short = 'l')]
    pub(crate) forever: bool,

    /// Tests to run, separated by commas; also stream or echo: the byte stream without a Valkey server
    #[arg(short = 't', long = "test", value_name = "TESTS", value_parser = selection)]
    pub(crate) tests: Option<Selection>,

    /// Idle: open the connections and wait
    #[arg(short = 'I')]
    pub(crate) idle: bool,

    /// Read the last argument of COMMAND from standard input
    #[arg(short = 'x', requires = "command")]
    pub(crate) stdin: bool,

    /// Send so many requests per second at intended times, whether or not the server keeps up; 0: no limit
    #[arg(long, value_name = "REQUESTS", default_value_t = 0.0, value_parser = rate)]
    pub(crate) rps: f64,

    /// How the intended times of --rps lie
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Arrivals::Constant)]
    pub(crate) arrivals: Arrivals,

    /// Seed of the random keys; one seed, one sequence [default: from the clock]
    #[arg(long, value_name = "NUM")]
    pub(crate) seed: Option<u64>,

    /// Functions in the library of the function_load test
    #[arg(long, value_name = "NUM", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) num_functions: u32,

    /// Keys passed by the fcall test
    #[arg(long, value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) num_keys_in_fcall: u32,

    /// Mix commands by chance, instead of -t: SETS:GETS as in 1:10, or tests with weights as in set:1,get:10
    #[arg(long, value_name = "MIX", conflicts_with = "tests")]
    pub(crate) ratio: Option<Mix>,

    /// Keys per command of the mget and mset tests
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) multi_key: u16,

    /// What is checked of replies
    #[arg(long, value_enum, value_name = "LEVEL", default_value_t = Verify::Length)]
    pub(crate) verify: Verify,

    /// What to write before tests that read keys (get, mget, --ratio); with none, the test fails if the keys are missing
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Populate::None)]
    pub(crate) populate: Populate,

    /// End the run if no reply arrives for this long while requests are waiting; 0: wait for ever
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = seconds_or_none)]
    reply_timeout: Duration,

    /// Stop at the first wrong reply
    #[arg(long)]
    pub(crate) fail_fast: bool,

    /// Find the highest rate that the server keeps up with, in runs of --duration (default 2 s) at rising rates
    #[arg(long)]
    pub(crate) sweep: bool,

    /// For --sweep: the highest p99 in milliseconds that is good enough
    #[arg(long, value_name = "MS", requires = "sweep", value_parser = millis)]
    pub(crate) target_p99: Option<f64>,

    /// Measure this server too, in turns with the other, and print ratios
    #[arg(long, value_name = "URL")]
    pub(crate) compare: Option<ServerUrl>,

    /// For --compare: how often each server has its turn
    #[arg(long, value_name = "N", default_value_t = 10, requires = "compare", value_parser = clap::value_parser!(u32).range(2..=1000))]
    pub(crate) rounds: u32,

    /// Run every combination, as in "c=1,50 P=1,16 d=64,4096 tasks=0,50 threads=1,2"
    #[arg(long, value_name = "AXES")]
    pub(crate) matrix: Option<Matrix>,

    /// Write the results and the environment to a file
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write latency distributions for HdrHistogram's tools: FILE.TEST.hgrm, and FILE.hlog by the second
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,

    /// Draw latency percentiles, rate over time and comparisons
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    /// Show rate and latencies while a test runs; lines, if standard error is no terminal
    #[arg(long)]
    pub(crate) live: bool,

    /// Serve -t stream and -t echo at this address, over --transport, until interrupted
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) serve_echo: Option<SocketAddr>,

    /// Start a mock server in this process and compare the emulated device with TCP loopback; takes no other flag
    #[arg(long, exclusive = true)]
    pub(crate) demo: bool,

    /// Print this help
    #[arg(long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,

    /// A command to send instead of the tests, with placeholders; several are separated by ';'
    #[arg(value_name = "COMMAND", trailing_var_arg = true, conflicts_with_all = ["tests", "ratio"])]
    pub(crate) command: Vec<OsString>,
}

const AFTER_HELP: &str = "\
Placeholders in COMMAND:
  __rand_int__   a random number of 12 digits below -r; another one each time
  __rand_1st__ to __rand_9th__
                 the same, but all occurrences in one command have the same number
  __data__       a value of -d bytes: that of the number before it in the command
A number before a command repeats it: multi ';' 3 incr counter ';' exec

Examples:
  See it work on this machine, without an adapter or a server:
    valkey-rdma-benchmark --demo
  A real server over RDMA, 50 connections:
    valkey-rdma-benchmark --url rdma://192.168.1.1:6379 -t ping,set,get
  What RDMA gains over TCP on the same server, with a plot:
    valkey-rdma-benchmark -u rdma://192.168.1.1:6379 --compare valkey://192.168.1.1:6379 -t set,get --plot gain.svg
  The highest rate with a p99 below 1 ms:
    valkey-rdma-benchmark -h 192.168.1.1 --rdma -t set,get --sweep --target-p99 1
  One connection shared by 50 tasks, 64 KiB values, a million random keys:
    valkey-rdma-benchmark -h 192.168.1.1 --rdma -c 1 --tasks-per-connection 50 -d 65536 -r 1000000 -t set,get

Exit status: 0 if every reply was right, 1 if not or if the server could not be reached, 2 for a wrong flag,
130 if interrupted.";

/// How to reach the server that `-h` and `-p` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    /// RDMA through the machine's verbs devices
    Rdma,
    /// TCP
    Tcp,
    /// The software device: works anywhere, is not RDMA
    Emulated,
}

impl Transport {
    /// The URL scheme of this transport.
    pub(crate) fn scheme(self) -> &'static str {
        match self {
            Transport::Rdma => "rdma",
            Transport::Tcp => "valkey",
            Transport::Emulated => "emulated",
        }
    }
}

/// What `-t` selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Default tests, in the order in which they run.
    Tests(Vec<DefaultTest>),
    /// The byte stream, one way.
    Stream,
    /// The byte stream, there and back.
    Echo,
}

/// The client's range, in the type that clap wants.
fn rx_sizes() -> RangeInclusive<i64> {
    let (least, most) = Endpoint::RX_SIZES.into_inner();
    least.into()..=most.into()
}

fn selection(list: &str) -> Result<Selection, TestsError> {
    match list.trim() {
        "stream" => Ok(Selection::Stream),
        "echo" => Ok(Selection::Echo),
        list => tests_from_list(list).map(Selection::Tests),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e7 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("it is a number of seconds above 0, 10000000 at most".to_owned()),
    }
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e7).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds, from 0 to 10000000".to_owned()),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate == 0.0 || (1e-3..=1e9).contains(&rate) => Ok(rate),
        _ => Err("it is 0 or a number from 0.001 to 1000000000".to_owned()),
    }
}

fn millis(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(millis) if millis > 0.0 && millis <= 1e9 => Ok(millis),
        _ => Err("it is a number of milliseconds above 0, 1000000000 at most".to_owned()),
    }
}

/// What to do instead of measuring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instead {
    /// Print this text to standard output and succeed (`--help`, `--version`).
    Print(String),
    /// The flags make no sense, for this one-line reason.
    Refuse(String),
}

impl Args {
    /// Reads a command line whose first item is the program's name.
    ///
    /// # Errors
    /// [`Instead`] says what to print when there is nothing to measure.
    pub(crate) fn from_command_line<I>(line: I) -> Result<Args, Instead>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let instead = |error: clap::Error| {
            let text = error.render();
            if error.use_stderr() {
                Instead::Refuse(one_line(&text.to_string()))
            } else {
                Instead::Print(text.to_string())
            }
        };
        let matches = refused::with_refused(Args::command()).try_get_matches_from(line).map_err(instead)?;
        refused::refuse(&matches)?;
        let mut args = Args::from_arg_matches(&matches).map_err(instead)?;
        if args.rdma {
            args.transport = Transport::Rdma;
        }
        check::check(&args, &matches)?;
        Ok(args)
    }

    /// These flags at one point of `--matrix`.
    #[must_use]
    fn at(&self, point: &[(Axis, u64)]) -> Args {
        let mut args = Args { matrix: None, ..self.clone() };
        for &(axis, value) in point {
            // The ranges of the axes are those of the flags.
            let value32 = u32::try_from(value).unwrap_or(u32::MAX);
            match axis {
                Axis::Connections => args.clients = value32,
                Axis::Pipeline => args.pipeline = value32,
                Axis::Size => args.sizes = Sizes::fixed(value),
                Axis::Tasks => args.tasks_per_connection = (value > 0).then_some(value32),
                Axis::Threads => args.threads = u16::try_from(value).unwrap_or(u16::MAX),
                Axis::RxSize => args.rx_size = Some(value32),
            }
        }
        args
    }

    /// The default of `--reply-timeout`.
    pub(crate) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

    /// How long connections wait for a reply; `None` for ever.
    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        (!self.reply_timeout.is_zero()).then_some(self.reply_timeout)
    }

    /// Length of the keyspace, `None` for a single key.
    pub(crate) fn keyspace(&self) -> Option<NonZeroU64> {
        self.keyspace.and_then(NonZeroU64::new)
    }

    /// Number of requests per test, unless a duration is the limit.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.unwrap_or(100_000)
    }
}

/// The reason in clap's message, which goes on with usage and tips after an empty line.
fn one_line(message: &str) -> String {
    let reason = message.split("\n\n").next().unwrap_or(message);
    let reason = reason.strip_prefix("error: ").unwrap_or(reason);
    let mut line = String::new();
    for word in reason.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    line.push_str("; see --help");
    line
}
