//! [`MockServer`]: a mock that serves, in one line.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use valkey_rdma_server::{Address, BindError, DeviceKind, Listening, Server, ServerTls, TransportConfig};

use crate::encryption::{self, encrypted};
use crate::held_port::{HeldPorts, patiently};
use crate::mock::Mock;

/// A [`Mock`] that serves on the emulated device and on TCP, on free ports of this machine. Everything of [`Mock`] is there too: rules
/// for replies, what was received, preloaded values. It offers direct transfers where it does not use TLS.
///
/// ```
/// use std::time::Duration;
/// use valkey_rdma_mock::MockServer;
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let mock = MockServer::start().await;
/// mock.set("greeting", "hello");
/// let busy = mock.on("GET").with("greeting").error("LOADING wait").times(2); // then it runs as always
/// mock.on("INCR").delay(Duration::from_millis(10));
/// mock.on("SHUTDOWN").drop_connection();
///
/// let url = mock.url(); // emulated://127.0.0.1:...; the program under test connects to it
/// # let _ = url;
///
/// assert_eq!(busy.matched(), 0);
/// assert!(mock.received().is_empty());
/// # });
/// ```
///
/// With TLS: [`start_encrypted`](Self::start_encrypted). A whole test suite runs over TLS by one switch: while the environment variable
/// `VALKEY_RDMA_MOCK_TLS` names a folder with `server.crt` and `server.key`, each `MockServer` and each
/// [`MockCluster`](crate::MockCluster) uses that certificate, for 127.0.0.1. With `SSL_CERT_FILE`, this project's clients trust its issuer.
///
/// It ends when it is dropped. [`shutdown`](Self::shutdown) waits for the last replies. [`kill`](Self::kill) and
/// [`restart`](Self::restart) are for tests of clients that reconnect.
pub struct MockServer {
    mock: Arc<Mock>,
    /// `None` while it is down.
    server: Option<Server>,
    /// Its ports, while it is down and after.
    held: HeldPorts,
    url: String,
    tcp_url: String,
    tls: Option<ServerTls>,
}

impl MockServer {
    /// Starts an empty mock. Must run inside a tokio runtime.
    ///
    /// # Panics
    /// If no port can be opened, as a test would.
    pub async fn start() -> Self {
        match Self::start_with(Mock::new()).await {
            Ok(server) => server,
            Err(error) => panic!("the mock cannot listen on 127.0.0.1: {error}"),
        }
    }

    /// Starts a mock with settings: a password, a seed.
    ///
    /// # Errors
    /// [`BindError`] if no port can be opened.
    pub async fn start_with(mock: Mock) -> Result<Self, BindError> {
        Self::launch(mock, encryption::from_environment()).await
    }

    /// Starts a mock that serves with TLS on both transports: its URLs begin with `emulateds://` and `valkeys://`.
    ///
    /// # Errors
    /// [`BindError`] if a certificate or key cannot be used, or no port can be opened.
    pub async fn start_encrypted(mock: Mock, tls: ServerTls) -> Result<Self, BindError> {
        Self::launch(mock, Some(tls)).await
    }

    async fn launch(mock: Mock, tls: Option<ServerTls>) -> Result<Self, BindError> {
        let mock = Arc::new(mock.recording());
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let emulated = Address::rdma(DeviceKind::Emulated, any_port, &TransportConfig::default());
        let server = Server::builder(mock.clone())
            .direct(true)
            .listen(encrypted(emulated, tls.as_ref()))
            .listen(encrypted(Address::tcp(any_port), tls.as_ref()))
            .start()
            .await?;
        let mut urls = server.urls();
        let mut next = || urls.next().unwrap_or_default();
        let (url, tcp_url) = (next(), next());
        Ok(Self { mock, server: Some(server), held: HeldPorts::default(), url, tcp_url, tls })
    }

    /// The URL to connect to over the emulated device.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL to connect to over TCP, for any client.
    pub fn tcp_url(&self) -> &str {
        &self.tcp_url
    }

    /// Closes all connections after the replies to the commands that have arrived.
    pub async fn shutdown(self) {
        if let Some(server) = self.server {
            server.shutdown().await;
        }
    }

    /// Closes all connections and stops listening, at once, as the death of a server's process does. New connections are refused from
    /// now on, no command runs any more, and no other program gets the ports. Values, rules and what was received stay; [`Mock::reset`] empties it.
    pub async fn kill(&mut self) {
        let Some(server) = self.server.take() else { return };
        let listening = server.listening();
        server.cut().await;
        for Listening { addr, .. } in listening {
            self.held.hold(addr).await;
        }
    }

    /// Listens again where it listened before. A server that runs goes on.
    ///
    /// # Errors
    /// [`BindError`] if another program has taken a port.
    pub async fn restart(&mut self) -> Result<(), BindError> {
        if self.server.is_none() {
            let address = |url: &String| encrypted(url.into(), self.tls.as_ref());
            let start = || {
                let builder = Server::builder(self.mock.clone()).direct(true);
                builder.listen(address(&self.url)).listen(address(&self.tcp_url)).start()
            };
            self.server = Some(patiently(start).await?);
        }
        Ok(())
    }
}

impl Deref for MockServer {
    type Target = Mock;

    fn deref(&self) -> &Mock {
        &self.mock
    }
}

impl fmt::Debug for MockServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MockServer").field("url", &self.url).finish_non_exhaustive()
    }
}
