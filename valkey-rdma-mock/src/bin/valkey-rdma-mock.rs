//! A mock Valkey server on RDMA and TCP, for tests and trials.

use std::error::Error;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use valkey_rdma_mock::faults::{self, Faults};
use valkey_rdma_mock::{BindError, DeviceKind, Mock, Server, TransportConfig, TransportError};
use valkey_rdma_transport::{Listener, Polling, SharedCq, device};

/// A mock Valkey server on RDMA and TCP
///
/// Keeps all of Valkey's types in memory and answers as Valkey does: enough for clients and benchmarks to run.
///
/// Prints `ready <url>` for each address once it accepts connections there. Ctrl-C or SIGTERM stops it after the replies
/// under way, a second one at once. Logs go to standard error; RUST_LOG says how much (default: warn).
#[derive(Parser)]
#[command(name = "valkey-rdma-mock", version)]
struct Options {
    /// Address to listen on
    #[arg(long, value_name = "ADDR", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    bind: IpAddr,

    /// Port for RDMA; 0 takes a free one. Default 6379, or no RDMA if only --tcp-port is given
    #[arg(long, value_name = "N")]
    port: Option<u16>,

    /// What to listen on for RDMA: `verbs` is a real RDMA device or soft-RoCE; `emulated` is software, which
    /// clients of this project reach over TCP, with emulated:// URLs. Default verbs
    #[arg(long, value_name = "verbs|emulated")]
    device: Option<DeviceKind>,

    /// Port for TCP; 0 takes a free one. Default: no TCP
    #[arg(long, value_name = "N")]
    tcp_port: Option<u16>,

    /// Bytes of the RDMA window offered to each client, 1 to 1073741824. Default 1048576
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    rx_size: Option<u32>,

    /// How RDMA completions are awaited: `event` sleeps, `busy` keeps a processor looking, `adaptive` looks for a moment
    /// where that has paid. Default event
    #[arg(long, value_name = "event|busy|adaptive")]
    poll: Option<Polling>,

    /// Threads that serve connections, 1 to 1024. One has its RDMA connections share completion queues, which is the faster way
    /// until it has no processor time left
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Misbehave towards RDMA clients as this script says: `register-late=500@2`, `imm-over@1/100,seed=7`, ...
    #[arg(long, value_name = "SPEC", long_help = faults_help())]
    faults: Option<Faults>,

    /// Password clients must give
    #[arg(long, value_name = "PASSWORD")]
    requirepass: Option<String>,
}

impl Options {
    /// The port for RDMA, if that is wanted.
    fn rdma_port(&self) -> Option<u16> {
        self.port.or(if self.tcp_port.is_some() { None } else { Some(DEFAULT_PORT) })
    }

    /// What only makes sense together.
    fn check(&self) -> Result<(), &'static str> {
        let of_rdma =
            self.device.is_some() || self.rx_size.is_some() || self.poll.is_some() || self.faults.is_some();
        if self.rdma_port().is_none() && of_rdma {
            return Err("--device, --rx-size, --poll and --faults are for RDMA: add --port N");
        }
        Ok(())
    }
}

fn faults_help() -> String {
    format!("Misbehave towards RDMA clients as this script says\n\n{}", faults::help())
}

const DEFAULT_PORT: u16 = 6379;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => return fail(&one_line(&error), ExitCode::from(2)),
        Err(help) => {
            // Whoever asked for help and closed the pipe has read enough.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
    };
    if let Err(message) = options.check() {
        return fail(message, ExitCode::from(2));
    }
    let filter = match EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env() {
        Ok(filter) => filter,
        Err(error) => return fail(&format!("RUST_LOG: {error}"), ExitCode::from(2)),
    };
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match runtime(options.threads).and_then(|runtime| runtime.block_on(run(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message, ExitCode::FAILURE),
    }
}

fn runtime(threads: u16) -> Result<Runtime, String> {
    let mut builder = match threads {
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let built = builder.worker_threads(threads.into()).enable_all().build();
    built.map_err(|error| format!("cannot start {threads} threads: {error}"))
}

async fn run(options: Options) -> Result<(), String> {
    // Before `ready` is printed: whoever waits for that may stop us at once.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| describe(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| describe(&error))?;

    let mut mock = Mock::new();
    if let Some(password) = options.requirepass.clone() {
        mock = mock.requirepass(password);
    }
    let mut server = Server::builder(mock);
    if let Some(port) = options.rdma_port() {
        let mut config = TransportConfig::default();
        if let Some(rx_size) = options.rx_size {
            config.rx_size(rx_size);
        }
        if let Some(mode) = options.poll {
            config.polling(mode);
        }
        let device = options.device.unwrap_or(DeviceKind::Verbs);
        if device == DeviceKind::Verbs && options.threads == 1 {
            config.shared_cq(&SharedCq::new());
        }
        let addr = SocketAddr::new(options.bind, port);
        server = match &options.faults {
            None => server.rdma(device, addr, &config),
            Some(faults) => {
                let _ = writeln!(io::stderr(), "note: misbehaves on purpose: --faults {faults}");
                let options = config.device_options();
                let honest =
                    device::listen(device, addr, &options).await.map_err(|error| explain(&error.into()))?;
                server.listener(Listener::over(faults.listener(honest), &config))
            }
        };
    }
    if let Some(port) = options.tcp_port {
        server = server.tcp(SocketAddr::new(options.bind, port));
    }
    let server = server.start().await.map_err(|error| explain(&error))?;
    announce(&server).map_err(|error| format!("cannot write to standard output: {error}"))?;

    let mut signalled = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::select! {
        () = signalled() => {}
        () = server.wait() => return Err("no listener is left: its device was removed or failed".to_owned()),
    }
    tokio::select! {
        () = server.shutdown() => Ok(()),
        () = signalled() => Err("stopped before all replies were delivered".to_owned()),
    }
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
    let refused = match error {
        BindError::Tcp { source, .. } | BindError::Rdma(TransportError::Listen { source, .. }) => {
            Some(source.kind())
        }
        _ => None,
    };
    let advice = match (error, refused) {
        (_, Some(io::ErrorKind::AddrInUse)) => {
            "; stop the program that listens there, or choose another port"
        }
        (_, Some(io::ErrorKind::AddrNotAvailable)) => "; --bind wants an address of this machine",
        (_, Some(io::ErrorKind::PermissionDenied)) => "; ports below 1024 are for root, choose another",
        (BindError::Rdma(TransportError::NotBuilt { .. } | TransportError::NoDevice), _) => {
            "; or serve TCP instead, with --tcp-port N alone"
        }
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
