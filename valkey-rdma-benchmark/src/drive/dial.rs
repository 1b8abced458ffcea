//! From a target to a connection that is logged in.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use valkey_rdma_client::{
    ByteStream, Client, Config as ClientConfig, ConnectCause, Dialer, Endpoint, Error, LostCause, Transport,
};
use valkey_rdma_transport::{AnyStream, Config as TransportConfig, SharedCq};

/// The time limit of calls that the load tool waits for.
pub const CALL_LIMIT: Duration = Duration::from_secs(24 * 60 * 60);

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
        self.socket.is_none() && matches!(self.endpoint.transport(), Transport::Rdma | Transport::Emulated)
    }

    /// The transport's name, with `+tls` if it is encrypted.
    pub(crate) fn transport(&self) -> String {
        match (&self.socket, self.endpoint.tls()) {
            (Some(_), _) => "unix".to_owned(),
            (None, None) => self.endpoint.transport().to_string(),
            (None, Some(_)) => format!("{}+tls", self.endpoint.transport()),
        }
    }

    /// For one connection: what it has given up is then left to the transport, and no other attempt waits for it.
    fn dialer(&self, config: &ClientConfig) -> Result<Dialer, DialError> {
        let dialer = match &self.socket {
            Some(path) => Dialer::at_socket(path, self.endpoint.clone(), config),
            None => Dialer::new(&self.endpoint, config),
        };
        dialer.map_err(|error| DialError::of(self, &error))
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
    text: String,
    is_not_valkey: bool,
}

impl DialError {
    pub(super) fn of(target: &Target, error: &Error) -> DialError {
        // It names the server, and says what to do.
        let Error::Connect(error) = error else { return DialError::other(target, &format!("{error:#}")) };
        let is_not_valkey = match error.cause() {
            ConnectCause::Lost(lost) => matches!(**lost, LostCause::Protocol(_) | LostCause::OutOfStep(_)),
            _ => false,
        };
        DialError { text: format!("{error:#}"), is_not_valkey }
    }

    /// Another client library could not connect, as it says, or the connection is not as the flags ask.
    pub(super) fn other(target: &Target, error: &str) -> DialError {
        DialError { text: format!("cannot connect to {target}: {error}"), is_not_valkey: false }
    }

    /// Whether something answered that speaks no RESP.
    pub(crate) fn is_not_valkey(&self) -> bool {
        self.is_not_valkey
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl std::error::Error for DialError {}

/// Connects and logs in, within the endpoint's timeout.
///
/// # Errors
/// [`DialError`] with the step that failed.
///
/// Cancel safety: dropping the future gives up, as far as the transport lets it: see
/// [`Stream::connect`](valkey_rdma_transport::Stream::connect).
pub(crate) async fn dial(target: &Target) -> Result<AnyStream, DialError> {
    let dialed = target.dialer(&direct(target))?.dial_logged_in().await;
    dialed.map(ByteStream::into_stream).map_err(|error| DialError::of(target, &error))
}

/// Connects a client of the library to the target, or to the whole cluster that it belongs to.
pub(super) async fn dial_caller(target: &Target) -> Result<Client, DialError> {
    if target.tracking || !target.cluster {
        let config = plain().command_timeout(CALL_LIMIT).tracking(target.tracking);
        let client = target.dialer(&config)?.into_client().await;
        return client.map_err(|error| DialError::of(target, &error));
    }
    let config = ClientConfig::default().command_timeout(CALL_LIMIT);
    let client = Client::connect_with([&target.endpoint], &config).await;
    client.map_err(|error| DialError::of(target, &error))
}

/// Connects a client of the library to the target, for the tool's own questions.
pub(crate) async fn dial_client(target: &Target) -> Result<Client, DialError> {
    let client = target.dialer(&plain())?.into_client().await;
    client.map_err(|error| DialError::of(target, &error))
}

/// Without automatic reconnects and time limits of commands, because the tool itself detects losses and silent servers.
fn plain() -> ClientConfig {
    ClientConfig::default().reconnect(None).command_timeout(None)
}

/// For connections that the tool drives itself: it detects silent servers.
fn direct(target: &Target) -> ClientConfig {
    let config = ClientConfig::default().keepalive_timeout(None).stall_timeout(None);
    let config = config.tracking(target.tracking);
    match &target.group {
        Some(group) => {
            let shared = TransportConfig::default().shared_cq(group);
            config.transport(shared.send_depth(SHALLOW).receive_depth(SHALLOW))
        }
        None => config,
    }
}

/// Work requests that each of several connections may have outstanding, in either direction. A connection has one pipeline at
/// a time, whose replies arrive in few messages. If there are more, the server's device waits and sends again. And the
/// shallower their queues, the more connections share a completion queue: 63 on soft-RoCE, where it has 32767 entries.
const SHALLOW: u32 = 256;

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;
    use valkey_rdma_client::Protocol;

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
