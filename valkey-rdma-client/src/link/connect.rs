//! [`Connector`]: from an [`Endpoint`] to a [`RawConnection`]: resolve, connect, log in, under one deadline.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::device_connects::DeviceConnects;
use super::raw::RawConnection;
use super::registry::ConnectionRegistry;
use super::tcp;
use crate::config::Config;
use crate::endpoint::{Endpoint, Transport};
use crate::error::{ConnectCause, ConnectError, LostCause};
use crate::stats::{ConnectionInfo, Purpose};
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::{AnyStream, DeviceKind, Duplex, Stream, TransportError, address};

mod find_server;

pub(crate) use self::find_server::{Finding, Locator, Whereabouts};

/// Opens connections to one server, all with the same settings.
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: Config,
    pub(crate) registry: Arc<ConnectionRegistry>,
    source: Source,
    pub(super) device_connects: DeviceConnects,
    /// Sent to when a connection was made: all that wait for the server try at once.
    pub(crate) server_is_back: watch::Sender<()>,
    /// Connectors to the addresses that a [`Locator`] has found: those in use, those with outstanding connects, and the last one.
    pub(super) by_address: Mutex<HashMap<String, Arc<Connector>>>,
}

/// Where streams come from.
enum Source {
    Endpoint,
    /// A dialer of the program.
    Dialer(Dialer),
    /// One stream made by the program; there can be no other.
    Once,
    /// The primary, wherever it is.
    Located(Arc<dyn Locator>),
}

pub(crate) type Dialer = Box<dyn Fn() -> Dialing + Send + Sync>;
type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Duplex>>> + Send>>;

impl Connector {
    pub(crate) fn new(endpoint: Endpoint, config: Config) -> Self {
        Self {
            endpoint,
            config,
            registry: Arc::default(),
            source: Source::Endpoint,
            device_connects: DeviceConnects::default(),
            server_is_back: watch::Sender::default(),
            by_address: Mutex::default(),
        }
    }

    pub(crate) fn dialing(endpoint: Endpoint, config: Config, dialer: Dialer) -> Self {
        Self { source: Source::Dialer(dialer), ..Self::new(endpoint, config) }
    }

    /// Connects to the server that `locator` finds.
    pub(crate) fn located(endpoint: Endpoint, config: Config, locator: Arc<dyn Locator>) -> Self {
        Self { source: Source::Located(locator), ..Self::new(endpoint, config) }
    }

    /// What finds the server, if something does.
    pub(super) fn locator(&self) -> Option<&Arc<dyn Locator>> {
        match &self.source {
            Source::Located(locator) => Some(locator),
            _ => None,
        }
    }

    pub(crate) fn once(endpoint: Endpoint, config: Config) -> Self {
        Self { source: Source::Once, ..Self::new(endpoint, config) }
    }

    /// False if the program's only stream is all there is.
    pub(crate) fn can_connect(&self) -> bool {
        !matches!(self.source, Source::Once)
    }

    /// Connects and logs in, within the endpoint's timeout.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<RawConnection, ConnectError> {
        let raw = self.connect_quietly(purpose).await?;
        self.server_is_back.send_replace(());
        Ok(raw)
    }

    /// As [`connect`](Self::connect), without waking those that wait for the server.
    pub(super) async fn connect_quietly(&self, purpose: Purpose) -> Result<RawConnection, ConnectError> {
        let mut raw = self.reach(Login::For(purpose)).await?;
        raw.registration = Some(self.registry.register(raw.info.clone(), raw.monitor.clone(), purpose));
        debug!(info = %raw.info, "connected");
        Ok(raw)
    }

    /// Connects without a login, within the endpoint's timeout. Whether it is the primary, if it was located, is left to the caller too.
    pub(crate) async fn dial(&self) -> Result<RawConnection, ConnectError> {
        self.reach(Login::LeftToCaller).await
    }

    /// Connects to the server, wherever it is.
    async fn reach(&self, login: Login) -> Result<RawConnection, ConnectError> {
        match &self.source {
            Source::Located(locator) => {
                self.connect_located(locator, login).await.map_err(|cause| self.failure(cause))
            }
            _ => self.connect_or_fall_back(login).await,
        }
    }

    /// Connects to the endpoint's own address.
    pub(super) async fn connect_or_fall_back(&self, login: Login) -> Result<RawConnection, ConnectError> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let transport = self.endpoint.transport();
        let raw = match self.establish_past_proxies(transport, login, &deadline).await {
            Err(cause) if self.may_fall_back() && worth_a_fallback(&cause) => {
                warn!(peer = %self.endpoint.authority(), %cause, "no connection over {transport}, falling back to tcp");
                match self.establish_past_proxies(Transport::Tcp, login, &deadline).await {
                    Ok(mut raw) => {
                        Arc::make_mut(&mut raw.info).fallback = Some(cause.to_string());
                        Ok(raw)
                    }
                    Err(tcp) => Err(ConnectCause::Fallback { rdma: Box::new(cause), tcp: Box::new(tcp) }),
                }
            }
            other => other,
        };
        raw.map_err(|cause| self.failure(cause))
    }

    /// As [`establish`](Self::establish). Some proxies close a connection at a command that they do not know, such as CLIENT SETINFO: a
    /// second attempt leaves out what a login does not need. Such proxies speak RESP2 over TCP.
    async fn establish_past_proxies(
        &self,
        transport: Transport,
        login: Login,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let first = self.establish(transport, login, deadline).await;
        let Login::For(purpose) = login else { return first };
        let may_be_proxy = transport == Transport::Tcp && self.endpoint.protocol() == Protocol::Resp2;
        let is_closed = |cause: &LostCause| matches!(cause, LostCause::PeerClosed | LostCause::Io(_));
        match &first {
            Err(ConnectCause::Lost(cause)) if may_be_proxy && is_closed(cause) => {}
            _ => return first,
        }
        match self.establish(transport, Login::Plain(purpose), deadline).await {
            Ok(raw) => {
                debug!(peer = %self.endpoint.authority(), "logged in without CLIENT SETINFO, at which it closes connections");
                Ok(raw)
            }
            // It says more than a closed connection.
            Err(refusal @ ConnectCause::Rejected(_)) => Err(refusal),
            Err(_) => first,
        }
    }

    /// True if the endpoint allows TCP, and says how to connect.
    fn may_fall_back(&self) -> bool {
        self.endpoint.fallback() && matches!(self.source, Source::Endpoint)
    }

    /// Logs in over a connected stream. A stream of the transport is driven as the client's own ones are.
    pub(crate) async fn log_in<S: Duplex + 'static>(&self, stream: S) -> Result<RawConnection, ConnectError> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let transport = self.endpoint.transport();
        let mut stream = Some(stream);
        let raw = match (&mut stream as &mut dyn Any).downcast_mut::<Option<Stream>>().and_then(Option::take)
        {
            Some(ours) => {
                let peer = ours.peer_addr();
                self.over_device(ours, transport, peer)
            }
            None => match stream.take() {
                Some(other) => {
                    RawConnection::new(AnyStream::Other(Box::new(other)), self.plain_info(transport), None)
                }
                None => return Err(self.failure(ConnectCause::OnlyOneStream)),
            },
        };
        self.set_up(raw, Purpose::Shared, false, &deadline).await.map_err(|cause| self.failure(cause))
    }

    async fn establish(
        &self,
        transport: Transport,
        login: Login,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        match &self.source {
            // `connect_located` connects through connectors of their own.
            Source::Endpoint | Source::Located(_) => {}
            Source::Once => return Err(ConnectCause::OnlyOneStream),
            Source::Dialer(dial) => {
                let stream = timeout_at(deadline.at, dial()).await.map_err(|_| deadline.passed(false))?;
                let stream = stream.map_err(|error| ConnectCause::Io(Arc::new(error)))?;
                let raw = RawConnection::new(AnyStream::Other(stream), self.plain_info(transport), None);
                return self.log_in_if(login, raw, deadline).await;
            }
        }
        let port = self.endpoint.port_on(transport);
        let addresses = timeout_at(deadline.at, resolve(&self.endpoint, port)).await;
        let addresses = addresses.map_err(|_| deadline.passed(false))??;
        // The fallback needs time too.
        let halved = self.may_fall_back() && transport != Transport::Tcp;
        let deadline = if halved { &deadline.half() } else { deadline };
        let raw = match transport {
            Transport::Tcp => self.dial_tcp(&addresses, deadline).await?,
            Transport::Rdma => self.dial_device(DeviceKind::Verbs, transport, &addresses, deadline).await?,
            Transport::Emulated => {
                self.dial_device(DeviceKind::Emulated, transport, &addresses, deadline).await?
            }
        };
        self.log_in_if(login, raw, deadline).await
    }

    async fn log_in_if(
        &self,
        login: Login,
        raw: RawConnection,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        match login {
            Login::For(purpose) => self.set_up(raw, purpose, false, deadline).await,
            Login::Plain(purpose) => self.set_up(raw, purpose, true, deadline).await,
            Login::LeftToCaller => Ok(raw),
        }
    }

    async fn dial_tcp(
        &self,
        addresses: &[SocketAddr],
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let (silence, source) = (self.config.keepalive_timeout, self.endpoint.source());
        let connect = move |address| async move {
            address::check_interface(address).map_err(ConnectCause::Address)?;
            tcp::connect(address, source, silence).await.map_err(|error| ConnectCause::Io(Arc::new(error)))
        };
        let (stream, peer) = dial(deadline, addresses, connect).await?;
        let info = ConnectionInfo { peer: Some(peer), ..self.plain_info(Transport::Tcp) };
        Ok(RawConnection::new(AnyStream::Tcp(stream), info, None))
    }

    async fn dial_device(
        &self,
        kind: DeviceKind,
        transport: Transport,
        addresses: &[SocketAddr],
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let config = &self
            .endpoint
            .apply_to(self.config.transport.clone())
            // The endpoint's timeout applies around this; a connect that takes longer is kept for the next attempt.
            .connect_timeout(ConnectDeadline::FOREVER)
            // A little less: the error of a server that accepts and is then silent says so.
            .handshake_timeout(deadline.left().mul_f64(0.95))
            .idle_timeout(self.config.keepalive_timeout.map(|limit| limit.max(SHORTEST_SILENCE)))
            .stall_timeout(self.config.stall_timeout);
        let connect = move |address| async move {
            self.device_connects.connect(kind, address, config).await.map_err(|error| match error {
                TransportError::ConnectTimeout { .. } => deadline.passed(false),
                // Its limit is the time that was left here.
                TransportError::SilentInHandshake { .. } => deadline.passed(true),
                error => ConnectCause::Device(Arc::new(error)),
            })
        };
        let (stream, peer) = dial(deadline, addresses, connect).await?;
        Ok(self.over_device(stream, transport, peer))
    }

    fn over_device(&self, stream: Stream, transport: Transport, peer: SocketAddr) -> RawConnection {
        let seen = stream.info();
        let info = ConnectionInfo {
            peer: Some(peer),
            device: Some(seen.device.name),
            mtu: seen.device.mtu,
            rx_window: Some(seen.window),
            tx_window: Some(seen.peer_window),
            polling: Some(seen.polling),
            adaptive_off: seen.adaptive_off,
            ..self.plain_info(transport)
        };
        let monitor = stream.monitor();
        RawConnection::new(AnyStream::Device(stream), info, Some(monitor))
    }

    fn plain_info(&self, transport: Transport) -> ConnectionInfo {
        ConnectionInfo::plain(transport, self.endpoint.protocol())
    }

    pub(crate) fn failure(&self, cause: ConnectCause) -> ConnectError {
        let (transport, name) = (self.endpoint.transport(), self.endpoint.authority());
        // Of a service no host was given: its name alone would look like one.
        let peer = match self.endpoint.sentinels() {
            Some(_) => format!("the primary of \"{name}\""),
            None => name,
        };
        ConnectError { peer: peer.into(), transport, cause }
    }
}

/// Whether a new connection logs in, and what for.
#[derive(Clone, Copy)]
pub(super) enum Login {
    For(Purpose),
    /// As `For`, without what only some servers know.
    Plain(Purpose),
    LeftToCaller,
}

/// True if falling back to TCP makes sense: not after a resolve error or a server refusal.
fn worth_a_fallback(cause: &ConnectCause) -> bool {
    matches!(cause, ConnectCause::Device(_) | ConnectCause::Deadline { .. } | ConnectCause::Lost(_))
}

async fn resolve(endpoint: &Endpoint, port: u16) -> Result<Vec<SocketAddr>, ConnectCause> {
    address::resolve(endpoint.host(), port).await.map_err(ConnectCause::of_resolve)
}

/// Tries addresses in order until one accepts, each for its [share](address::shares) of the time. The last failure is returned.
async fn dial<S, F>(
    deadline: &ConnectDeadline,
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> Result<(S, SocketAddr), ConnectCause>
where
    F: Future<Output = Result<S, ConnectCause>>,
{
    let mut failure = ConnectCause::NoAddress;
    for (address, share) in address::shares(addresses, deadline.at) {
        failure = match timeout(share, connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(cause)) => cause,
            Err(_) => deadline.passed(false),
        };
        debug!(%address, %failure, "address failed");
    }
    Err(failure)
}

/// Three of a server's keepalives over RDMA, one every 3 s: one may be late and one lost.
const SHORTEST_SILENCE: Duration = Duration::from_secs(9);

/// The end of an endpoint's timeout.
pub(super) struct ConnectDeadline {
    limit: Duration,
    pub(super) at: Instant,
}

impl ConnectDeadline {
    /// Replaces limits that clocks and devices cannot represent.
    const FOREVER: Duration = Duration::from_secs(20 * 24 * 3600);

    pub(super) fn of(endpoint: &Endpoint) -> Self {
        let limit = endpoint.timeout().min(Self::FOREVER);
        Self { limit, at: Instant::now() + limit }
    }

    /// A deadline at half of the remaining time.
    fn half(&self) -> Self {
        Self { limit: self.limit / 2, at: Instant::now() + self.left() / 2 }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(super) fn passed(&self, connected: bool) -> ConnectCause {
        ConnectCause::Deadline { limit: self.limit, connected }
    }
}

#[cfg(test)]
mod tests;
