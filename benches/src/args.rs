//! The command line: valkey-benchmark's flags with the same meaning, and ours.

use std::ffi::OsString;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use clap::{ArgAction, Parser, ValueEnum};
use valkey_rdma_client::Endpoint;

use crate::workload::{Key, Test};

/// Largest value: Valkey's default `proto-max-bulk-len`.
const MAX_VALUE: u64 = 512 << 20;

/// What the user typed, each flag within its own range.
#[derive(Debug, Clone, Parser)]
#[command(
    name = "valkey-rdma-benchmark",
    version,
    about = "Measures a Valkey server over RDMA, over TCP and over the emulated device, and checks every reply.",
    disable_help_flag = true,
    disable_version_flag = true,
    override_usage = "valkey-rdma-benchmark [OPTIONS]",
    after_help = EXAMPLES
)]
pub struct Args {
    /// Server host name or address
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,

    /// Server port
    #[arg(short = 'p', value_name = "PORT", default_value_t = 6379, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// Password
    #[arg(short = 'a', value_name = "PASSWORD")]
    pub password: Option<Password>,

    /// User name; needs -a
    #[arg(long, value_name = "NAME", requires = "password")]
    pub user: Option<String>,

    /// Database to SELECT
    #[arg(long, value_name = "DB", default_value_t = 0)]
    pub dbnum: u32,

    /// Speak RESP3
    #[arg(short = '3')]
    pub resp3: bool,

    /// How to reach the server given by -h and -p; emulated is software, not RDMA
    #[arg(long, value_enum, value_name = "KIND", default_value_t = Transport::Rdma)]
    pub transport: Transport,

    /// Server as a URL.
    #[arg(
        short = 'u',
        long,
        help = "Server as a URL: rdma://, emulated://, valkey:// or redis:// [user[:password]@]host[:port][/db][?options]",
        value_name = "URL",
        conflicts_with_all = ["host", "port", "password", "user", "dbnum", "resp3", "transport"]
    )]
    pub url: Option<ServerUrl>,

    /// Size of our receive window in bytes, 65536 to 16777216 (RDMA and emulated)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(rx_sizes()))]
    pub rx_size: Option<u32>,

    /// Number of parallel connections
    #[arg(short = 'c', value_name = "CLIENTS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,

    /// Number of tasks that share each connection; what waits when it is free leaves together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub tasks_per_connection: u32,

    /// Total number of requests per test, over all connections
    #[arg(short = 'n', value_name = "REQUESTS", default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub requests: u64,

    /// Size of SET and GET values in bytes
    #[arg(short = 'd', value_name = "SIZE", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=MAX_VALUE))]
    pub value_len: u64,

    /// Commands per pipeline; every task sends that many and waits for all their replies
    #[arg(short = 'P', value_name = "NUMREQ", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub pipeline: u32,

    /// Use random keys key:000000000000 to key:(KEYSPACE-1); without it, all requests use one key
    #[arg(short = 'r', value_name = "KEYSPACE", value_parser = clap::value_parser!(u64).range(1..=Key::MAX_KEYS))]
    pub keyspace: Option<u64>,

    /// Seed of the random keys; one seed, one sequence
    #[arg(long, value_name = "NUM", default_value_t = 0)]
    pub seed: u64,

    /// Tests to run, separated by commas: ping (or ping_mbulk), set, get
    #[arg(short = 't', value_name = "TESTS", value_parser = tests_from_list, default_value = "ping,set,get")]
    pub tests: Tests,

    /// Number of threads that drive the connections
    #[arg(long, value_name = "NUM", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=512))]
    pub threads: u16,

    /// One line per test: requests per second and p50
    #[arg(short = 'q')]
    pub quiet: bool,

    /// CSV: valkey-benchmark's columns first, ours after them
    #[arg(long)]
    pub csv: bool,

    /// Start a mock server in this process and compare the emulated device with TCP loopback; takes no other flag
    #[arg(long, exclusive = true)]
    pub demo: bool,

    /// Print this help
    #[arg(long, action = ArgAction::HelpShort)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'v', long, action = ArgAction::Version)]
    version: Option<bool>,
}

const EXAMPLES: &str = "\
Examples:
  See it work on this machine, without an adapter or a server:
    valkey-rdma-benchmark --demo
  A real server over RDMA, 50 connections:
    valkey-rdma-benchmark --url rdma://192.168.1.1:6379 -n 100000
  The same server over TCP:
    valkey-rdma-benchmark --url valkey://192.168.1.1:6379 -n 100000
  One connection shared by 50 tasks, 64 KiB values, a million random keys:
    valkey-rdma-benchmark -h 192.168.1.1 -c 1 --tasks-per-connection 50 -d 65536 -r 1000000 -t set,get

Exit status: 0 if every reply was right, 1 if not or if the server could not be reached, 2 for a wrong flag,
130 if interrupted.";

/// A password, which does not show in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The password itself. Mind where you print it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Password {
        Password(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("***")
    }
}

/// A server's URL as typed, which shows neither user nor password in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// The URL itself, password included. Mind where you print it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ServerUrl {
    fn from(text: String) -> ServerUrl {
        ServerUrl(text)
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Nothing says that it is a good URL: whatever comes before the last `@` may be secret.
        let masked = match self.0.rsplit_once('@') {
            None => self.0.clone(),
            Some((login, host)) => {
                let scheme =
                    login.split_once("://").map_or(String::new(), |(scheme, _)| format!("{scheme}://"));
                format!("{scheme}***@{host}")
            }
        };
        fmt::Debug::fmt(&masked, out)
    }
}

/// How to reach the server that `-h` and `-p` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// RDMA through the machine's verbs devices
    Rdma,
    /// TCP
    Tcp,
    /// The software device: works anywhere, is not RDMA
    Emulated,
}

impl Transport {
    /// The URL scheme of this transport.
    pub fn scheme(self) -> &'static str {
        match self {
            Transport::Rdma => "rdma",
            Transport::Tcp => "valkey",
            Transport::Emulated => "emulated",
        }
    }
}

/// The tests selected by `-t`, each once, in the order in which they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tests(Vec<Test>);

impl Tests {
    /// The tests in running order.
    pub fn iter(&self) -> impl Iterator<Item = Test> + '_ {
        self.0.iter().copied()
    }
}

/// Why a list of tests was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TestsError {
    /// `ping_inline` sends the inline form of a command, which the client cannot.
    #[error("ping_inline is not possible: this tool sends RESP arrays only; use ping_mbulk")]
    Inline,
    /// No such test here.
    #[error("there is no test {0:?}; there are ping (or ping_mbulk), set and get")]
    Unknown(String),
}

/// The client's range, in the type that clap wants.
fn rx_sizes() -> RangeInclusive<i64> {
    let (least, most) = Endpoint::RX_SIZES.into_inner();
    least.into()..=most.into()
}

fn tests_from_list(list: &str) -> Result<Tests, TestsError> {
    let mut tests = Vec::new();
    for name in list.split(',') {
        let name = name.trim().to_ascii_lowercase();
        match Test::from_name(&name) {
            Some(test) => tests.push(test),
            None if name == "ping_inline" => return Err(TestsError::Inline),
            None => return Err(TestsError::Unknown(name)),
        }
    }
    tests.sort_unstable();
    tests.dedup();
    Ok(Tests(tests))
}

/// What to do instead of measuring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
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
    pub fn from_command_line<I>(line: I) -> Result<Args, Instead>
    where
        I: IntoIterator,
        I::Item: Into<OsString> + Clone,
    {
        let args = Args::try_parse_from(line).map_err(|error| {
            let text = error.render();
            if error.use_stderr() {
                Instead::Refuse(one_line(&text.to_string()))
            } else {
                Instead::Print(text.to_string())
            }
        })?;
        if args.rx_size.is_some() && args.url.is_none() && args.transport == Transport::Tcp {
            return Err(Instead::Refuse(
                "--rx-size is the size of an RDMA window and means nothing with --transport tcp".to_owned(),
            ));
        }
        Ok(args)
    }

    /// Length of the keyspace, `None` for a single key.
    pub fn keyspace(&self) -> Option<NonZeroU64> {
        self.keyspace.and_then(NonZeroU64::new)
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
