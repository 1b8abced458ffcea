//! [`Connector`]: from an [`Endpoint`] to a [`RawConnection`]: resolve, connect, log in, under one deadline. Clients and dialers have no other way.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;

use super::device_connects::DeviceConnects;
use super::device_steps::DeviceSteps;
use super::members::Members;
use super::raw::RawConnection;
use super::registry::ConnectionRegistry;
use super::tcp;
use crate::config::{Config, Credentials};
use crate::endpoint::{Endpoint, Transport};
use crate::error::{ConnectCause, ConnectError};
use crate::stats::{ConnectionInfo, Purpose};
use valkey_rdma_transport::tls::TlsConnector;
use valkey_rdma_transport::{
    AnyStream, CloseReason, DeviceKind, Duplex, FeatureSet, Stream, TransportError, UnixSocket, address,
};

mod attempts;
mod find_server;
mod looks;
mod renamed;
mod steps;

pub(crate) use self::find_server::{Finding, Locator, Whereabouts};
#[doc(hidden)]
pub use self::looks::{Looks, is_elsewhere};
pub(crate) use self::renamed::is_of_replica;
pub(crate) use self::steps::Observer;
use self::steps::StepWatch;
pub use self::steps::{ConnectStep, StepFound, StepReport};

/// Opens connections to one server, all with the same settings.
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: Config,
    pub(crate) registry: Arc<ConnectionRegistry>,
    source: Source,
    /// Refuses a server that is not one of these nodes.
    pub(crate) members: Members,
    /// Receives each step that ends.
    pub(crate) observer: Option<Observer>,
    pub(super) device_connects: DeviceConnects,
    /// Those for direct transfers: a connection for anything else has not agreed on them.
    pub(super) bulk_connects: DeviceConnects,
    /// Encrypts connections, if the endpoint asks for that. It keeps the sessions that later connections continue.
    tls: Option<TlsConnector>,
    /// Sent to when a connection was made: all that wait for the server try at once.
    pub(crate) server_is_back: watch::Sender<()>,
    /// Connectors to the addresses that a [`Locator`] has found: those in use, those with outstanding connects, and the last one.
    pub(super) by_address: Mutex<HashMap<String, Arc<Connector>>>,
    /// Sent to when the endpoint's name has come to mean another server. `None`: that is not looked for.
    renamed: Option<watch::Sender<()>>,
    looks: Mutex<Looks>,
}

/// Where streams come from.
enum Source {
    Endpoint,
    /// A Unix socket.
    Socket(PathBuf),
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
            tls: endpoint.tls().cloned().map(TlsConnector::new),
            endpoint,
            config,
            registry: Arc::default(),
            source: Source::Endpoint,
            members: Members::default(),
            observer: None,
            device_connects: DeviceConnects::default(),
            bulk_connects: DeviceConnects::default(),
            server_is_back: watch::Sender::default(),
            by_address: Mutex::default(),
            renamed: None,
            looks: Mutex::default(),
        }
    }

    pub(crate) fn dialing(endpoint: Endpoint, config: Config, dialer: Dialer) -> Self {
        Self { source: Source::Dialer(dialer), ..Self::new(endpoint, config).following_name() }
    }

    /// Connects to a Unix socket.
    pub(crate) fn at_socket(path: PathBuf, endpoint: Endpoint, config: Config) -> Self {
        Self { source: Source::Socket(path), ..Self::new(endpoint, config) }
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
        let mut raw = self.reach(Some(purpose)).await?;
        raw.registration = Some(self.registry.register(raw.info.clone(), raw.monitor.clone(), purpose));
        debug!(info = %raw.info, "connected");
        Ok(raw)
    }

    /// Connects without a login, within the endpoint's timeout. Whether it is the primary, if it was located, is left to the caller too.
    pub(crate) async fn dial(&self) -> Result<RawConnection, ConnectError> {
        self.reach(None).await
    }

    /// Connects and logs in, and leaves the rest to the caller. What has arrived since is read until no message is incomplete, because
    /// the caller cannot read what the decoder holds.
    pub(crate) async fn dial_logged_in(&self) -> Result<RawConnection, ConnectError> {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let mut raw = self.reach(Some(Purpose::Shared)).await?;
        let drained = timeout_at(deadline.at, raw.drain_pushes()).await;
        let drained = drained.map_err(|_| deadline.passed(true));
        match drained.and_then(|ended| ended.map_err(ConnectCause::of_login)) {
            Ok(()) => Ok(raw),
            Err(cause) => Err(self.failure(cause)),
        }
    }

    /// Connects to the server, wherever it is. Without a purpose, the login is left to the caller.
    async fn reach(&self, purpose: Option<Purpose>) -> Result<RawConnection, ConnectError> {
        match &self.source {
            Source::Located(locator) => {
                self.connect_located(locator, purpose).await.map_err(|cause| self.failure(cause))
            }
            _ => self.connect_here(purpose).await,
        }
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
        let logged_in = async {
            let credentials = self.credentials(&deadline).await?;
            let raw = self.encrypt_if(raw, &deadline).await?;
            let login =
                Login { purpose: Purpose::Shared, credentials: credentials.as_ref(), is_plain: false };
            self.set_up(raw, login, &deadline).await
        };
        logged_in.await.map_err(|cause| self.failure(cause))
    }

    async fn establish(
        &self,
        transport: Transport,
        login: Option<Login<'_>>,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        match &self.source {
            // `connect_located` connects through connectors of their own.
            Source::Endpoint | Source::Located(_) => {}
            Source::Once => return Err(ConnectCause::OnlyOneStream),
            Source::Socket(path) => {
                let raw = self.dial_socket(path, transport, deadline).await?;
                return self.log_in_if(login, raw, deadline).await;
            }
            Source::Dialer(dial) => {
                let stream = timeout_at(deadline.at, dial()).await.map_err(|_| deadline.passed(false))?;
                let stream = stream.map_err(|error| ConnectCause::Io(Arc::new(error)))?;
                let raw = RawConnection::new(AnyStream::Other(stream), self.plain_info(transport), None);
                return self.log_in_if(login, raw, deadline).await;
            }
        }
        let addresses = match transport {
            // It has a path.
            Transport::Unix => Vec::new(),
            _ => self.resolve(transport, deadline).await?,
        };
        // The fallback needs time too.
        let halved = self.may_fall_back() && transport != Transport::Tcp;
        let deadline = if halved { &deadline.half() } else { deadline };
        let raw = match transport {
            Transport::Tcp => self.dial_tcp(&addresses, deadline).await?,
            Transport::Rdma => {
                self.dial_device(DeviceKind::Verbs, transport, login, &addresses, deadline).await?
            }
            Transport::Emulated => {
                self.dial_device(DeviceKind::Emulated, transport, login, &addresses, deadline).await?
            }
            Transport::Unix => self.dial_socket(Path::new(self.endpoint.host()), transport, deadline).await?,
        };
        self.log_in_if(login, raw, deadline).await
    }

    /// Encrypts the connection before anything else is sent, if the endpoint asks for that.
    async fn encrypt_if(
        &self,
        mut raw: RawConnection,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let Some(tls) = &self.tls else { return Ok(raw) };
        let step = self.begin(ConnectStep::Encrypt, raw.info.peer, deadline);
        let encrypting = timeout_at(deadline.at, tls.connect(self.endpoint.host(), raw.take_socket())).await;
        let encrypted = encrypting
            .map_err(|_| ConnectCause::SilentInTls { limit: deadline.limit })
            .and_then(|done| done.map_err(|error| ConnectCause::Tls(Arc::new(error))));
        raw.socket = encrypted.inspect_err(|cause| step.ended(Err(cause)))?;
        Arc::make_mut(&mut raw.info).tls = raw.socket.tls();
        if let Some(info) = &raw.info.tls {
            step.ended(Ok(StepFound::Encrypted(info)));
        }
        Ok(raw)
    }

    /// Encrypts the connection, if the endpoint asks for that, and logs in, if the login is not left to the caller.
    async fn log_in_if(
        &self,
        login: Option<Login<'_>>,
        raw: RawConnection,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let raw = self.encrypt_if(raw, deadline).await?;
        let Some(login) = login else { return Ok(raw) };
        let step = self.begin(ConnectStep::LogIn, raw.info.peer, deadline);
        let set_up = self.set_up(raw, login, deadline).await;
        step.ended(set_up.as_ref().map(|raw| StepFound::Protocol(raw.info.protocol)));
        set_up
    }

    /// A step that begins now, and that may take what is left until `deadline`.
    pub(super) fn begin(
        &self,
        step: ConnectStep,
        address: Option<SocketAddr>,
        deadline: &ConnectDeadline,
    ) -> StepWatch<'_> {
        StepWatch::begin(self.observer.as_ref(), step, address, deadline.left())
    }

    async fn resolve(
        &self,
        transport: Transport,
        deadline: &ConnectDeadline,
    ) -> Result<Vec<SocketAddr>, ConnectCause> {
        let step = self.begin(ConnectStep::Resolve, None, deadline);
        let resolving = address::resolve(self.endpoint.host(), self.endpoint.port_on(transport));
        let resolved = timeout_at(deadline.at, resolving).await.map_err(|_| deadline.passed(false));
        let resolved = resolved.and_then(|found| found.map_err(ConnectCause::of_resolve));
        step.ended(resolved.as_deref().map(StepFound::Addresses));
        resolved
    }

    async fn dial_socket(
        &self,
        path: &Path,
        transport: Transport,
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let step = self.begin(ConnectStep::Connect, None, deadline);
        let connected = timeout_at(deadline.at, UnixStream::connect(path)).await;
        let connected = connected.map_err(|_| deadline.passed(false));
        let connected = connected.and_then(|made| {
            made.and_then(UnixSocket::try_from).map_err(|error| ConnectCause::Socket(Arc::new(error)))
        });
        step.ended(connected.as_ref().map(|_| StepFound::Accepted));
        Ok(RawConnection::new(AnyStream::Unix(connected?), self.plain_info(transport), None))
    }

    async fn dial_tcp(
        &self,
        addresses: &[SocketAddr],
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let (silence, source) = (self.config.keepalive_timeout, self.endpoint.source());
        let connect = move |address, _| async move {
            address::check_interface(address).map_err(ConnectCause::Address)?;
            tcp::connect(address, source, silence).await.map_err(|error| ConnectCause::Io(Arc::new(error)))
        };
        let first = (self.observer.as_ref(), ConnectStep::Connect);
        let (stream, peer) = dial(first, deadline, addresses, connect).await?;
        let info = ConnectionInfo { peer: Some(peer), ..self.plain_info(Transport::Tcp) };
        Ok(RawConnection::new(AnyStream::Tcp(stream), info, None))
    }

    async fn dial_device(
        &self,
        kind: DeviceKind,
        transport: Transport,
        login: Option<Login<'_>>,
        addresses: &[SocketAddr],
        deadline: &ConnectDeadline,
    ) -> Result<RawConnection, ConnectCause> {
        let mut config = self.endpoint.apply_to(self.config.transport.clone());
        let mut connects = &self.device_connects;
        if login.is_some_and(|login| login.purpose.is_small()) {
            config = config.buffers_at_most(self.endpoint.side_buffers().unwrap_or(self.config.side_buffers));
        }
        if login.is_some_and(|login| login.purpose == Purpose::Bulk) {
            config = config.wants(FeatureSet::DIRECT);
            connects = &self.bulk_connects;
        }
        let config = &config
            // The endpoint's timeout applies around this; a connect that takes longer is kept for the next attempt.
            .connect_timeout(ConnectDeadline::FOREVER)
            // A little less: the error of a server that accepts and is then silent says so.
            .handshake_timeout(deadline.left().mul_f64(0.95))
            .idle_timeout(self.config.keepalive_timeout.map(|limit| limit.max(SHORTEST_SILENCE)))
            .stall_timeout(self.config.stall_timeout)
            .requires(if self.tls.is_some() { FeatureSet::TLS } else { FeatureSet::NONE });
        let connect = move |address, steps| async move {
            connects.connect(kind, address, config, steps).await.map_err(|error| match error {
                TransportError::ConnectTimeout { .. } => deadline.passed(false),
                // Its limit is the time that was left here.
                TransportError::SilentInHandshake { .. } => deadline.passed(true),
                TransportError::Lost(CloseReason::NotOffered { .. }) => ConnectCause::NoTlsOverRdma,
                error => ConnectCause::Device(Arc::new(error)),
            })
        };
        let first = (self.observer.as_ref(), ConnectStep::Route);
        let (stream, peer) = dial(first, deadline, addresses, connect).await?;
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
            read_depth: Some(seen.read_depth),
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
        // Of a service no host was given: its name alone would look like one.
        let peer = match self.endpoint.sentinels() {
            Some(_) => format!("the primary of \"{}\"", self.peer()),
            None => self.peer(),
        };
        let transport = (!matches!(self.source, Source::Socket(_))).then(|| self.endpoint.transport());
        ConnectError { peer: peer.into(), transport, tls: self.tls.is_some(), cause }
    }

    /// The server, as errors name it.
    pub(crate) fn peer(&self) -> String {
        match &self.source {
            Source::Socket(path) => path.display().to_string(),
            _ => self.endpoint.authority(),
        }
    }
}

/// How a connection logs in.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub(super) purpose: Purpose,
    /// `None`: the server requires none.
    pub(super) credentials: Option<&'a Credentials>,
    /// Leaves out what only some servers know.
    pub(super) is_plain: bool,
}

/// Tries addresses in order until one accepts, each for its [share](address::shares) of the time. The last failure is returned. `observer`
/// receives the steps at each address, of which `first` is the first one.
async fn dial<S, F>(
    (observer, first): (Option<&Observer>, ConnectStep),
    deadline: &ConnectDeadline,
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr, Option<Arc<DeviceSteps>>) -> F,
) -> Result<(S, SocketAddr), ConnectCause>
where
    F: Future<Output = Result<S, ConnectCause>>,
{
    let mut failure = ConnectCause::NoAddress;
    for (address, share) in address::shares(addresses, deadline.at) {
        let step = StepWatch::begin(observer, first, Some(address), share);
        let over = (observer.is_some() && first == ConnectStep::Route).then(Arc::<DeviceSteps>::default);
        let connected = timeout(share, connect(address, over.clone())).await;
        let connected = connected.unwrap_or_else(|_| Err(deadline.passed(false)));
        let outcome = connected.as_ref().map(drop);
        match over {
            Some(over) => step.ended_over_device(&over, outcome),
            None => step.ended(outcome.map(|()| StepFound::Accepted)),
        }
        failure = match connected {
            Ok(stream) => return Ok((stream, address)),
            Err(cause) => cause,
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

    /// The endpoint's timeout.
    pub(super) fn limit(&self) -> Duration {
        self.limit
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
