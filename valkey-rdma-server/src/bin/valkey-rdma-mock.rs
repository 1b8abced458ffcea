//! A mock Valkey server on TCP, for tests and trials.

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use valkey_rdma_server::{BindError, Mock, Server};

/// A mock Valkey server on TCP.
///
/// Prints `ready <url>` for each address once it accepts connections there. Ctrl-C or SIGTERM stops it after the replies
/// under way. Logs go to standard error; RUST_LOG says how much (default: warn).
#[derive(Debug, Parser)]
#[command(name = "valkey-rdma-mock", version)]
struct Options {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    /// Port for TCP; 0 takes a free one
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PORT)]
    tcp_port: u16,

    /// Password clients must give
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
}

const DEFAULT_PORT: u16 = 6379;

#[tokio::main]
async fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => return fail(&one_line(&error), ExitCode::from(2)),
        Err(help) => {
            // Whoever asked for help and closed the pipe has read enough.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message, ExitCode::FAILURE),
    }
}

async fn run(options: Options) -> Result<(), String> {
    // Before `ready` is printed: whoever waits for that may stop us at once.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| describe(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| describe(&error))?;

    let mock = match options.requirepass {
        Some(password) => Mock::new().requirepass(password),
        None => Mock::new(),
    };
    let server = Server::builder(mock)
        .tcp(SocketAddr::new(options.bind, options.tcp_port))
        .start()
        .await
        .map_err(|error| explain(&error))?;
    announce(&server).map_err(|error| format!("cannot write to standard output: {error}"))?;

    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.shutdown().await;
    Ok(())
}

fn announce(server: &Server) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    for url in server.urls() {
        writeln!(stdout, "ready {url}")?;
    }
    stdout.flush()
}

/// What went wrong, and what to do.
fn explain(error: &BindError) -> String {
    let advice = match error {
        BindError::Tcp { source, .. } => match source.kind() {
            io::ErrorKind::AddrInUse => "; stop the program that uses it, or choose another --tcp-port",
            io::ErrorKind::AddrNotAvailable => "; --bind wants an address of this machine",
            io::ErrorKind::PermissionDenied => "; ports below 1024 need root, choose another --tcp-port",
            _ => "",
        },
        _ => "",
    };
    describe(error) + advice
}

/// An error and its causes in one line.
fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

/// What clap says about a flag, without the usage below it.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    format!(
        "{}; see --help",
        text.trim_start_matches("error: ").trim_end_matches("For more information, try '--help'.").trim()
    )
}

fn fail(message: &str, code: ExitCode) -> ExitCode {
    // If standard error is gone there is nobody left to tell.
    let _ = writeln!(io::stderr(), "error: {message}");
    code
}
