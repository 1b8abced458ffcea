//! A mock Valkey server on RDMA and TCP, for tests and trials.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use valkey_rdma_mock::faults::{self, Faults};
use valkey_rdma_mock::{
    BindError, DeviceKind, Mock, MockCluster, Server, TransportConfig, TransportError, Transports, forward,
};
use valkey_rdma_program::{Style, complain, error_chain, parse};
use valkey_rdma_transport::{Listener, Polling, SharedCq, address, device};

/// A mock Valkey server on RDMA and TCP
///
/// Keeps strings, lists, hashes, sets, sorted sets and streams in memory and replies as Valkey does. With --proxy it
/// forwards to a real Valkey instead.
///
/// Prints `ready <url>` for each address as soon as it accepts connections there. Ctrl-C or SIGTERM stops it after the
/// commands it has received are answered; a second signal stops it immediately. Exits with status 1 if no listener is left.
/// Logs go to standard error; RUST_LOG sets the level (default: warn).
#[derive(Parser)]
#[command(name = "valkey-rdma-mock", version = valkey_rdma_program::version!("verbs", "rdma-sys"))]
struct Options {
    /// Address to listen on. A link-local IPv6 address has its interface: fe80::1%eth0
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1", value_parser = address_of_bind)]
    bind: SocketAddr,

    /// Port for RDMA; 0 takes a free port. Default 6379, or no RDMA if only --tcp-port is given
    #[arg(long, value_name = "N")]
    port: Option<u16>,

    /// Device for RDMA: `verbs` is a real RDMA adapter or soft-RoCE; `emulated` is a simulation that clients of this
    /// project reach over TCP, with emulated:// URLs. Default verbs
    #[arg(long, value_name = "verbs|emulated")]
    device: Option<DeviceKind>,

    /// Port for TCP; 0 takes a free port. Default: no TCP
    #[arg(long, value_name = "N")]
    tcp_port: Option<u16>,

    /// Size in bytes of the RDMA receive buffer of each connection, 1 to 1073741824. Default 1048576
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    rx_size: Option<u32>,

    /// How to wait for RDMA completions: `event` sleeps, `busy` busy-polls, `adaptive` polls briefly when recent polls
    /// succeeded, then sleeps. Default event
    #[arg(long, value_name = "event|busy|adaptive")]
    poll: Option<Polling>,

    /// Threads that serve connections, 1 to 1024. From 2 on, another thread accepts them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Misbehave towards RDMA clients by this script: `register-late=500@2`, `imm-over@1/100,seed=7`, ...
    #[arg(long, value_name = "SPEC", long_help = faults_help())]
    faults: Option<Faults>,

    /// Password that clients must give
    #[arg(long, value_name = "PASSWORD", conflicts_with = "proxy")]
    requirepass: Option<String>,

    /// Be a cluster of this number of primaries, 1 to 1000, on consecutive ports from --port on, or from --tcp-port on. Slots are
    /// shared equally, and all nodes are in this process
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        conflicts_with_all = ["proxy", "faults", "requirepass", "threads"]
    )]
    cluster: Option<u16>,

    /// Replicas of each primary of --cluster, 0 to 10
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "cluster",
        value_parser = clap::value_parser!(u16).range(0..=10)
    )]
    replicas: u16,

    /// Forward every RDMA connection to a Valkey that listens on this TCP address, instead of being one
    #[arg(long, value_name = "IP:PORT", conflicts_with = "tcp_port", value_parser = address::parse)]
    proxy: Option<SocketAddr>,
}

impl Options {
    /// The address to listen on, with this port.
    fn address(&self, port: u16) -> SocketAddr {
        let mut address = self.bind;
        address.set_port(port);
        address
    }

    /// The port for RDMA, if it listens there.
    fn rdma_port(&self) -> Option<u16> {
        self.port.or(if self.tcp_port.is_some() { None } else { Some(DEFAULT_PORT) })
    }

    /// The port of the first node of a cluster.
    fn first_port(&self) -> u16 {
        self.rdma_port().or(self.tcp_port).unwrap_or(DEFAULT_PORT)
    }

    /// Of RDMA connections.
    fn transport_config(&self) -> TransportConfig {
        let mut config = TransportConfig::default();
        if let Some(rx_size) = self.rx_size {
            config = config.rx_size(rx_size);
        }
        if let Some(mode) = self.poll {
            config = config.polling(mode);
        }
        config
    }

    /// Refuses flags that exclude each other, or have no effect without another flag.
    fn check(&self) -> Result<(), &'static str> {
        let of_rdma =
            self.device.is_some() || self.rx_size.is_some() || self.poll.is_some() || self.faults.is_some();
        if self.rdma_port().is_none() && of_rdma {
            return Err("--device, --rx-size, --poll and --faults are for RDMA: add --port N");
        }
        if let Some(primaries) = self.cluster {
            if self.bind.ip().is_unspecified() {
                return Err(
                    "--cluster: the nodes announce the address, so --bind must be one that clients reach",
                );
            }
            if address::check_interface(SocketAddr::new(self.bind.ip(), 0)).is_err() {
                return Err(
                    "--cluster: the nodes announce the address without its interface: --bind another address",
                );
            }
            if self.rdma_port().is_some() && self.tcp_port.is_some() {
                return Err("--cluster listens on --port or on --tcp-port, not on both");
            }
            let last =
                u32::from(self.first_port()) + u32::from(primaries) * (1 + u32::from(self.replicas)) - 1;
            if last > u32::from(u16::MAX) {
                return Err("--cluster: the port of the last node exceeds 65535");
            }
        }
        Ok(())
    }
}

fn faults_help() -> String {
    format!("Misbehave towards RDMA clients by this script\n\n{}", faults::help())
}

const DEFAULT_PORT: u16 = 6379;

fn main() -> ExitCode {
    let options: Options = match parse() {
        Ok(options) => options,
        Err(status) => return status,
    };
    if let Err(message) = options.check() {
        complain(message);
        return ExitCode::from(2);
    }
    let filter = match EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env() {
        Ok(filter) => filter,
        Err(error) => {
            complain(&format!("RUST_LOG: {error}"));
            return ExitCode::from(2);
        }
    };
    let colours = Style::of(&io::stderr()) == Style::Terminal;
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr).init();
    match runtime(&options).and_then(|runtime| runtime.block_on(run(options))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            complain(&message);
            ExitCode::FAILURE
        }
    }
}

/// A runtime of one thread, unless the proxy has several: the server starts its own.
fn runtime(options: &Options) -> Result<Runtime, String> {
    let threads = options.threads;
    let mut builder = match (options.proxy, threads) {
        (None, _) | (_, 1) => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    let built = builder.worker_threads(threads.into()).enable_all().build();
    built.map_err(|error| format!("cannot start {threads} threads: {error}"))
}

async fn run(options: Options) -> Result<(), String> {
    // Before `ready` is printed: a signal may come at once after it.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| error_chain(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error_chain(&error))?;
    let mut signalled = async || {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };

    if let Some(primaries) = options.cluster {
        let cluster = start_cluster(&options, primaries).await?;
        announce(cluster.urls().into_iter())?;
        signalled().await;
        return stop(cluster.shutdown(), signalled).await;
    }
    let rdma = match options.rdma_port() {
        Some(port) => Some(listen(&options, port).await?),
        None => None,
    };
    match (options.proxy, rdma) {
        (Some(valkey), Some(listener)) => proxy(listener, valkey, signalled).await,
        (_, rdma) => serve(start(&options, rdma).await?, signalled).await,
    }
}

/// The listener for RDMA, with the faults that were asked for.
async fn listen(options: &Options, port: u16) -> Result<Listener, String> {
    let mut config = options.transport_config();
    let device = options.device.unwrap_or(DeviceKind::Verbs);
    if device == DeviceKind::Verbs && options.threads == 1 {
        config = config.shared_cq(&SharedCq::new());
    }
    let addr = options.address(port);
    let honest = device::listen(device, addr, &config.device_options()).await;
    let mut listener = honest.map_err(|error| explain(&error.into()))?;
    if let Some(faults) = &options.faults {
        let _ = writeln!(io::stderr(), "note: misbehaves on purpose: --faults {faults}");
        listener = faults.listener(listener);
    }
    Ok(Listener::over(listener, &config))
}

/// The address of `--bind`.
fn address_of_bind(text: &str) -> Result<SocketAddr, String> {
    let found = address::literal(text, 0).ok_or("invalid IP address")?;
    found.map_err(|error| error.to_string())
}

/// Starts the mock.
async fn start(options: &Options, rdma: Option<Listener>) -> Result<Server, String> {
    let mut mock = Mock::new();
    if let Some(password) = options.requirepass.clone() {
        mock = mock.requirepass(password);
    }
    let mut server = Server::builder(mock);
    if options.threads > 1 {
        server = server.threads(options.threads.into());
    }
    if let Some(listener) = rdma {
        server = server.listener(listener);
    }
    if let Some(port) = options.tcp_port {
        server = server.tcp(options.address(port));
    }
    let server = server.start().await.map_err(|error| explain(&error))?;
    announce(server.urls())?;
    Ok(server)
}

/// Starts a cluster of mocks.
async fn start_cluster(options: &Options, primaries: u16) -> Result<MockCluster, String> {
    let transports = match options.rdma_port() {
        Some(_) => Transports::Rdma(options.device.unwrap_or(DeviceKind::Verbs)),
        None => Transports::Tcp,
    };
    let builder = MockCluster::builder(primaries.into())
        .replicas(options.replicas.into())
        .transports(transports)
        .transport(&options.transport_config())
        .bind(options.bind.ip())
        .first_port(options.first_port());
    builder.start().await.map_err(|error| explain(&error))
}

/// Serves until a signal comes or the last listener has ended.
async fn serve(server: Server, mut signalled: impl AsyncFnMut()) -> Result<(), String> {
    tokio::select! {
        () = signalled() => {}
        () = server.wait() => return Err(NO_LISTENER.to_owned()),
    }
    stop(server.shutdown(), signalled).await
}

/// Shuts down, unless a second signal comes before the end.
async fn stop(shutdown: impl Future<Output = ()>, mut signalled: impl AsyncFnMut()) -> Result<(), String> {
    tokio::select! {
        () = shutdown => Ok(()),
        () = signalled() => Err("stopped before all replies were delivered".to_owned()),
    }
}

/// Forwards connections until a signal comes or the listener has ended.
async fn proxy(
    listener: Listener,
    valkey: SocketAddr,
    mut signalled: impl AsyncFnMut(),
) -> Result<(), String> {
    let scheme = if listener.device() == DeviceKind::Verbs { "rdma" } else { "emulated" };
    announce([format!("{scheme}://{}", address::authority(listener.local_addr()))].into_iter())?;
    tokio::select! {
        () = signalled() => Ok(()),
        error = forward(listener, valkey) => Err(format!("{NO_LISTENER}: {}", error_chain(&error))),
    }
}

const NO_LISTENER: &str = "no listener is left, so no client can connect";

/// Prints a URL for each address. Clients on this machine cannot connect to an unspecified address, but to loopback.
fn announce(urls: impl Iterator<Item = String>) -> Result<(), String> {
    let mut stdout = io::stdout().lock();
    let print = || {
        for url in urls {
            let url = url.replace("://0.0.0.0:", "://127.0.0.1:").replace("://[::]:", "://[::1]:");
            writeln!(stdout, "ready {url}")?;
        }
        stdout.flush()
    };
    print().map_err(|error: io::Error| format!("cannot write to standard output: {error}"))
}

/// The error with its causes, and what the user can do about it.
fn explain(error: &BindError) -> String {
    let advice = match error {
        BindError::Rdma(
            TransportError::NotBuilt { .. } | TransportError::NoDevice | TransportError::Obstacle { .. },
        ) => "; or serve TCP instead, with --tcp-port N alone",
        _ => "",
    };
    error_chain(error) + advice
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    /// Before `Server::wait` was used, the program waited for a signal here.
    #[tokio::test]
    async fn a_server_whose_last_listener_has_ended_is_an_error() {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut server = Server::builder(Mock::new()).tcp(any_port).start().await.expect("serves");
        let listening = server.listening()[0];
        assert!(server.close_listener(listening));
        let never = async || std::future::pending::<()>().await;
        let ended = tokio::time::timeout(std::time::Duration::from_secs(20), serve(server, never)).await;
        assert_eq!(ended.expect("ends"), Err(NO_LISTENER.to_owned()));
    }
}
