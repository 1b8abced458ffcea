//! From a target to a connection that is logged in.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};
use valkey_rdma_client::{
    Client, Config as ClientConfig, ConnectCause, Endpoint, Error, LostCause, Transport,
};
use valkey_rdma_resp::{Decoder, Protocol, Value};
use valkey_rdma_transport::{AnyStream, DeviceKind, SharedCq, Stream, TransportError, address};

use super::lent::Lent;

/// The server to measure, and what each connection says before anything else.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Where it is, and how to log in.
    pub(crate) endpoint: Endpoint,
    /// Its Unix socket, instead of the endpoint's host and port.
    pub(crate) socket: Option<PathBuf>,
    /// Whether it is one node of a cluster, all of which is measured (`--cluster`).
    pub(crate) cluster: bool,
    /// Whether connections ask for invalidation messages (`--enable-tracking`).
    pub(crate) tracking: bool,
    /// The completion queue that the connections share, if any.
    group: Option<SharedCq>,
}

impl Target {
    /// A server at `endpoint`.
    pub(crate) fn new(endpoint: Endpoint) -> Target {
        Target { endpoint, socket: None, cluster: false, tracking: false, group: None }
    }

    /// The same for several connections of one thread. On an RDMA device they share completion queues.
    pub(super) fn for_one_thread(&self) -> Target {
        let shares = self.socket.is_none() && self.endpoint.transport() == Transport::Rdma;
        Target { group: shares.then(SharedCq::new), ..self.clone() }
    }

    /// Whether it is reached over an RDMA device or the emulated one.
    pub(crate) fn is_device(&self) -> bool {
        self.socket.is_none() && self.endpoint.transport() != Transport::Tcp
    }

    /// The transport's name.
    pub(crate) fn transport(&self) -> String {
        match self.socket {
            Some(_) => "unix".to_owned(),
            None => self.endpoint.transport().to_string(),
        }
    }
}

/// The server without its password.
impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.socket {
            Some(path) => write!(out, "unix://{}", path.display()),
            None => self.endpoint.fmt(out),
        }
    }
}

/// Why no connection came about.
#[derive(Debug, Clone)]
pub(crate) struct DialError {
    target: String,
    cause: ConnectCause,
}

impl DialError {
    pub(super) fn new(target: &Target, cause: ConnectCause) -> DialError {
        let transport = target.transport();
        let place = match &target.socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", target.endpoint.host(), target.endpoint.port()),
        };
        DialError { target: format!("{place} over {transport}"), cause }
    }
}

impl DialError {
    /// Whether something answered that speaks no RESP.
    pub(crate) fn is_not_valkey(&self) -> bool {
        matches!(&self.cause, ConnectCause::Lost(lost) if matches!(**lost, LostCause::Protocol(_) | LostCause::OutOfStep(_)))
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "cannot connect to {}: {}", self.target, self.cause)
    }
}

impl std::error::Error for DialError {}

/// Connects and logs in, within the endpoint's timeout.
///
/// # Errors
/// [`DialError`] with the step that failed.
///
/// Cancel safety: dropping the future gives up, as far as the transport lets it: see [`Stream::connect`].
pub(crate) async fn dial(target: &Target) -> Result<AnyStream, DialError> {
    let deadline = Deadline::of(&target.endpoint);
    let stream = connect(target, &deadline).await.map_err(|cause| DialError::new(target, cause))?;
    let lent = Lent::new(stream);
    let endpoint = target.endpoint.clone().with_timeout(deadline.left());
    let logged_in = Client::from_stream(lent.clone(), &endpoint).await;
    logged_in.map_err(|error| DialError::new(target, deadline.own_limit(cause_of(error))))?;
    let mut stream = lent
        .take_back()
        .ok_or_else(|| DialError::new(target, ConnectCause::Lost(Arc::new(LostCause::PeerClosed))))?;
    if target.tracking {
        let asked = timeout_at(deadline.at, track(&mut stream, endpoint.protocol())).await;
        let asked = asked.unwrap_or(Err(ConnectCause::Deadline { limit: deadline.limit, connected: true }));
        asked.map_err(|cause| DialError::new(target, cause))?;
    }
    Ok(stream)
}

/// Connects without a login: for servers other than Valkey.
pub(crate) async fn dial_plain(target: &Target) -> Result<AnyStream, DialError> {
    connect(target, &Deadline::of(&target.endpoint)).await.map_err(|cause| DialError::new(target, cause))
}

/// Work requests that each of several connections may have outstanding, in either direction. A connection has one pipeline at
/// a time, whose replies arrive in few messages. If there are more, the server's device waits and sends again. And the
/// shallower their queues, the more connections share a completion queue: 63 on soft-RoCE, where it has 32767 entries.
const SHALLOW: u32 = 256;

/// Connects a client of the library to the target, or to the whole cluster that it belongs to.
pub(super) async fn dial_caller(target: &Target) -> Result<Client, DialError> {
    if target.tracking {
        return dial_tracked(target).await;
    }
    if !target.cluster {
        return dial_client(target).await;
    }
    let config = ClientConfig::default().command_timeout(None);
    let client = Client::connect_with([&target.endpoint], &config).await;
    client.map_err(|error| DialError::new(target, cause_of(error)))
}

/// Connects a client of the library to the target.
pub(crate) async fn dial_client(target: &Target) -> Result<Client, DialError> {
    let client = match &target.socket {
        None => Client::connect_with(&target.endpoint, &plain()).await,
        Some(_) => {
            let deadline = Deadline::of(&target.endpoint);
            let stream = connect(target, &deadline).await.map_err(|cause| DialError::new(target, cause))?;
            Client::from_stream_with(stream, &target.endpoint, &plain()).await
        }
    };
    client.map_err(|error| DialError::new(target, cause_of(error)))
}

/// The same, on a connection that asks for invalidation messages: the library sends no such command for its users.
async fn dial_tracked(target: &Target) -> Result<Client, DialError> {
    let (endpoint, config) = (&target.endpoint, plain());
    let client = match dial(target).await? {
        // The client knows this type: it sends large values from where they are.
        AnyStream::Device(stream) => Client::from_stream_with(stream, endpoint, &config).await,
        stream => Client::from_stream_with(stream, endpoint, &config).await,
    };
    client.map_err(|error| DialError::new(target, cause_of(error)))
}

/// Without automatic reconnects and time limits of commands, because the tool itself detects losses and silent servers.
fn plain() -> ClientConfig {
    ClientConfig::default().reconnect(None).command_timeout(None)
}

/// Sends `CLIENT TRACKING ON` and awaits the reply, on a connection that is logged in.
async fn track(stream: &mut AnyStream, protocol: Protocol) -> Result<(), ConnectCause> {
    let io = |error: io::Error| ConnectCause::Io(Arc::new(error));
    stream.write_all(b"*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n").await.map_err(io)?;
    stream.flush().await.map_err(io)?;
    let mut decoder = Decoder::new(protocol);
    loop {
        match decoder.next().map_err(|error| ConnectCause::Lost(Arc::new(LostCause::Protocol(error))))? {
            Some(Value::Error(error)) => return Err(ConnectCause::Rejected(error)),
            Some(_) => return Ok(()),
            None if stream.read_buf(decoder.room()).await.map_err(io)? == 0 => {
                return Err(ConnectCause::Lost(Arc::new(LostCause::PeerClosed)));
            }
            None => {}
        }
    }
}

fn cause_of(error: Error) -> ConnectCause {
    match error {
        Error::Connect(error) => error.cause().clone(),
        Error::Server(error) => ConnectCause::Rejected(error),
        other => ConnectCause::Io(Arc::new(io::Error::other(other))),
    }
}

async fn connect(target: &Target, deadline: &Deadline) -> Result<AnyStream, ConnectCause> {
    let io = |error: io::Error| ConnectCause::Io(Arc::new(error));
    if let Some(path) = &target.socket {
        let connecting = timeout_at(deadline.at, UnixStream::connect(path)).await;
        return connecting.map_err(|_| deadline.passed())?.map(AnyStream::Unix).map_err(io);
    }
    let endpoint = &target.endpoint;
    let addresses = timeout_at(deadline.at, resolve(endpoint)).await.map_err(|_| deadline.passed())??;
    match endpoint.transport() {
        Transport::Rdma => over_device(DeviceKind::Verbs, target, &addresses, deadline).await,
        Transport::Emulated => over_device(DeviceKind::Emulated, target, &addresses, deadline).await,
        _ => {
            try_each(deadline, &addresses, |address| async move {
                address::check_interface(address).map_err(ConnectCause::Address)?;
                let stream = TcpStream::connect(address).await.map_err(io)?;
                // Batches are ours to form; the kernel must not wait for more.
                stream.set_nodelay(true).map_err(io)?;
                Ok(AnyStream::Tcp(stream))
            })
            .await
        }
    }
}

async fn over_device(
    kind: DeviceKind,
    target: &Target,
    addresses: &[SocketAddr],
    deadline: &Deadline,
) -> Result<AnyStream, ConnectCause> {
    let Target { endpoint, group, .. } = target;
    let mut config = endpoint.transport_config().connect_timeout(deadline.left());
    if let Some(group) = group {
        config = config.shared_cq(group).send_depth(SHALLOW).receive_depth(SHALLOW);
    }
    let config = &config;
    try_each(deadline, addresses, |address| async move {
        Stream::connect(kind, address, config).await.map(AnyStream::Device).map_err(|error| match error {
            TransportError::ConnectTimeout { .. } => deadline.passed(),
            error => ConnectCause::Device(Arc::new(error)),
        })
    })
    .await
}

async fn resolve(endpoint: &Endpoint) -> Result<Vec<SocketAddr>, ConnectCause> {
    address::resolve(endpoint.host(), endpoint.port()).await.map_err(ConnectCause::of_resolve)
}

/// Tries addresses one after the other, each for its [share](address::shares) of the time. Returns the last failure.
async fn try_each<F>(
    deadline: &Deadline,
    addresses: &[SocketAddr],
    connect: impl Fn(SocketAddr) -> F,
) -> Result<AnyStream, ConnectCause>
where
    F: Future<Output = Result<AnyStream, ConnectCause>>,
{
    let mut failure = ConnectCause::NoAddress;
    for (address, share) in address::shares(addresses, deadline.at) {
        failure = match timeout(share, connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(cause)) => cause,
            Err(_) => deadline.passed(),
        };
    }
    Err(failure)
}

/// The end of an endpoint's timeout.
struct Deadline {
    limit: Duration,
    at: Instant,
}

impl Deadline {
    /// Stands in for limits beyond any use, which clocks and devices cannot count.
    const FOREVER: Duration = Duration::from_secs(20 * 24 * 3600);

    fn of(endpoint: &Endpoint) -> Deadline {
        let limit = endpoint.timeout().min(Deadline::FOREVER);
        Deadline { limit, at: Instant::now() + limit }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    fn passed(&self) -> ConnectCause {
        ConnectCause::Deadline { limit: self.limit, connected: false }
    }

    /// The login knows only what was left of the limit; the user gave the whole.
    fn own_limit(&self, cause: ConnectCause) -> ConnectCause {
        match cause {
            ConnectCause::Deadline { connected, .. } => {
                ConnectCause::Deadline { limit: self.limit, connected }
            }
            cause => cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::UnixListener;

    use super::*;

    /// Replies `+OK` to each command but PING, which ends a login, and to GET after a day. The clock is paused, so that no test waits for it.
    async fn serve(listener: UnixListener) -> io::Result<()> {
        let (mut stream, _) = listener.accept().await?;
        let mut room = [0; 1024];
        loop {
            let len = stream.read(&mut room).await?;
            if len == 0 {
                return Ok(());
            }
            let received = &room[..len];
            if received.windows(3).any(|word| word == b"GET") {
                tokio::time::sleep(Duration::from_secs(24 * 3600)).await;
            }
            // No argument contains a star.
            let commands = received.iter().filter(|&&byte| byte == b'*').count();
            let ends_login = received.windows(4).any(|word| word == b"PING");
            stream.write_all(&b"+OK\r\n".repeat(commands - usize::from(ends_login))).await?;
            if ends_login {
                stream.write_all(b"+PONG\r\n").await?;
            }
        }
    }

    /// `--reply-timeout` limits how long the tool waits.
    #[tokio::test(start_paused = true)]
    async fn a_client_on_a_unix_socket_limits_no_command() {
        let path = std::env::temp_dir().join(format!("valkey-rdma-dial-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let server = tokio::spawn(serve(UnixListener::bind(&path).unwrap()));
        let endpoint = "valkey://localhost".parse::<Endpoint>().unwrap().with_protocol(Protocol::Resp2);
        let target = Target { socket: Some(path.clone()), ..Target::new(endpoint) };
        let client = dial_client(&target).await.unwrap();
        let reply = client.command(["GET", "k"]).await.map_err(|error| error.to_string());
        assert_eq!(reply.map(|reply| reply.as_str().map(str::to_owned)), Ok(Some("OK".to_owned())));
        server.abort();
        let _ = std::fs::remove_file(&path);
    }
}
