//! From an [`Endpoint`] to a [`Client`]: resolve, connect, log in, under one deadline.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument, debug, debug_span};
use valkey_rdma_transport::{Config, DeviceKind, Monitor, Stream, TransportError};

use crate::client::{Client, Unstarted};
use crate::command::Command;
use crate::endpoint::{Endpoint, Protocol, Transport};
use crate::error::{ConnectCause, ConnectError, Error, LostCause, ServerError};
use crate::info::ConnectionInfo;

/// Connects by name.
pub(crate) async fn connect(endpoint: &Endpoint) -> Result<Client, Error> {
    endpoint.check()?;
    establish(endpoint).await.map_err(|cause| failure(endpoint, cause))
}

/// Logs in over a stream that the caller has connected.
pub(crate) async fn over<S>(stream: S, endpoint: &Endpoint) -> Result<Client, Error>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let deadline = Deadline::of(endpoint);
    let client = log_in(stream, None, endpoint, plain_info(endpoint), &deadline).await;
    client.map_err(|cause| failure(endpoint, cause))
}

async fn establish(endpoint: &Endpoint) -> Result<Client, ConnectCause> {
    let deadline = Deadline::of(endpoint);
    let addresses = timeout_at(deadline.at, resolve(endpoint)).await;
    let addresses = addresses.map_err(|_| deadline.passed(false))??;
    match endpoint.transport() {
        Transport::Tcp => {
            let (stream, peer) = dial(&deadline, &addresses, connect_tcp).await?;
            let info = ConnectionInfo { peer: Some(peer), ..plain_info(endpoint) };
            log_in(stream, None, endpoint, info, &deadline).await
        }
        Transport::Rdma => connect_device(DeviceKind::Verbs, endpoint, &addresses, &deadline).await,
        Transport::Emulated => connect_device(DeviceKind::Emulated, endpoint, &addresses, &deadline).await,
    }
}

async fn connect_device(
    kind: DeviceKind,
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
    deadline: &Deadline,
) -> Result<Client, ConnectCause> {
    let mut config = Config::default();
    config.connect_timeout(deadline.left());
    if let Some(bytes) = endpoint.rx_size() {
        config.rx_size(bytes);
    }
    if let Some(name) = endpoint.device() {
        config.device(name);
    }
    config.polling(endpoint.polling());
    let config = &config;
    let connect = move |address| async move {
        Stream::connect(kind, address, config).await.map_err(|error| match error {
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
        ..plain_info(endpoint)
    };
    let monitor = stream.monitor();
    log_in(stream, Some(monitor), endpoint, info, deadline).await
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

async fn connect_tcp(address: SocketAddr) -> Result<TcpStream, ConnectCause> {
    let stream = TcpStream::connect(address).await.map_err(|error| ConnectCause::Io(Arc::new(error)))?;
    // Batches are ours to form; the kernel must not wait for more.
    stream.set_nodelay(true).map_err(|error| ConnectCause::Io(Arc::new(error)))?;
    Ok(stream)
}

/// Starts the driver and brings the connection into the state that the endpoint asks for. All commands leave in one
/// write; the first refusal that matters is the failure, even if the peer hangs up after it.
async fn log_in<S>(
    stream: S,
    monitor: Option<Monitor>,
    endpoint: &Endpoint,
    info: ConnectionInfo,
    deadline: &Deadline,
) -> Result<Client, ConnectCause>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let peer: Arc<str> = endpoint.authority().into();
    let span = debug_span!("connection", %peer, transport = %info.transport);
    let connection = Unstarted::new(stream, monitor, peer, info);
    let steps: Vec<_> = steps(endpoint).map(|(command, step)| (connection.queue(command), step)).collect();
    let Unstarted { client, driver } = connection;
    tokio::spawn(driver.instrument(span));

    let replies = async {
        for (reply, step) in steps {
            match reply.await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) if step == Step::Courtesy && error.code != "NOAUTH" => {
                    debug!(%error, "ignored");
                }
                Ok(Err(error)) => return Err(ConnectCause::Rejected(without_arguments(error))),
                Err(Error::Lost(lost)) => return Err(ConnectCause::Lost(lost.cause)),
                Err(_) => return Err(ConnectCause::Lost(Arc::new(LostCause::Stopped))),
            }
        }
        Ok(())
    };
    timeout_at(deadline.at, replies).await.map_err(|_| deadline.passed(true))??;
    debug!(info = %client.info(), "connected");
    Ok(client)
}

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

/// The handshake, in order.
fn steps(endpoint: &Endpoint) -> impl Iterator<Item = (Command, Step)> {
    let password = endpoint.password();
    let login = match (endpoint.protocol(), password) {
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
    };
    // Without it, nothing below would tell that the server wants a login: SETINFO is allowed before one.
    let probe = login.is_none().then(|| Command::new("PING"));
    let database = endpoint.database();
    let select = (database != 0).then(|| Command::new("SELECT").arg(database.to_string()));
    let name = Command::from_args(["CLIENT", "SETINFO", "LIB-NAME", env!("CARGO_PKG_NAME")]);
    let version = Command::from_args(["CLIENT", "SETINFO", "LIB-VER", env!("CARGO_PKG_VERSION")]);
    let needed = login.into_iter().chain(select).map(|command| (command, Step::Needed));
    needed.chain(probe.into_iter().chain([name, version]).map(|command| (command, Step::Courtesy)))
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

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    fn passed(&self, connected: bool) -> ConnectCause {
        ConnectCause::Deadline { limit: self.limit, connected }
    }
}

fn plain_info(endpoint: &Endpoint) -> ConnectionInfo {
    ConnectionInfo {
        transport: endpoint.transport(),
        peer: None,
        device: None,
        mtu: None,
        rx_window: None,
        tx_window: None,
        protocol: endpoint.protocol(),
    }
}

fn failure(endpoint: &Endpoint, cause: ConnectCause) -> Error {
    ConnectError { peer: endpoint.authority().into(), transport: endpoint.transport(), cause }.into()
}

#[cfg(test)]
mod tests;
