//! The command line.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use valkey_rdma_program::LoginArgs;
use valkey_rdma_transport::DeviceKind;

/// Tests any server or client of Valkey over RDMA from outside, rule by rule
///
/// Each case cites a clause of spec/protocol.md. A failed one shows what was sent and received, in order.
///
/// Exit status: 0 if no case failed but those of --known, 1 if another did, 2 if no case was run, 130 after Ctrl-C or SIGTERM:
/// reports then have what was run until then.
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-conformance", version = valkey_rdma_program::version!("verbs", "rdma-sys"))]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) mode: Mode,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mode {
    /// Test a server
    Server(ServerArgs),
    /// Test a client: a command that runs once per case, against a server that misbehaves by a script
    Client(ClientArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ServerArgs {
    /// rdma://HOST:PORT or emulated://HOST:PORT, with USER:PASSWORD@ before the host if the server asks for them; the options
    /// device= and gid= apply. rdmas:// and emulateds:// are servers that require TLS: other cases apply to them
    ///
    /// Other users of this machine can see a password in the URL. Without one there, it is that of --password-file, or of
    /// VALKEY_RDMA_PASSWORD, VALKEYCLI_AUTH or REDISCLI_AUTH.
    #[arg(required_unless_present = "list")]
    pub(crate) url: Option<String>,

    #[command(flatten)]
    pub(crate) login: LoginArgs,

    /// Also run the cases that published servers die of. Use a server that may be lost, or --spawn
    #[arg(long)]
    pub(crate) hostile: bool,

    /// Start the server with this shell command, and start it again after a case has killed it
    #[arg(long, value_name = "COMMAND")]
    pub(crate) spawn: Option<String>,

    /// Append what the command of --spawn prints to this file; without it, that is lost
    #[arg(long, value_name = "FILE", requires = "spawn")]
    pub(crate) server_log: Option<PathBuf>,

    /// How long to wait for anything that must come, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) patience: Duration,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ClientArgs {
    /// The client and its arguments, in which {host}, {port} and {url} are replaced. It should do some work, end with
    /// status 0 if all of it was answered, and with another status if not
    #[arg(last = true, value_name = "CMD", required_unless_present = "list")]
    pub(crate) command: Vec<String>,

    /// What the servers listen on: `verbs`, or `emulated` for a client built on this project's emulated device
    #[arg(long, value_name = "verbs|emulated", default_value = "verbs")]
    pub(crate) device: DeviceKind,

    /// The address they listen on; the port is a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1")]
    pub(crate) bind: IpAddr,

    /// How long the client may take per case, in seconds, in addition to three times what it took without faults. The case
    /// without faults may take ten times this
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    pub(crate) patience: Duration,

    #[command(flatten)]
    pub(crate) report: ReportArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// Print the cases, run nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Run only the cases whose name contains this text; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,

    /// Cases that are known to fail: one a line, its name and the reason. They do not fail the run
    #[arg(long, value_name = "FILE")]
    pub(crate) known: Option<PathBuf>,

    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if !(0.1..=86_400.0).contains(&seconds) {
        return Err("expected 0.1 to 86400 seconds".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}
