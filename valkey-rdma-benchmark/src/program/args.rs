//! The command line: valkey-benchmark's flags with the same meaning, and ours.
//!
//! Each flag is a field here, with its range and the flags that it excludes. `read` makes them from the words typed. `check` refuses
//! what depends on values. `chosen` says which tests run. `in_flags` puts errors into the words of the command line. `refused` names the
//! flags of valkey-benchmark that this tool does not have, with the reason. `tls` has those for TLS.
//! `typed` is the command line as `--evidence` publishes it, and `after_help` what `--help` says after the flags.

mod after_help;
mod check;
mod chosen;
mod in_flags;
mod read;
mod refused;
mod secret;
mod target;
mod tls;
mod typed;
mod values;

use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgAction, ArgGroup, Parser, value_parser};
use valkey_rdma_client::Polling;

use self::after_help::AFTER_HELP;
use super::other_side::OtherSide;
use crate::drive::{Arrivals, Choice, Verify};
use crate::program::matrix::{Axis, Matrix};
use crate::report::Percentiles;
use crate::run::{Cell, cells_from_list};
use crate::workload::{DefaultTest, Distribution, Keys, Mix, Populate, Sizes, tests_from_list};

#[cfg(test)]
pub(crate) use refused::REFUSED;
pub(crate) use secret::{Password, ServerUrl};
use tls::TlsArgs;
pub(crate) use values::{DemoForm, Transport};

/// Heading in the help of the flags that replace a single run of each test.
const MODES: &str = "Modes (at most one; without one, each test runs once)";
/// The group of the flags that choose a mode.
const MODE: &str = "mode";
/// The group of the flags that send at intended times.
const SCHEDULE: &str = "schedule";
/// The group of the flags that measure two servers in turns.
const IN_TURNS: &str = "in_turns";
/// The flags for the output of tests that run once each: comparisons and sweeps have outputs of their own.
const OF_SINGLE_TESTS: [&str; 5] = ["hdr", "quiet", "csv", "precision", "percentiles"];

/// The tests of one `-t`. A name of its own, because clap reads `Vec` as a flag that may be repeated.
type Tests = Vec<DefaultTest>;
/// The cells of one `--cells`, likewise.
type Cells = Vec<Cell>;

/// What the user typed, each flag within its own range.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "valkey-rdma-benchmark",
    version = valkey_rdma_program::version!("verbs", "rdma-sys", "tls"),
    about = "Measures a Valkey server over RDMA, TCP or the emulated device, and checks every reply.",
    disable_help_flag = true,
    disable_version_flag = true,
    override_usage = "valkey-rdma-benchmark [OPTIONS] [--] [COMMAND ARGS...]",
    after_help = AFTER_HELP,
    group = ArgGroup::new(IN_TURNS).multiple(true)
)]
#[group(skip)]
pub(crate) struct Args {
    /// Server host name or address
    #[arg(help_heading = "Server", short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub(crate) host: String,

    /// Server port
    #[arg(
        help_heading = "Server", short = 'p', value_name = "PORT", default_value_t = 6379,
        value_parser = value_parser!(u16).range(1..)
    )]
    pub(crate) port: u16,

    /// Unix socket of the server, instead of host and port
    #[arg(
        help_heading = "Server", short = 's', value_name = "SOCKET",
        conflicts_with_all = ["url", "host", "port", "rdma", "transport", "tls"]
    )]
    pub(crate) socket: Option<PathBuf>,

    /// Password; other users of this machine can see it here: use VALKEY_RDMA_PASSWORD, VALKEYCLI_AUTH or REDISCLI_AUTH instead
    #[arg(help_heading = "Server", short = 'a', value_name = "PASSWORD")]
    pub(crate) password: Option<Password>,

    /// User name; needs a password
    #[arg(help_heading = "Server", long, value_name = "NAME")]
    pub(crate) user: Option<String>,

    #[arg(
        help_heading = "Server", short = 'u', long,
        help = "Server as a URL: rdma://, emulated://, valkey:// or redis:// [user[:password]@]host[:port][/db][?options]; rdmas://, emulateds://, valkeys:// or rediss:// for TLS",
        value_name = "URL",
        conflicts_with_all = ["host", "port", "password", "user", "dbnum", "rdma", "transport"]
    )]
    pub(crate) url: Option<ServerUrl>,

    /// Connect over RDMA; same as --transport rdma
    #[arg(help_heading = "Server", long, conflicts_with = "transport")]
    pub(crate) rdma: bool,

    /// Transport to the server given by -h and -p; emulated is software, not RDMA
    #[arg(help_heading = "Server", long, value_enum, value_name = "KIND", default_value_t = Transport::Tcp)]
    pub(crate) transport: Transport,

    #[command(flatten)]
    tls: TlsArgs,

    /// Size of our receive window in bytes, 65536 to 16777216
    #[arg(
        help_heading = "RDMA", long, value_name = "BYTES",
        value_parser = value_parser!(u32).range(values::rx_sizes())
    )]
    pub(crate) rx_size: Option<u32>,

    /// How completions are awaited: event, busy or adaptive
    #[arg(help_heading = "RDMA", long, value_name = "MODE")]
    pub(crate) poll: Option<Polling>,

    /// Send values of 8 KiB and more from registered memory, without a copy
    #[arg(help_heading = "Workload", long)]
    pub(crate) pool: bool,

    /// Number of parallel connections
    #[arg(
        help_heading = "Load", short = 'c', value_name = "CLIENTS", default_value_t = 50,
        value_parser = value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) clients: u32,

    /// Tasks that share each connection through the client library; without it, each connection has one task and no library
    #[arg(help_heading = "Load", long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    pub(crate) tasks_per_connection: Option<u32>,

    /// Threads of the runtime that the tasks of --tasks-per-connection run on, and move between; not together with --threads
    #[arg(
        help_heading = "Load", long, value_name = "NUM", default_value_t = 1,
        value_parser = value_parser!(u16).range(1..=512)
    )]
    pub(crate) runtime_threads: u16,

    /// Client library that sends the requests, over TCP, instead of this project's own
    #[arg(
        help_heading = "Load", long, value_name = "NAME",
        conflicts_with_all = ["keep_alive", "enable_tracking", "socket", "cluster", "pool"]
    )]
    pub(crate) library: Option<String>,

    /// The library of that name.
    #[arg(skip)]
    pub(crate) through: Option<Choice>,

    /// Move the values of the tests set and get directly between the server and registered memory, through the client library: over RDMA, to
    /// servers of this project that offer it. Refused where they would go over the stream
    #[arg(
        help_heading = "Load", long,
        conflicts_with_all = ["library", "keep_alive", "enable_tracking", "socket", "pool", "command"]
    )]
    pub(crate) direct: bool,

    /// Prefix of the commands of --direct: PREFIX.GET and PREFIX.SET [default: BLOB]
    #[arg(
        help_heading = "Load", long, value_name = "PREFIX", requires = "direct",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub(crate) direct_prefix: Option<String>,

    /// Measure the whole cluster that the server belongs to: each connection is then a client of the library, with a connection to
    /// each node, shared by --tasks-per-connection tasks (1)
    #[arg(
        help_heading = "Server", long,
        conflicts_with_all = ["keep_alive", "enable_tracking", "socket", "compare", "pool"]
    )]
    pub(crate) cluster: bool,

    /// Requests per test, over all connections; each command of a sequence counts, and the last sequence is sent whole [default: 100000]
    #[arg(
        help_heading = "Load", short = 'n', value_name = "REQUESTS", conflicts_with = "duration",
        value_parser = value_parser!(u64).range(1..=1_000_000_000_000)
    )]
    pub(crate) requests: Option<u64>,

    /// Seconds that each test runs, instead of -n
    #[arg(help_heading = "Load", long, value_name = "SECONDS", value_parser = values::seconds)]
    pub(crate) duration: Option<Duration>,

    /// Seconds that each test runs before its results are recorded
    #[arg(help_heading = "Load", long, value_name = "SECONDS", value_parser = values::seconds)]
    pub(crate) warmup: Option<Duration>,

    /// Size of values in bytes: one size, or several with weights, as in 64:10,1024-4096:1
    #[arg(help_heading = "Workload", short = 'd', value_name = "SIZES", default_value = "3")]
    pub(crate) sizes: Sizes,

    /// Database to SELECT
    #[arg(help_heading = "Server", long, value_name = "DB", default_value_t = 0)]
    pub(crate) dbnum: u32,

    /// Use RESP3
    #[arg(help_heading = "Server", short = '3')]
    pub(crate) resp3: bool,

    /// Threads that drive the connections
    #[arg(
        help_heading = "Load", long, value_name = "NUM", default_value_t = 1,
        value_parser = value_parser!(u16).range(0..=512)
    )]
    pub(crate) threads: u16,

    /// Send CLIENT TRACKING ON on every connection
    #[arg(help_heading = "Workload", long)]
    pub(crate) enable_tracking: bool,

    /// 1: keep connections; 0: open a new connection for each request or pipeline
    #[arg(
        help_heading = "Load", short = 'k', value_name = "BOOLEAN", default_value_t = 1,
        value_parser = value_parser!(u8).range(0..=1)
    )]
    pub(crate) keep_alive: u8,

    /// Replace __rand_int__ by random numbers from 0 to KEYSPACE-1; without it, all requests use one key
    #[arg(
        help_heading = "Workload", short = 'r', value_name = "KEYSPACE",
        value_parser = value_parser!(u64).range(1..=Keys::MAX)
    )]
    pub(crate) keyspace: Option<u64>,

    /// Use the keys of -r in order instead of at random
    #[arg(help_heading = "Workload", long, requires = "keyspace", conflicts_with = "key_dist")]
    pub(crate) sequential: bool,

    /// Distribution of the keys of -r: uniform, zipf:EXPONENT, hot:KEYS%:ACCESSES%
    #[arg(
        help_heading = "Workload",
        long,
        value_name = "KIND",
        default_value = "uniform",
        requires = "keyspace"
    )]
    pub(crate) key_dist: Distribution,

    /// Requests per pipeline: requests sent before the first reply is awaited; a sequence of commands counts once
    #[arg(
        help_heading = "Load", short = 'P', value_name = "NUMREQ", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) pipeline: u32,

    /// Print one line per test: requests per second and p50
    #[arg(help_heading = "Output", short = 'q')]
    pub(crate) quiet: bool,

    /// Percentiles in the table of tests, such as 50,99.99
    #[arg(help_heading = "Output", long, value_name = "LIST", default_value_t = Percentiles::USUAL, conflicts_with_all = ["csv", "quiet"])]
    pub(crate) percentiles: Percentiles,

    /// Decimal places of latencies in milliseconds, 0 to 6
    #[arg(
        help_heading = "Output", long, value_name = "DIGITS", default_value_t = 3,
        value_parser = value_parser!(u8).range(0..=6)
    )]
    pub(crate) precision: u8,

    /// Print CSV: valkey-benchmark's columns first, ours after them
    #[arg(help_heading = "Output", long)]
    pub(crate) csv: bool,

    /// Repeat the tests until interrupted
    #[arg(help_heading = MODES, short = 'l', group = MODE, conflicts_with_all = ["json", "hdr", "plot", "html"])]
    pub(crate) forever: bool,

    /// Tests to run, separated by commas: their names are below
    #[arg(
        help_heading = "Workload", short = 't', long = "test", value_name = "TESTS",
        value_parser = tests_from_list
    )]
    pub(crate) tests: Option<Tests>,

    /// Open the connections, send nothing, and wait
    #[arg(help_heading = MODES, short = 'I', group = MODE)]
    pub(crate) idle: bool,

    /// Read the last argument of COMMAND from standard input
    #[arg(help_heading = "Workload", short = 'x', requires = "command")]
    stdin: bool,

    /// Commands per second, sent at intended times even if the server falls behind; each command of a sequence counts; 0: no schedule
    #[arg(
        help_heading = "Load", long, value_name = "COMMANDS", default_value_t = 0.0,
        value_parser = values::rate, group = SCHEDULE
    )]
    pub(crate) rps: f64,

    /// Distribution of the intended times of --rps and --sweep
    #[arg(help_heading = "Load", long, value_enum, value_name = "KIND", default_value_t = Arrivals::Constant, requires = SCHEDULE)]
    pub(crate) arrivals: Arrivals,

    /// What the names of all keys of the tests begin with
    #[arg(
        help_heading = "Workload",
        long,
        value_name = "PREFIX",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) key_prefix: String,

    /// Seed of the random keys; the same seed gives the same keys [default: from the clock]
    #[arg(help_heading = "Workload", long, value_name = "NUM")]
    pub(crate) seed: Option<u64>,

    /// Functions in the library of the function_load test
    #[arg(
        help_heading = "Workload", long, value_name = "NUM", default_value_t = 10,
        value_parser = value_parser!(u32).range(1..=10_000)
    )]
    pub(crate) num_functions: u32,

    /// Keys passed by the fcall test
    #[arg(
        help_heading = "Workload", long, value_name = "NUM", default_value_t = 1,
        value_parser = value_parser!(u32).range(0..=10_000)
    )]
    pub(crate) num_keys_in_fcall: u32,

    /// Choose commands at random instead of -t: SETS:GETS as in 1:10, or tests with weights as in set:1,get:10
    #[arg(help_heading = "Workload", long, value_name = "MIX", conflicts_with = "tests")]
    pub(crate) ratio: Option<Mix>,

    /// Keys per command of the mget and mset tests
    #[arg(
        help_heading = "Workload", long, value_name = "N", default_value_t = 10,
        value_parser = value_parser!(u16).range(1..=10_000)
    )]
    pub(crate) multi_key: u16,

    /// What is checked of each reply
    #[arg(help_heading = "Checks", long, value_enum, value_name = "LEVEL", default_value_t = Verify::Length)]
    pub(crate) verify: Verify,

    /// Keys to write before tests that read them (get, mget, --ratio); with none, such a test fails if its keys are missing
    #[arg(
        help_heading = "Workload", long, value_enum, value_name = "WHICH", default_value_t = Populate::None
    )]
    pub(crate) populate: Populate,

    /// End the run if requests are waiting and no reply arrives for this long; 0: wait for ever
    #[arg(
        help_heading = "Checks", long, value_name = "SECONDS", default_value = "60",
        value_parser = values::seconds_or_none
    )]
    reply_timeout: Duration,

    /// Stop at the first wrong reply
    #[arg(help_heading = "Checks", long)]
    pub(crate) fail_fast: bool,

    /// Find the highest rate that the server sustains, in runs of --duration (default 2 s) at rising rates
    #[arg(
        help_heading = MODES, long, groups = [MODE, SCHEDULE],
        conflicts_with = "requests", conflicts_with_all = OF_SINGLE_TESTS
    )]
    pub(crate) sweep: bool,

    /// For --sweep: the highest acceptable p99 in milliseconds
    #[arg(help_heading = MODES, long, value_name = "MS", requires = "sweep", value_parser = values::millis)]
    pub(crate) target_p99: Option<f64>,

    /// Measure this server too, in alternating rounds, and print ratios
    #[arg(
        help_heading = MODES, long, value_name = "URL", group = IN_TURNS,
        conflicts_with_all = ["forever", "idle", "sweep", "matrix", "rps"], conflicts_with_all = OF_SINGLE_TESTS
    )]
    pub(crate) compare: Option<ServerUrl>,

    /// For --compare and --evidence: rounds per server
    #[arg(
        help_heading = MODES, long, value_name = "N", default_value_t = 10, requires = IN_TURNS,
        value_parser = value_parser!(u32).range(2..=1000)
    )]
    pub(crate) rounds: u32,

    /// For --compare: what differs on the other side, of c, P, tasks (0: no library) and threads, as in "c=8 tasks=1"
    #[arg(help_heading = MODES, long, value_name = "SHAPE", requires = "compare")]
    pub(crate) compare_with: Option<OtherSide>,

    /// Run every combination of values, as in "c=1,50 P=1,16 d=64,4096 tasks=0,50 threads=1,2"
    #[arg(help_heading = MODES, long, value_name = "AXES", group = MODE)]
    pub(crate) matrix: Option<Matrix>,

    /// Measure RDMA beside TCP of one server in the cells below, and write one file to publish, and FILE.html beside it. TCP is that of
    /// the same host and port, or of --compare. --duration is the time of each test on each side [default: 1 s a round]
    #[arg(
        help_heading = MODES, long, value_name = "FILE.json", groups = [MODE, IN_TURNS],
        value_parser = values::json_file, conflicts_with_all = ["socket", "cluster"]
    )]
    pub(crate) evidence: Option<PathBuf>,

    /// For --evidence: these cells only, separated by commas
    #[arg(help_heading = MODES, long, value_name = "NAMES", requires = "evidence", value_parser = cells_from_list)]
    pub(crate) cells: Option<Cells>,

    /// For --evidence: leave the server's URL, addresses and GIDs in the files
    #[arg(help_heading = MODES, long, requires = "evidence")]
    pub(crate) with_addresses: bool,

    /// The command line as it may be published.
    #[arg(skip)]
    pub(crate) typed: String,

    /// Write results and environment to a JSON file
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the latency distribution of each test for HdrHistogram's tools: FILE.TEST.hgrm
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,

    /// Draw latency percentiles, rate over time and comparisons
    #[arg(help_heading = "Output", long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    /// Write a report with plots as one HTML file, which needs no network
    #[arg(help_heading = "Output", long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,

    /// Print rate and latencies while a test runs, once a second
    #[arg(help_heading = "Output", long)]
    pub(crate) live: bool,

    /// Start a mock server in this process and show what this project does; tables: all figures. Takes no other flag
    #[arg(
        help_heading = MODES, long, exclusive = true, value_enum, value_name = "FORM", num_args = 0..=1,
        require_equals = true, default_missing_value = "screen"
    )]
    pub(crate) demo: Option<DemoForm>,

    /// Print this help
    #[arg(help_heading = "Help", long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print the version
    #[arg(help_heading = "Help", short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,

    /// A command to send instead of the tests, with placeholders; several are separated by ';'
    #[arg(
        help_heading = "Workload", value_name = "COMMAND", trailing_var_arg = true,
        conflicts_with_all = [
            "tests", "ratio", "key_prefix", "populate", "multi_key", "num_functions", "num_keys_in_fcall"
        ]
    )]
    pub(crate) command: Vec<OsString>,
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

    /// How long connections wait for a reply; `None` for ever.
    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        (!self.reply_timeout.is_zero()).then_some(self.reply_timeout)
    }

    /// The length of the longest value, at any point of `--matrix`.
    fn longest_value(&self) -> usize {
        let points = self.matrix.iter().flat_map(Matrix::combinations);
        let longest = points.map(|point| self.at(&point).sizes.longest()).max();
        longest.unwrap_or(self.sizes.longest())
    }

    /// Whether tasks share connections through a client library, on one side at least.
    pub(crate) fn is_shared(&self) -> bool {
        self.tasks_per_connection.is_some() || self.compare_with.as_ref().is_some_and(OtherSide::is_shared)
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
