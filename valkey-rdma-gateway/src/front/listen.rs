//! [`Listen`]: addresses to listen on, and the listeners behind them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::unix::net;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::geteuid;
use serde::Deserialize;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, UnixListener};
use valkey_rdma_program::shown;
use valkey_rdma_transport::address::{self, AddressError};
use valkey_rdma_transport::{AnyStream, DeviceKind, FeatureSet, Listener, TransportError};

use crate::config::limits::Limits;
use crate::error::GatewayError;
use crate::front::activation::Activation;
use crate::front::socket_file::SocketFile;

/// An address that local clients connect to: `unix:PATH`, `tcp:ADDR:PORT` or `rdma:ADDR:PORT`; encrypted, `tls:ADDR:PORT` or
/// `rdmas:ADDR:PORT`. With cargo feature `emulated` also `emulated:ADDR:PORT` and `emulateds:ADDR:PORT`. A link-local IPv6 address has its
/// interface, as in `tcp:[fe80::1%eth0]:6379`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
#[non_exhaustive]
pub enum Listen {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port.
    Tcp(SocketAddr),
    /// A port of an RDMA device.
    Rdma(SocketAddr),
    /// A port of the emulated device.
    Emulated(SocketAddr),
    /// A TCP port for clients that use TLS.
    Tls(SocketAddr),
    /// A port of an RDMA device for clients that use TLS.
    Rdmas(SocketAddr),
    /// A port of the emulated device for clients that use TLS.
    Emulateds(SocketAddr),
}

impl FromStr for Listen {
    type Err = GatewayError;

    fn from_str(text: &str) -> Result<Self, GatewayError> {
        let bad = || GatewayError::BadListen { text: shown(text).into_owned() };
        let (kind, address) = text.split_once(':').ok_or_else(bad)?;
        let socket = || {
            address::parse(address).map_err(|error| match error {
                AddressError::Form => bad(),
                error => GatewayError::Address { text: shown(text).into_owned(), source: error },
            })
        };
        match kind {
            "emulated" | "emulateds" if !cfg!(feature = "emulated") => {
                Err(TransportError::NotBuilt { device: DeviceKind::Emulated }.into())
            }
            "unix" if !address.is_empty() => Ok(Self::Unix(address.into())),
            "tcp" => socket().map(Self::Tcp),
            "rdma" => socket().map(Self::Rdma),
            "tls" => socket().map(Self::Tls),
            "rdmas" => socket().map(Self::Rdmas),
            "emulated" => socket().map(Self::Emulated),
            "emulateds" => socket().map(Self::Emulateds),
            _ => Err(bad()),
        }
    }
}

impl Listen {
    /// Whether the system chooses the port.
    pub(crate) fn is_any_port(&self) -> bool {
        matches!(self.unencrypted(), Self::Tcp(addr) | Self::Rdma(addr) | Self::Emulated(addr) if addr.port() == 0)
    }

    /// Whether its clients use TLS.
    pub(crate) fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_) | Self::Rdmas(_) | Self::Emulateds(_))
    }

    /// Whether its clients can use direct transfers: over RDMA, and not encrypted, because the bytes of these are plain.
    pub(crate) fn may_offer_direct(&self) -> bool {
        matches!(self, Self::Rdma(_) | Self::Emulated(_))
    }

    /// The same address without TLS.
    pub(crate) fn unencrypted(&self) -> Self {
        match self {
            Self::Tls(addr) => Self::Tcp(*addr),
            Self::Rdmas(addr) => Self::Rdma(*addr),
            Self::Emulateds(addr) => Self::Emulated(*addr),
            other => other.clone(),
        }
    }

    /// The same address with TLS. There is none of a Unix socket.
    fn encrypted(self) -> Self {
        match self {
            Self::Tcp(addr) => Self::Tls(addr),
            Self::Rdma(addr) => Self::Rdmas(addr),
            Self::Emulated(addr) => Self::Emulateds(addr),
            other => other,
        }
    }

    /// Why the system cannot listen there, if its form says so.
    pub(crate) fn mistake(&self) -> Option<String> {
        let Self::Unix(path) = self else { return None };
        let error = net::SocketAddr::from_pathname(path).err()?;
        let len = path.as_os_str().len();
        Some(match len > LONGEST_PATH {
            true => {
                format!("{self}: the path has {len} bytes, and that of a Unix socket at most {LONGEST_PATH}")
            }
            false => format!("{self}: {error}"),
        })
    }
}

impl TryFrom<String> for Listen {
    type Error = GatewayError;

    fn try_from(text: String) -> Result<Self, GatewayError> {
        text.parse()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(addr) => write!(f, "tcp:{addr}"),
            Self::Rdma(addr) => write!(f, "rdma:{addr}"),
            Self::Emulated(addr) => write!(f, "emulated:{addr}"),
            Self::Tls(addr) => write!(f, "tls:{addr}"),
            Self::Rdmas(addr) => write!(f, "rdmas:{addr}"),
            Self::Emulateds(addr) => write!(f, "emulateds:{addr}"),
        }
    }
}

/// A connection and its two addresses.
pub(crate) struct Accepted {
    pub(crate) stream: AnyStream,
    pub(crate) peer: String,
    pub(crate) local: String,
    /// The other side is a process of root, or of the user that the gateway runs as.
    pub(crate) by_owner: bool,
    /// Its TLS handshake is still to come.
    pub(crate) needs_tls: bool,
    /// The prefix of the commands of direct transfers, which its listener offers.
    pub(crate) direct_prefix: Option<Arc<str>>,
}

/// A bound listener.
pub(crate) struct Bound {
    socket: Socket,
    is_encrypted: bool,
    /// The prefix of the commands of direct transfers, if it offers these.
    direct_prefix: Option<Arc<str>>,
}

enum Socket {
    /// `file`: that of a socket which this process has bound.
    Unix {
        listener: UnixListener,
        path: PathBuf,
        file: Option<SocketFile>,
    },
    Tcp(TcpListener),
    Device(Box<Listener>),
}

impl Bound {
    /// Listens on `address`, with the socket that systemd has bound there if there is one. With a prefix, it offers direct transfers if its
    /// clients use RDMA without TLS.
    pub(crate) async fn bind(
        address: &Listen,
        activation: &Activation,
        limits: &Limits,
        direct_prefix: Option<Arc<str>>,
    ) -> Result<Self, GatewayError> {
        let failed = |source| GatewayError::Bind { address: address.to_string(), source };
        let is_encrypted = address.is_encrypted();
        let direct_prefix = direct_prefix.filter(|_| address.may_offer_direct());
        let offers = match (is_encrypted, &direct_prefix) {
            (true, _) => FeatureSet::TLS,
            (false, Some(_)) => FeatureSet::DIRECT,
            (false, None) => FeatureSet::NONE,
        };
        let socket = match address {
            Listen::Unix(path) => {
                let (listener, file) = match activation.unix(path).map_err(failed)? {
                    Some(listener) => (UnixListener::from_std(listener).map_err(failed)?, None),
                    None => {
                        let (listener, file) = SocketFile::bind(path).await.map_err(failed)?;
                        (listener, Some(file))
                    }
                };
                Socket::Unix { listener, path: path.clone(), file }
            }
            Listen::Tcp(addr) | Listen::Tls(addr) => {
                Socket::Tcp(match activation.tcp(*addr).map_err(failed)? {
                    Some(listener) => TcpListener::from_std(listener).map_err(failed)?,
                    None => TcpListener::bind(addr).await.map_err(failed)?,
                })
            }
            Listen::Rdma(addr) | Listen::Rdmas(addr) => {
                bind_device(DeviceKind::Verbs, *addr, offers, limits).await?
            }
            Listen::Emulated(addr) | Listen::Emulateds(addr) => {
                bind_device(DeviceKind::Emulated, *addr, offers, limits).await?
            }
        };
        Ok(Self { socket, is_encrypted, direct_prefix })
    }

    /// The address with its real port.
    pub(crate) fn address(&self) -> Listen {
        let address = match &self.socket {
            Socket::Unix { path, .. } => Listen::Unix(path.clone()),
            Socket::Tcp(listener) => {
                Listen::Tcp(listener.local_addr().expect("a bound socket has an address"))
            }
            Socket::Device(listener) if listener.device() == DeviceKind::Verbs => {
                Listen::Rdma(listener.local_addr())
            }
            Socket::Device(listener) => Listen::Emulated(listener.local_addr()),
        };
        if self.is_encrypted { address.encrypted() } else { address }
    }

    /// The file of a Unix socket that this process has bound.
    pub(crate) fn file(&self) -> Option<SocketFile> {
        match &self.socket {
            Socket::Unix { file, .. } => file.clone(),
            _ => None,
        }
    }

    /// Waits for the next client. An error concerns one client, unless it [is the end](AcceptError::is_end).
    pub(crate) async fn accept(&mut self) -> Result<Accepted, AcceptError> {
        let (needs_tls, direct_prefix) = (self.is_encrypted, None);
        match &mut self.socket {
            Socket::Unix { listener, path, .. } => {
                let (stream, _) = listener.accept().await?;
                let local = path.display().to_string();
                let owner = geteuid().as_raw();
                let by_owner = stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == owner);
                let peer = format!("{local}:0");
                Ok(Accepted {
                    stream: AnyStream::Unix(stream.try_into()?),
                    peer,
                    local,
                    by_owner,
                    needs_tls,
                    direct_prefix,
                })
            }
            Socket::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                // Replies that belong together are written together; the kernel must not delay them.
                stream.set_nodelay(true)?;
                // A client whose machine has died holds no place for ever.
                let probes = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3);
                SockRef::from(&stream).set_tcp_keepalive(&probes.with_retries(3))?;
                let local = stream.local_addr()?.to_string();
                let peer = peer.to_string();
                let stream = AnyStream::Tcp(stream);
                Ok(Accepted { stream, peer, local, by_owner: false, needs_tls, direct_prefix })
            }
            Socket::Device(listener) => {
                let stream = listener.accept().await.map_err(AcceptError::Device)?;
                let (peer, local) = (stream.peer_addr().to_string(), stream.local_addr().to_string());
                let stream = AnyStream::Device(stream.driven());
                let direct_prefix = self.direct_prefix.clone();
                Ok(Accepted { stream, peer, local, by_owner: false, needs_tls, direct_prefix })
            }
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Socket::Unix { file: Some(file), .. } = &self.socket {
            file.remove();
        }
    }
}

/// Why a client was not accepted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcceptError {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Device(TransportError),
}

impl AcceptError {
    /// Whether the listener has ended.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Device(TransportError::DeviceRemoved))
    }

    /// What to do about it, if its text does not say that. It begins with a colon, or is empty.
    pub(crate) fn advice(&self) -> &'static str {
        match self {
            // No descriptors are left to this process, or to this machine.
            Self::System(error)
                if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) =>
            {
                ": it waits until there is a descriptor; raise LimitNOFILE= of the unit (in a shell ulimit -Hn)"
            }
            _ => "",
        }
    }
}

async fn bind_device(
    kind: DeviceKind,
    addr: SocketAddr,
    offers: FeatureSet,
    limits: &Limits,
) -> Result<Socket, GatewayError> {
    let listener = Listener::bind(kind, addr, &limits.client_transport().offers(offers)).await?;
    Ok(Socket::Device(Box::new(listener)))
}

/// Bytes of a path in `sockaddr_un`, whose end is a NUL.
const LONGEST_PATH: usize = 107;
/// A TCP client that has been silent for this long is probed, as Valkey does.
const KEEPALIVE: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clients_over_tcp_are_probed() {
        let any = Listen::Tcp("127.0.0.1:0".parse().unwrap());
        let mut bound = Bound::bind(&any, &Activation::default(), &Limits::default(), None).await.unwrap();
        let Listen::Tcp(addr) = bound.address() else { panic!("{}", bound.address()) };
        let (accepted, _client) = tokio::join!(bound.accept(), tokio::net::TcpStream::connect(addr));
        let AnyStream::Tcp(stream) = accepted.unwrap().stream else { panic!("not over TCP") };
        assert!(SockRef::from(&stream).keepalive().unwrap());
    }

    #[test]
    fn addresses_are_read_and_written() {
        for (text, is_encrypted) in [
            ("unix:/run/valkey.sock", false),
            ("tcp:127.0.0.1:6379", false),
            ("rdma:[fd00::1]:6379", false),
            ("tls:127.0.0.1:6379", true),
            ("rdmas:[fd00::1]:6379", true),
        ] {
            let listen: Listen = text.parse().unwrap();
            assert_eq!((listen.to_string(), listen.is_encrypted()), (text.to_owned(), is_encrypted));
        }
        let zone = "tcp:[fe80::1%nosuch0]:6379".parse::<Listen>().unwrap_err().to_string();
        assert!(zone.contains("no network interface `nosuch0`"), "{zone}");
        match "emulateds:127.0.0.1:6379".parse::<Listen>() {
            Ok(listen) => assert!(cfg!(feature = "emulated") && listen.is_encrypted()),
            Err(error) => assert!(error.to_string().contains("cargo feature `emulated`"), "{error}"),
        }
        for text in ["", "unix:", "tcp:6379", "tcp:localhost:1", "udp:1.2.3.4:5", "/run/valkey.sock"] {
            let error = text.parse::<Listen>().unwrap_err().to_string();
            assert!(error.contains("unix:PATH"), "{error}");
        }
    }
}
