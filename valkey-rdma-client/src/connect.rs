//! [`Connector`]: from an [`Endpoint`] to a [`Wire`]: resolve, connect, log in, under one deadline.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};
use valkey_rdma_resp::{Protocol, ServerError, ServerErrorKind};
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, TransportError};

use crate::command::Command;
use crate::config::Config;
use crate::endpoint::{Endpoint, Transport};
use crate::error::{ConnectCause, ConnectError};
use crate::info::{ConnectionInfo, Purpose};
use crate::roll::Roll;
use crate::socket::{Io, Socket};
use crate::wire::Wire;

mod outstanding;

use outstanding::Outstanding;

/// Makes connections to one server, all alike.
pub(crate) struct Connector {
    pub(crate) endpoint: Endpoint,
    pub(crate) config: Config,
    pub(crate) roll: Arc<Roll>,
    source: Source,
    outstanding: Outstanding,
}

/// Where streams come from.
enum Source {
    Endpoint,
    /// The program makes them.
    Dialer(Dialer),
    /// The program has made one, and no other can be had.
    Once,
}

pub(crate) type Dialer = Box<dyn Fn() -> Dialing + Send + Sync>;
type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Io>>> + Send>>;

impl Connector {
    pub(crate) fn new(endpoint: Endpoint, config: Config) -> Self {
        Self {
            endpoint,
            config,
            roll: Arc::default(),
            source: Source::Endpoint,
            outstanding: Outstanding::default(),
        }
    }

    pub(crate) fn dialing(endpoint: Endpoint, config: Config, dialer: Dialer) -> Self {
        Self {
            endpoint,
            config,
            roll: Arc::default(),
            source: Source::Dialer(dialer),
            outstanding: Outstanding::default(),
        }
    }

    pub(crate) fn once(endpoint: Endpoint, config: Config) -> Self {
        Self {
            endpoint,
            config,
            roll: Arc::default(),
            source: Source::Once,
            outstanding: Outstanding::default(),
        }
    }

    /// Connects and logs in, within the endpoint's timeout.
    pub(crate) async fn connect(&self, purpose: Purpose) -> Result<Wire, ConnectError> {
        let deadline = Deadline::of(&self.endpoint);
        let transport = self.endpoint.transport();
        let wire = match self.establish(transport, &deadline).await {
            Err(cause) if self.endpoint.fallback() && worth_a_fallback(&cause) => {
                warn!(peer = %self.endpoint.authority(), %cause, "no connection over {transport}, falling back to tcp");
                match self.establish(Transport::Tcp, &deadline).await {
                    Ok(mut wire) => {
                        Arc::make_mut(&mut wire.info).fallback = Some(cause.to_string());
                        Ok(wire)
                    }
                    Err(tcp) => Err(ConnectCause::Fallback { rdma: Box::new(cause), tcp: Box::new(tcp) }),
                }
            }
            other => other,
        };
        let mut wire = wire.map_err(|cause| self.failure(cause))?;
        wire.place = Some(self.roll.enter(&wire, purpose));
        debug!(info = %wire.info, "connected");
        Ok(wire)
    }

    /// Logs in over a stream that is there already.
    pub(crate) async fn log_in(&self, stream: Box<dyn Io>) -> Result<Wire, ConnectError> {
        let deadline = Deadline::of(&self.endpoint);
        let wire = Wire::new(Socket::Other(stream), self.plain_info(self.endpoint.transport()), None);
        self.set_up(wire, &deadline).await.map_err(|cause| self.failure(cause))
    }

    async fn establish(&self, transport: Transport, deadline: &Deadline) -> Result<Wire, ConnectCause> {
        match &self.source {
            Source::Endpoint => {}
            Source::Once => return Err(ConnectCause::OnlyOneStream),
            Source::Dialer(dial) => {
                let stream = timeout_at(deadline.at, dial()).await.map_err(|_| deadline.passed(false))?;
                let stream = stream.map_err(|error| ConnectCause::Io(Arc::new(error)))?;
                let wire = Wire::new(Socket::Other(stream), self.plain_info(transport), None);
                return self.set_up(wire, deadline).await;
            }
        }
        let addresses = timeout_at(deadline.at, resolve(&self.endpoint)).await;
        let addresses = addresses.map_err(|_| deadline.passed(false))??;
        // What comes after must have time left.
        let halved = self.endpoint.fallback() && transport != Transport::Tcp;
        let deadline = if halved { &deadline.half() } else { deadline };
        let wire = match transport {
            Transport::Tcp => self.dial_tcp(&addresses, deadline).await?,
            Transport::Rdma => self.dial_device(DeviceKind::Verbs, transport, &addresses, deadline).await?,
            Transport::Emulated => {
                self.dial_device(DeviceKind::Emulated, transport, &addresses, deadline).await?
            }
        };
        self.set_up(wire, deadline).await
    }

    async fn dial_tcp(&self, addresses: &[SocketAddr], deadline: &Deadline) -> Result<Wire, ConnectCause> {
        let (limit, source) = (self.config.peer_timeout, self.endpoint.source());
        let connect = move |address| async move {
            connect_tcp(address, source, limit).await.map_err(|error| ConnectCause::Io(Arc::new(error)))
        };
        let (stream, peer) = dial(deadline, addresses, connect).await?;
        let info = ConnectionInfo { peer: Some(peer), ..self.plain_info(Transport::Tcp) };
        Ok(Wire::new(Socket::Tcp(stream), info, None))
    }

    async fn dial_device(
        &self,
        kind: DeviceKind,
        transport: Transport,
        addresses: &[SocketAddr],
        deadline: &Deadline,
    ) -> Result<Wire, ConnectCause> {
        let mut config = TransportConfig::default();
        // Ours is around it; a connect that takes longer is kept for the next attempt.
        config.connect_timeout(Deadline::FOREVER).handshake_timeout(deadline.left());
        if let Some(bytes) = self.endpoint.rx_size() {
            config.rx_size(bytes);
        }
        if let Some(name) = self.endpoint.device() {
            config.device(name);
        }
        if let Some(index) = self.endpoint.gid() {
            config.gid_index(index);
        }
        if let Some(addr) = self.endpoint.source() {
            config.source(addr);
        }
        config.polling(self.endpoint.polling());
        config.idle_timeout(self.config.peer_timeout.map(|limit| limit.max(SHORTEST_SILENCE)));
        config.stall_timeout(self.config.stall_timeout);
        let config = &config;
        let connect = move |address| async move {
            self.outstanding.connect(kind, address, config).await.map_err(|error| match error {
                TransportError::ConnectTimeout { .. } => deadline.passed(false),
                error => ConnectCause::Device(Arc::new(error)),
            })
        };
        let (stream, peer) = dial(deadline, addresses, connect).await?;
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
        Ok(Wire::new(Socket::Device(stream), info, Some(monitor)))
    }

    /// Brings a connection into the state that endpoint and config ask for. All commands leave in one write; the
    /// first refusal that matters is the failure, even if the peer hangs up after it.
    async fn set_up(&self, mut wire: Wire, deadline: &Deadline) -> Result<Wire, ConnectCause> {
        let (commands, steps): (Vec<_>, Vec<_>) = self.steps().unzip();
        let mut replies = Vec::with_capacity(commands.len());
        let outcome = timeout_at(deadline.at, wire.exchange_into(&commands, &mut replies)).await;
        for (reply, step) in replies.into_iter().zip(steps) {
            match reply {
                Ok(_) => {}
                Err(error) if step == Step::Courtesy && error.kind() != ServerErrorKind::NoAuth => {
                    debug!(%error, "ignored");
                }
                Err(error) => return Err(ConnectCause::Rejected(without_arguments(error))),
            }
        }
        match outcome {
            Ok(Ok(())) => Ok(wire),
            Ok(Err(cause)) => Err(ConnectCause::Lost(Arc::new(cause))),
            Err(_) => Err(deadline.passed(true)),
        }
    }

    /// The handshake, in order.
    fn steps(&self) -> impl Iterator<Item = (Command, Step)> {
        let endpoint = &self.endpoint;
        let login = login(endpoint);
        // Without it, nothing below would tell that the server wants a login: SETINFO is allowed before one.
        let probe = login.is_none().then(|| Command::new("PING"));
        let database = endpoint.database();
        let select = (database != 0).then(|| Command::new("SELECT").arg(database.to_string()));
        let name = self.config.name.as_deref().map(|name| Command::from_args(["CLIENT", "SETNAME", name]));
        let tracking = self.config.tracking.then(|| Command::from_args(["CLIENT", "TRACKING", "ON"]));
        let library = Command::from_args(["CLIENT", "SETINFO", "LIB-NAME", env!("CARGO_PKG_NAME")]);
        let version = Command::from_args(["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]);
        let needed = login.into_iter().chain(select).chain(name).chain(tracking);
        needed
            .map(|command| (command, Step::Needed))
            .chain(probe.into_iter().chain([library, version]).map(|command| (command, Step::Courtesy)))
    }

    fn plain_info(&self, transport: Transport) -> ConnectionInfo {
        ConnectionInfo {
            transport,
            peer: None,
            device: None,
            mtu: None,
            rx_window: None,
            tx_window: None,
            polling: None,
            adaptive_off: None,
            protocol: self.endpoint.protocol(),
            fallback: None,
        }
    }

    fn failure(&self, cause: ConnectCause) -> ConnectError {
        let transport = self.endpoint.transport();
        ConnectError { peer: self.endpoint.authority().into(), transport, cause }
    }
}

/// Whether TCP may succeed where RDMA did not: not where the name is unknown or the server has said no.
fn worth_a_fallback(cause: &ConnectCause) -> bool {
    matches!(cause, ConnectCause::Device(_) | ConnectCause::Deadline { .. } | ConnectCause::Lost(_))
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ConnectCause> {
    if let Ok(address) = endpoint.host().parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, endpoint.port())]);
    }
    let found = tokio::net::lookup_host((endpoint.host(), endpoint.port())).await;
    Ok(found.map_err(|error| ConnectCause::Resolve(Arc::new(error)))?.collect())
}

/// Tries addresses in turn until one accepts. Each gets an equal share of the time left, so that a dead first one
/// does not use it up. The last failure is reported.
async fn dial<S, F>(
    deadline: &Deadline,
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> Result<(S, SocketAddr), ConnectCause>
where
    F: Future<Output = Result<S, ConnectCause>>,
{
    let mut failure = ConnectCause::NoAddress;
    for (tried, &address) in addresses.iter().enumerate() {
        let share = deadline.left() / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        failure = match timeout(share, connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(cause)) => cause,
            Err(_) => deadline.passed(false),
        };
        debug!(%address, %failure, "address failed");
    }
    Err(failure)
}

async fn connect_tcp(
    address: SocketAddr,
    source: Option<IpAddr>,
    limit: Option<Duration>,
) -> io::Result<TcpStream> {
    let stream = match source {
        None => TcpStream::connect(address).await?,
        Some(source) => {
            let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.bind(SocketAddr::new(source, 0))?;
            socket.connect(address).await?
        }
    };
    // Batches are ours to form; the kernel must not wait for more.
    stream.set_nodelay(true)?;
    if let Some(limit) = limit {
        let socket = SockRef::from(&stream);
        // Three probes within the second half of the limit.
        let wait = |share: Duration| share.clamp(SECOND, LONGEST_PROBE);
        let probes = TcpKeepalive::new().with_time(wait(limit / 2)).with_interval(wait(limit / 6));
        socket.set_tcp_keepalive(&probes)?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(limit.min(Deadline::FOREVER)))?;
    }
    Ok(stream)
}

/// The shortest time that keepalive probes know.
const SECOND: Duration = Duration::from_secs(1);
/// The longest time that they know: 2^15 - 1 seconds.
const LONGEST_PROBE: Duration = Duration::from_secs(32_767);
/// Three of a server's keepalives over RDMA, one every 3 s: one may be late, and one lost to a busy moment.
const SHORTEST_SILENCE: Duration = Duration::from_secs(9);

/// Takes away what a server quotes of a command that it does not know: a login's arguments hold the password.
fn without_arguments(mut error: ServerError) -> ServerError {
    if let Some(quoted) = error.message.find(", with args beginning with") {
        error.message.truncate(quoted);
    }
    error
}

/// What a refusal of a handshake command means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The connection would not be what was asked for.
    Needed,
    /// Some servers do not know it, or do not allow it. Still tells that a login is missing.
    Courtesy,
}

/// The command that logs in and chooses the protocol, if one is needed.
fn login(endpoint: &Endpoint) -> Option<Command> {
    let password = endpoint.password();
    match (endpoint.protocol(), password) {
        (Protocol::Resp3, None) => Some(Command::from_args(["HELLO", "3"])),
        (Protocol::Resp3, Some(password)) => {
            let user = endpoint.user().unwrap_or("default");
            Some(Command::from_args(["HELLO", "3", "AUTH", user, password]))
        }
        (Protocol::Resp2, None) => None,
        (Protocol::Resp2, Some(password)) => Some(match endpoint.user() {
            // Servers before 6.0 know no users.
            None => Command::from_args(["AUTH", password]),
            Some(user) => Command::from_args(["AUTH", user, password]),
        }),
    }
}

/// The end of an endpoint's timeout.
struct Deadline {
    limit: Duration,
    at: Instant,
}

impl Deadline {
    /// Stands in for limits beyond any use, which clocks and devices cannot count.
    const FOREVER: Duration = Duration::from_secs(20 * 24 * 3600);

    fn of(endpoint: &Endpoint) -> Self {
        let limit = endpoint.timeout().min(Self::FOREVER);
        Self { limit, at: Instant::now() + limit }
    }

    /// As if half the time left were all.
    fn half(&self) -> Self {
        Self { limit: self.limit / 2, at: Instant::now() + self.left() / 2 }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    fn passed(&self, connected: bool) -> ConnectCause {
        ConnectCause::Deadline { limit: self.limit, connected }
    }
}

#[cfg(test)]
mod tests;
