//! [`Address`]: where a server is asked to listen, as a URL or otherwise.

mod url;

use std::fmt;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use valkey_rdma_transport::tls::{ServerTls, TlsAcceptor};
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener as RdmaListener};

use self::url::ListenUrl;
use crate::listener::{BindError, Listener, Socket};
use crate::peer::Transport;

/// An address to listen on, encrypted or not: what [`Builder::listen`](crate::Builder::listen) and
/// [`Server::listen`](crate::Server::listen) take. A URL is one, as text.
///
/// ```
/// use valkey_rdma_server::{Address, ServerTls};
///
/// let url = Address::from("rdma://10.0.0.7:6379");
/// let encrypted = Address::tcp("127.0.0.1:6380".parse().unwrap()).tls(ServerTls::new("server.crt", "server.key"));
/// ```
pub struct Address {
    place: Place,
    tls: Option<ServerTls>,
}

enum Place {
    Url(String),
    /// Over TCP, the settings are unused.
    At(Transport, SocketAddr, Box<TransportConfig>),
    /// Somebody listens there already.
    Bound(Socket),
}

impl Address {
    /// An address of this machine, over TCP: see [`Builder::tcp`](crate::Builder::tcp).
    pub fn tcp(addr: SocketAddr) -> Self {
        Place::At(Transport::Tcp, addr, Box::default()).into()
    }

    /// An address of this machine, over RDMA: see [`Builder::rdma`](crate::Builder::rdma).
    pub fn rdma(device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        Place::At(Transport::Rdma(device), addr, Box::new(config.clone())).into()
    }

    /// Encrypts the connections there, with this certificate. A URL must have a scheme of TLS then: `valkeys`, `rediss`, `rdmas` or
    /// `emulateds`. If the URL itself has `cert=` and `key=`, it is refused.
    #[must_use]
    pub fn tls(mut self, settings: ServerTls) -> Self {
        self.tls = Some(settings);
        self
    }

    /// Listens there. The certificates are read first.
    pub(crate) async fn bind(self, direct: bool) -> Result<Listener, BindError> {
        let (socket, tls) = match self.place {
            Place::Bound(socket) => (socket, acceptor(self.tls)?),
            Place::At(transport, addr, config) => {
                let tls = acceptor(self.tls)?;
                (Socket::bind(transport, addr, &config).await?, tls)
            }
            Place::Url(url) => {
                let with_tls = |mut parsed: ListenUrl| {
                    parsed.tls = match (parsed.is_encrypted, parsed.tls, self.tls) {
                        (true, Some(_), Some(_)) => return Err(TWO_CERTIFICATES.into()),
                        (true, None, None) => return Err(NO_CERTIFICATE.into()),
                        (true, of_url, given) => of_url.or(given),
                        (false, _, Some(_)) => return Err(PLAIN_SCHEME.into()),
                        (false, _, None) => None,
                    };
                    Ok(parsed)
                };
                let parsed = ListenUrl::parse(&url).and_then(with_tls).map_err(|reason| {
                    // What stands before the host may be a password.
                    let url = url.rsplit('@').next().unwrap_or_default().to_owned();
                    BindError::Url { url, reason }
                })?;
                let addr = parsed.resolve().await?;
                let tls = acceptor(parsed.tls)?;
                (Socket::bind(parsed.transport, addr, &parsed.config).await?, tls)
            }
        };
        Ok(socket.into_listener(tls, direct))
    }
}

fn acceptor(tls: Option<ServerTls>) -> Result<Option<TlsAcceptor>, BindError> {
    Ok(tls.map(TlsAcceptor::new).transpose()?)
}

const TWO_CERTIFICATES: &str = "the certificate is given twice: in the URL and with Address::tls";
const NO_CERTIFICATE: &str = "a server with TLS needs a certificate: add cert=FILE and key=FILE";
const PLAIN_SCHEME: &str = "this scheme is not encrypted: with TLS, use rdmas, emulateds or valkeys";

impl From<Place> for Address {
    fn from(place: Place) -> Self {
        Self { place, tls: None }
    }
}

/// A URL: see [`Builder::listen`](crate::Builder::listen).
impl From<String> for Address {
    fn from(url: String) -> Self {
        Place::Url(url).into()
    }
}

/// A URL: see [`Builder::listen`](crate::Builder::listen).
impl From<&str> for Address {
    fn from(url: &str) -> Self {
        url.to_owned().into()
    }
}

/// A URL: see [`Builder::listen`](crate::Builder::listen).
impl From<&String> for Address {
    fn from(url: &String) -> Self {
        url.clone().into()
    }
}

/// A listener that is bound already: see [`Builder::listener`](crate::Builder::listener).
impl From<RdmaListener> for Address {
    fn from(listener: RdmaListener) -> Self {
        Place::Bound(Socket::Rdma(Box::new(listener))).into()
    }
}

/// A listener that is bound already: see [`Builder::tcp_listener`](crate::Builder::tcp_listener).
impl From<TcpListener> for Address {
    fn from(listener: TcpListener) -> Self {
        Place::Bound(Socket::Tcp(listener)).into()
    }
}

/// Without the URL, which may have a password.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("tls", &self.tls).finish_non_exhaustive()
    }
}
