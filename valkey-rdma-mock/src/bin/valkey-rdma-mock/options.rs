//! The command line.

use std::error::Error;
use std::net::SocketAddr;

use clap::Parser;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use valkey_rdma_mock::faults::{self, Faults, SpecError};
use valkey_rdma_mock::{DeviceKind, ServerTls, TransportConfig};
use valkey_rdma_program::{ServerTlsArgs, ShownError, shown};
use valkey_rdma_transport::{Polling, address};

/// A mock Valkey server on RDMA and TCP
///
/// Keeps strings, lists, hashes, sets, sorted sets and streams in memory and replies as Valkey does. With --proxy it
/// forwards to a real Valkey instead.
///
/// Prints `ready <url>` for each address as soon as it accepts connections there. Ctrl-C or SIGTERM stops it after the
/// commands it has received are answered; a second signal stops it immediately. Exits with status 1 if no listener is left.
/// Logs go to standard error; RUST_LOG sets the level (default: warn).
#[derive(Parser)]
#[command(name = "valkey-rdma-mock", version = valkey_rdma_program::version!("verbs", "rdma-sys", "tls"))]
pub(crate) struct Options {
    /// Address to listen on. A link-local IPv6 address has its interface: fe80::1%eth0
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1", value_parser = address_of_bind)]
    pub(crate) bind: SocketAddr,

    /// Port for RDMA; 0 takes a free port. Default 6379, or no RDMA if only other ports are given
    #[arg(long, value_name = "N")]
    pub(crate) port: Option<u16>,

    /// Device for RDMA: `verbs` is a real RDMA adapter or soft-RoCE; `emulated` is a simulation that clients of this
    /// project reach over TCP, with emulated:// URLs. Default verbs
    #[arg(long, value_name = "verbs|emulated")]
    pub(crate) device: Option<DeviceKind>,

    /// Port for TCP; 0 takes a free port. Default: no TCP
    #[arg(long, value_name = "N")]
    pub(crate) tcp_port: Option<u16>,

    /// Port for TCP with TLS, which needs --tls-cert and --tls-key; 0 takes a free port. Default: no TLS
    #[arg(long, value_name = "N", requires = "tls_cert")]
    pub(crate) tls_port: Option<u16>,

    /// Port for RDMA with TLS, for clients of this project; 0 takes a free port. Default: no TLS
    #[arg(long, value_name = "N", requires = "tls_cert")]
    pub(crate) tls_rdma_port: Option<u16>,

    #[command(flatten)]
    tls: ServerTlsArgs,

    /// Size in bytes of the RDMA receive buffer of each connection, 1 to 1073741824. Default 1048576
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) rx_size: Option<u32>,

    /// How to wait for RDMA completions: `event` sleeps, `busy` busy-polls, `adaptive` polls briefly when recent polls
    /// succeeded, then sleeps. Default event
    #[arg(long, value_name = "event|busy|adaptive")]
    pub(crate) poll: Option<Polling>,

    /// Offer direct transfers to RDMA clients: `BLOB.GET` and `BLOB.SET` with memory of the client. Never beside TLS. Default on
    #[arg(
        long, value_name = "on|off", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(["on", "off"]).map(|text| text == "on"),
        conflicts_with_all = ["proxy", "cluster"]
    )]
    pub(crate) direct: Option<bool>,

    /// Threads that serve connections, 1 to 1024. From 2 on, another thread accepts them
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: u16,

    /// Misbehave towards RDMA clients by this script: `register-late=500@2`, `imm-over@1/100,seed=7`, ...
    #[arg(long, value_name = "SPEC", long_help = faults_help(), value_parser = script)]
    pub(crate) faults: Option<Faults>,

    /// Password that clients must give
    #[arg(long, value_name = "PASSWORD", conflicts_with = "proxy")]
    pub(crate) requirepass: Option<String>,

    /// Be a cluster of this number of primaries, 1 to 1000, on consecutive ports from the one port on that is given: --port, --tcp-port,
    /// --tls-port or --tls-rdma-port. Slots are shared equally, and all nodes are in this process
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1000),
        conflicts_with_all = ["proxy", "faults", "requirepass", "threads"]
    )]
    pub(crate) cluster: Option<u16>,

    /// Replicas of each primary of --cluster, 0 to 10
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        requires = "cluster",
        value_parser = clap::value_parser!(u16).range(0..=10)
    )]
    pub(crate) replicas: u16,

    /// Forward every RDMA connection to a Valkey that listens on this TCP address, instead of being one
    #[arg(long, value_name = "IP:PORT", conflicts_with_all = ["tcp_port", "tls_port", "tls_rdma_port"], value_parser = address::parse)]
    pub(crate) proxy: Option<SocketAddr>,
}

impl Options {
    /// The address to listen on, with this port.
    pub(crate) fn address(&self, port: u16) -> SocketAddr {
        let mut address = self.bind;
        address.set_port(port);
        address
    }

    /// The port for RDMA without TLS, if it listens there.
    pub(crate) fn rdma_port(&self) -> Option<u16> {
        let others = [self.tcp_port, self.tls_port, self.tls_rdma_port];
        self.port.or(if others.iter().any(Option::is_some) { None } else { Some(DEFAULT_PORT) })
    }

    /// The ports that it listens on.
    fn ports(&self) -> impl Iterator<Item = u16> {
        [self.rdma_port(), self.tls_rdma_port, self.tcp_port, self.tls_port].into_iter().flatten()
    }

    /// The port of the first node of a cluster.
    pub(crate) fn first_port(&self) -> u16 {
        self.ports().next().unwrap_or(DEFAULT_PORT)
    }

    /// What it listens on with RDMA, encrypted or not.
    pub(crate) fn has_rdma(&self) -> bool {
        self.rdma_port().or(self.tls_rdma_port).is_some()
    }

    /// The certificate of encrypted listeners, if there are any.
    pub(crate) fn tls(&self) -> Option<ServerTls> {
        self.tls_port.or(self.tls_rdma_port)?;
        self.tls.settings()
    }

    /// Of RDMA connections.
    pub(crate) fn transport_config(&self) -> TransportConfig {
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
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let of_rdma = self.device.is_some()
            || self.rx_size.is_some()
            || self.poll.is_some()
            || self.faults.is_some()
            || self.direct.is_some();
        if !self.has_rdma() && of_rdma {
            return Err("--device, --rx-size, --poll, --direct and --faults are for RDMA: add --port N");
        }
        if self.tls.tls_cert.is_some() && self.tls().is_none() {
            return Err(
                "--tls-cert and its kind are for encrypted listeners: add --tls-port N or --tls-rdma-port N",
            );
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
            if self.ports().count() > 1 {
                return Err("--cluster listens on one of --port, --tcp-port, --tls-port and --tls-rdma-port");
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

/// The script of `--faults`. With an `@` it looks like a login, of which a refusal shows nothing; but it has no colon, which is in front
/// of each password.
fn script(text: &str) -> Result<Faults, Box<dyn Error + Send + Sync>> {
    text.parse().map_err(|error: SpecError| match shown(text) == text || text.contains(':') {
        true => error.into(),
        false => ShownError(format!("in `{text}`: {error}")).into(),
    })
}

/// The address of `--bind`.
fn address_of_bind(text: &str) -> Result<SocketAddr, String> {
    let found = address::literal(text, 0).ok_or("invalid IP address")?;
    found.map_err(|error| error.to_string())
}

const DEFAULT_PORT: u16 = 6379;
