//! A mock server, a gateway in front of it, and clients that speak RESP.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use valkey_rdma_client::{Config as ClientConfig, Dialer};
use valkey_rdma_gateway::{Activation, Config, Gateway, Limits, Listen, RouteConfig, RouteTls, Share};
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_resp::{Decoder, Protocol, Value};
use valkey_rdma_testkit::ReservedPort;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::{ClientTls, TlsConnector};

/// Longer than any step takes, also in a soak on a machine that is busy with other work. Only a failing test waits for it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// A server that listens on the emulated device and on TCP.
pub(crate) async fn mock_with(mock: Mock) -> (Server, String, String) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let builder = Server::builder(mock).rdma(DeviceKind::Emulated, any, &TransportConfig::default()).tcp(any);
    let server = builder.start().await.expect("free ports");
    let urls: Vec<_> = server.urls().collect();
    (server, urls[0].clone(), urls[1].clone())
}

/// A server that is away.
pub(crate) struct Reserved(ReservedPort);

impl Reserved {
    pub(crate) fn new() -> Self {
        Self(ReservedPort::new())
    }

    pub(crate) fn url(&self) -> String {
        format!("valkey://{}", self.0.addr())
    }

    pub(crate) async fn serve(&self, mock: Mock) -> Server {
        Server::builder(mock).tcp(self.0.addr()).start().await.expect("the port is free")
    }
}

/// A server at a Unix socket. It ends as a killed one does: its connections are closed, and its file stays.
pub(crate) struct UnixServer {
    _server: Server,
    serving: JoinHandle<()>,
}

impl UnixServer {
    /// Mocks listen over TCP: each connection of the socket has one there.
    pub(crate) async fn start(path: &Path, mock: Mock) -> Self {
        let (server, _, url) = mock_with(mock).await;
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("a short path");
        let dialer = Dialer::new(url, &ClientConfig::default()).expect("a good URL");
        let serving = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut behind = dialer.dial().await.expect("the mock listens");
                clients.spawn(async move { copy_bidirectional(&mut client, &mut behind).await });
            }
        });
        Self { _server: server, serving }
    }

    /// Closes all connections, and returns when nothing listens there any more.
    pub(crate) async fn kill(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }
}

/// A path for a socket that no other test has.
pub(crate) fn socket_path() -> PathBuf {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("vrg-{}-{number}.sock", std::process::id()))
}

/// The certificate of the gateway and of mocks, in a run over TLS: while `VALKEY_RDMA_MOCK_TLS` names a folder with `server.crt` and
/// `server.key`, and `SSL_CERT_FILE` their issuer, clients use TLS.
fn certificate() -> Option<RouteTls> {
    let folder = PathBuf::from(std::env::var_os("VALKEY_RDMA_MOCK_TLS")?);
    let [cert, key] = ["server.crt", "server.key"].map(|name| folder.join(name));
    Some(RouteTls { cert, key, client_ca: None, client_auth: None })
}

/// A gateway on a Unix socket and a TCP port, in front of a server.
pub(crate) struct Running {
    pub(crate) gateway: Gateway,
    pub(crate) unix: PathBuf,
    pub(crate) tcp: std::net::SocketAddr,
    /// In a run over TLS.
    tls: Option<std::net::SocketAddr>,
}

pub(crate) fn config(url: &str, share: Share, limits: Limits) -> Config {
    let unix = format!("unix:{}", socket_path().display());
    let mut listen = vec![unix.as_str(), "tcp:127.0.0.1:0"];
    let tls = certificate();
    listen.extend(tls.as_ref().map(|_| "tls:127.0.0.1:0"));
    let listen = listen.into_iter().map(|text| text.parse().expect("an address")).collect();
    let mut config = Config::new(RouteConfig { share, tls, ..RouteConfig::new(listen, url) });
    config.limits = limits;
    config
}

/// The same, in front of a cluster.
pub(crate) fn cluster_config(urls: Vec<String>, limits: Limits) -> Config {
    let mut config = config("", Share::Auto, limits);
    (config.routes[0].servers, config.routes[0].cluster) = (urls, true);
    config
}

pub(crate) async fn start(config: &Config) -> Running {
    let gateway = Gateway::start(config, &Activation::default()).await.expect("starts");
    let (mut unix, mut tcp, mut tls) = (None, None, None);
    for address in gateway.listening() {
        match address {
            Listen::Unix(path) => unix = Some(path),
            Listen::Tcp(addr) => tcp = Some(addr),
            Listen::Tls(addr) => tls = Some(addr),
            _ => {}
        }
    }
    Running { gateway, unix: unix.expect("a path"), tcp: tcp.expect("a port"), tls }
}

pub(crate) async fn gateway(url: &str, share: Share) -> Running {
    start(&config(url, share, Limits::default())).await
}

/// A gateway with other limits.
pub(crate) async fn in_front_of(url: &str, limits: impl FnOnce(&mut Limits)) -> Running {
    let mut chosen = Limits::default();
    limits(&mut chosen);
    start(&config(url, Share::Auto, chosen)).await
}

/// A gateway, and where its health is served.
pub(crate) async fn with_health(mut config: Config) -> (Running, std::net::SocketAddr) {
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    (running, addr)
}

/// The gateway's whole answer to a request over HTTP.
pub(crate) async fn get(addr: std::net::SocketAddr, path: &str) -> String {
    ask_over_http(addr, "GET", path).await
}

pub(crate) async fn ask_over_http(addr: std::net::SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(addr).await.expect("connects");
    stream.write_all(format!("{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.expect("open");
    let mut reply = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut reply)).await.expect("in time").expect("text");
    reply
}

/// Asks until the answer has this text, and returns it.
pub(crate) async fn until(addr: std::net::SocketAddr, path: &str, expected: &str) -> String {
    let answered = async {
        loop {
            let answer = get(addr, path).await;
            if answer.contains(expected) {
                return answer;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{path} does not show {expected:?}"))
}

/// Asks until `/health` has this status: an answer is kept for a second.
pub(crate) async fn until_health(addr: std::net::SocketAddr, status: &str) -> String {
    until(addr, "/health", &format!("HTTP/1.1 {status} ")).await
}

/// Asks until `/health` is 503 for this reason. On a busy machine another may come first: an attempt that takes longer than answers wait.
pub(crate) async fn until_unhealthy(addr: std::net::SocketAddr, reason: &str) {
    let answer = until(addr, "/health", reason).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

/// Lets time pass, on a runtime of one thread.
pub(crate) async fn advance(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

impl Running {
    /// A client on the Unix socket, or in a run over TLS an encrypted one.
    pub(crate) async fn client(&self) -> Client {
        if self.tls.is_some() { self.tcp_client().await } else { self.owner().await }
    }

    /// A client on the Unix socket in each case: it may see what the gateway shows, and the system keeps little for it.
    pub(crate) async fn owner(&self) -> Client {
        Client::new(UnixStream::connect(&self.unix).await.expect("connects"))
    }

    /// A client on the Unix socket of each route.
    pub(crate) async fn client_of_each_route(&self) -> Vec<Client> {
        let mut clients = Vec::new();
        for address in self.gateway.listening() {
            if let Listen::Unix(path) = address {
                clients.push(Client::new(UnixStream::connect(path).await.expect("connects")));
            }
        }
        clients
    }

    /// A client on the TCP port, or in a run over TLS an encrypted one.
    pub(crate) async fn tcp_client(&self) -> Client {
        let connect = async |addr| AnyStream::Tcp(TcpStream::connect(addr).await.expect("connects"));
        Client::new(match self.tls {
            None => connect(self.tcp).await,
            Some(addr) => {
                let connector = TlsConnector::new(ClientTls::default());
                connector.connect("127.0.0.1", connect(addr).await).await.expect("encrypts")
            }
        })
    }

    /// A number from INFO gateway.
    pub(crate) async fn info(&self, name: &str) -> u64 {
        self.owner().await.info(name).await
    }

    /// Waits until a number of INFO gateway is as expected.
    pub(crate) async fn until(&self, name: &str, expected: impl Fn(u64) -> bool) {
        let reached = async {
            while !expected(self.info(name).await) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached)
            .await
            .unwrap_or_else(|_| panic!("{name} does not become what it should be"));
    }
}

pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Io for S {}

/// A client that speaks RESP.
pub(crate) struct Client {
    pub(crate) stream: Box<dyn Io>,
    decoder: Decoder,
}

impl Client {
    pub(crate) fn new(stream: impl Io + 'static) -> Self {
        // RESP3's decoder does not take RESP2's nulls: see `hello3`.
        Self { stream: Box::new(stream), decoder: Decoder::new(Protocol::Resp2) }
    }

    /// Sends bytes.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream_send(bytes.as_ref()).await.expect("open");
    }

    /// Sends bytes. `None` if the connection is closed.
    pub(crate) async fn stream_send(&mut self, bytes: &[u8]) -> Option<()> {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(PATIENCE, sent).await.expect("in time").ok()
    }

    /// Sends the words of a line as one command.
    pub(crate) async fn command(&mut self, line: &str) {
        self.send(encode(line.split(' '))).await;
    }

    /// The next reply or message. `None` at the end.
    pub(crate) async fn try_reply(&mut self) -> Option<Value> {
        loop {
            if let Some(value) = self.decoder.next().expect("RESP") {
                return Some(value);
            }
            let read = timeout(PATIENCE, self.stream.read_buf(self.decoder.room())).await.expect("in time");
            if read.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    pub(crate) async fn reply(&mut self) -> Value {
        self.try_reply().await.expect("a reply, not the end")
    }

    /// Sends a command and returns its reply.
    pub(crate) async fn call(&mut self, line: &str) -> Value {
        self.command(line).await;
        self.reply().await
    }

    /// Same, as text: `OK`, `(nil)`, `:1`, or an error.
    pub(crate) async fn say(&mut self, line: &str) -> String {
        text(&self.call(line).await)
    }

    /// A number from INFO gateway.
    pub(crate) async fn info(&mut self, name: &str) -> u64 {
        let text = self.say("INFO gateway").await;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    /// Changes to RESP3.
    pub(crate) async fn hello3(&mut self, rest: &str) -> Value {
        self.decoder = Decoder::new(Protocol::Resp3);
        self.call(&format!("HELLO 3{rest}")).await
    }

    /// Exactly these bytes come next.
    pub(crate) async fn expect_bytes(&mut self, expected: &[u8]) {
        let mut received = vec![0; expected.len()];
        timeout(PATIENCE, self.stream.read_exact(&mut received)).await.expect("in time").expect("open");
        assert_eq!(received.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    /// Nothing comes any more.
    pub(crate) async fn expect_end(&mut self) {
        let mut rest = Vec::new();
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("in time");
        assert!(read.is_err() || rest.is_empty(), "{}", rest.escape_ascii());
    }
}

/// A reply as text.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::Nil => "(nil)".to_owned(),
        Value::Int(number) => format!(":{number}"),
        Value::Error(error) => format!("-{error}"),
        Value::Array(items) | Value::Push(items) | Value::Set(items) => {
            format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(" "))
        }
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, value)| format!("{}={}", text(key), text(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(" "))
        }
        other => String::from_utf8_lossy(other.as_bytes().unwrap_or_default()).into_owned(),
    }
}

/// Encodes a command.
pub(crate) fn encode<W: AsRef<[u8]>>(words: impl IntoIterator<Item = W>) -> Vec<u8> {
    let words: Vec<W> = words.into_iter().collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in &words {
        bytes.extend_from_slice(format!("${}\r\n", word.as_ref().len()).as_bytes());
        bytes.extend_from_slice(word.as_ref());
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
