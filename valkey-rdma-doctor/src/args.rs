//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use valkey_rdma_doctor::fabric::{Operation, Options, parse_size};
use valkey_rdma_program::LoginArgs;
use valkey_rdma_transport::{DeviceKind, Polling};

/// What the user typed.
#[derive(Debug, Parser)]
#[command(
    name = "valkey-rdma-doctor",
    version = valkey_rdma_program::version!("verbs", "tls"),
    about = "Does RDMA work here? Without arguments: examines this machine, and says what to do about each finding.",
    after_help = "Exit status: 0 if RDMA works, 1 if it does not, 2 if the command line is wrong, 130 after Ctrl-C; \
                  `listen` ends with 0 after Ctrl-C.",
    args_conflicts_with_subcommands = true,
    // The subcommands, or other programs, have these flags too.
    mut_args(|arg| match arg.get_id().as_str() {
        "device" | "gid" => arg.requires("mesh"),
        "user" | "password_file" => arg.requires("url"),
        _ => arg,
    })
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Connect to a Valkey server step by step: rdma://, emulated://, valkey:// [user[:password]@]host[:port][?options], rdmas:// or
    /// valkeys:// for TLS, or to the Unix socket of a gateway or server: unix:PATH
    ///
    /// Other users of this machine can see a password in the URL. Without one there, it is that of --password-file, or of
    /// VALKEY_RDMA_PASSWORD, VALKEYCLI_AUTH or REDISCLI_AUTH.
    #[arg(long, value_name = "URL", conflicts_with_all = ["host", "mesh"])]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) login: LoginArgs,

    /// Check every pair of these machines: start it on each with the same list
    #[arg(long, value_name = "ADDR:PORT,...", value_delimiter = ',', conflicts_with = "host")]
    pub(crate) mesh: Vec<String>,

    /// How long to wait for the other machines of the mesh, 1ms to 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_wait, requires = "mesh")]
    pub(crate) wait: Duration,

    /// Also resolve this host, and look for the way there
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,

    /// Connections that one process will hold: judges this machine's limits by that
    #[arg(
        long, value_name = "N", default_value_t = 16, conflicts_with_all = ["url", "mesh"],
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    pub(crate) connections: u32,

    /// Print JSON (the shape is in the README)
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

impl Args {
    /// Whether this side's system calls are wanted.
    pub(crate) fn counts_system_calls(&self) -> bool {
        match &self.command {
            Some(Command::Listen { system_calls, .. }) => *system_calls,
            Some(Command::Check(check)) => check.system_calls,
            None => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer checks from other machines, until Ctrl-C
    Listen {
        /// Address and port of this machine. A link-local address has its interface: [fe80::1%eth0]:7000
        #[arg(value_name = "ADDR:PORT")]
        addr: String,

        /// Turn one bit of what each peer writes, to see that it finds that
        #[arg(long)]
        corrupt: bool,

        /// Count this side's system calls too, for the peers' tables (root only; each call takes longer)
        #[arg(long)]
        system_calls: bool,

        /// `verbs`, `emulated` (software, not RDMA: to try it anywhere), or the name of an RDMA device
        #[arg(long, value_name = "DEVICE", default_value = "verbs")]
        device: String,
    },
    /// Check the fabric to machines on which `listen` runs: compare buffers, then measure, with TCP beside
    Check(Box<CheckArgs>),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CheckArgs {
    /// Where `listen` runs
    #[arg(value_name = "ADDR:PORT", required = true)]
    pub(crate) addrs: Vec<String>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// Queue pairs that carry bytes at once, 1 to 1024
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) queue_pairs: u32,

    /// Lengths of messages, 1 to 1G
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "1,64,4K,64K,1M,8M", value_parser = parse_size)]
    pub(crate) sizes: Vec<u32>,

    /// What to measure: send, write-imm, write, read
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "send,write-imm,write,read", value_parser = parse_operation)]
    pub(crate) operations: Vec<Operation>,

    /// How to wait for completions: event, busy
    #[arg(long, value_name = "MODE,...", value_delimiter = ',', default_value = "event,busy", value_parser = parse_polling)]
    pub(crate) polling: Vec<Polling>,

    /// How long to measure each figure, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_time)]
    pub(crate) time: Duration,

    /// How long the peer may be silent, 1ms to 60s
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time)]
    pub(crate) patience: Duration,

    /// Do not measure TCP beside
    #[arg(long)]
    pub(crate) no_tcp: bool,

    /// Do not have the peer send
    #[arg(long)]
    pub(crate) one_way: bool,

    /// Count this side's system calls too (root only; each call takes longer)
    #[arg(long)]
    pub(crate) system_calls: bool,

    /// Also draw what was found
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct DeviceArgs {
    /// `verbs`, `emulated` (software, not RDMA: to try it anywhere), or the name of an RDMA device
    #[arg(long, value_name = "DEVICE", default_value = "verbs")]
    pub(crate) device: String,

    /// Connect from this entry of the device's GID table (RoCE only)
    #[arg(long, value_name = "INDEX")]
    pub(crate) gid: Option<u32>,
}

impl DeviceArgs {
    /// The options of a check with this device.
    pub(crate) fn options(&self) -> Options {
        Options { gid: self.gid, ..device_options(&self.device) }
    }
}

/// The options of a check or a service with the device of `--device`.
pub(crate) fn device_options(device: &str) -> Options {
    let kind = device.parse::<DeviceKind>();
    let name = kind.is_err().then(|| device.to_owned());
    Options { kind: kind.unwrap_or(DeviceKind::Verbs), device: name, ..Options::default() }
}

impl CheckArgs {
    /// The options of the check.
    pub(crate) fn options(&self) -> Options {
        Options {
            queue_pairs: self.queue_pairs,
            sizes: self.sizes.clone(),
            operations: self.operations.clone(),
            polling: self.polling.clone(),
            time: self.time,
            tcp: !self.no_tcp,
            both_ways: !self.one_way,
            patience: self.patience,
            ..self.device.options()
        }
    }
}

fn parse_operation(text: &str) -> Result<Operation, String> {
    match text {
        "send" => Ok(Operation::Send),
        "write-imm" => Ok(Operation::WriteImm),
        "write" => Ok(Operation::Write),
        "read" => Ok(Operation::Read),
        _ => Err("use send, write-imm, write, read".to_owned()),
    }
}

fn parse_polling(text: &str) -> Result<Polling, String> {
    match text {
        "event" => Ok(Polling::Event),
        "busy" => Ok(Polling::Busy),
        _ => Err("use event, busy".to_owned()),
    }
}

/// A time from 1 ms to 60 s, such as `100ms`.
fn parse_time(text: &str) -> Result<Duration, String> {
    let time = time(text).filter(|time| *time <= Duration::from_secs(60));
    time.ok_or_else(|| "use a number from 1 to 60000 with ms, or from 1 to 60 with s".to_owned())
}

/// A time from 1 ms to 1 h, such as `10m`.
fn parse_wait(text: &str) -> Result<Duration, String> {
    let time = time(text).filter(|time| *time <= Duration::from_secs(3600));
    time.ok_or_else(|| "use a number with ms, s, m or h, from 1ms to 1h".to_owned())
}

/// A time longer than zero: a whole number with its unit.
fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    let millis = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (millis > 0).then(|| Duration::from_millis(millis))
}
