//! The steps of a connect, each with its time: resolve, route, connect, register, hello.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use valkey_rdma_client::{Client, Endpoint, Error, Transport};
use valkey_rdma_program::error_chain;
use valkey_rdma_transport::address::{self, AddressError};
use valkey_rdma_transport::{Config, DeviceKind, Info, Stream, TransportError, device};

use super::observed::Observed;
use crate::report::{Finding, Section};

/// The steps that were taken, and what came of each.
pub(super) struct Steps {
    pub(super) section: Section,
    /// The step in progress, and since when.
    current: (&'static str, Instant),
}

/// A client that is logged in.
pub(super) struct Connected {
    pub(super) client: Client,
    /// Of an RDMA or emulated connection.
    pub(super) info: Option<Info>,
}

/// A connection without a login.
enum Reached {
    Tcp(TcpStream),
    Device(Box<Stream>),
}

impl Reached {
    fn info(&self) -> Option<Info> {
        match self {
            Self::Tcp(_) => None,
            Self::Device(stream) => Some(stream.info()),
        }
    }
}

impl Steps {
    pub(super) fn new(endpoint: &Endpoint) -> Self {
        Self::about(endpoint.to_string())
    }

    pub(super) fn about(server: String) -> Self {
        let section = Section::about("server", server);
        Self { section, current: ("resolve", Instant::now()) }
    }

    pub(super) fn begin(&mut self, step: &'static str) {
        self.current = (step, Instant::now());
    }

    /// The current step has worked.
    pub(super) fn done(&mut self, value: impl AsRef<str>) {
        self.done_at(Instant::now(), value);
    }

    fn done_at(&mut self, end: Instant, value: impl AsRef<str>) {
        let (step, begun) = self.current;
        let took = end.saturating_duration_since(begun);
        let value = value.as_ref();
        let space = if value.is_empty() { "" } else { " " };
        self.section.push(Finding::ok(step, format!("{value}{space}in {}", ms(took))));
    }

    /// The current step has failed.
    pub(super) fn failed(&mut self, error: &str, remedies: &[&str]) {
        let (step, begun) = self.current;
        let finding = Finding::problem(step, format!("after {}: {error}", ms(begun.elapsed())));
        self.section.push(remedies.iter().fold(finding, |finding, step| finding.remedy(*step)));
    }

    /// The time for all steps is over.
    pub(super) fn give_up(&mut self, endpoint: &Endpoint, limit: Duration) {
        self.no_answer(endpoint, &format!("no answer within the {} of `timeout=`", ms(limit)));
    }

    /// An address did not answer in its time.
    fn silent(&mut self, endpoint: &Endpoint, address: SocketAddr, share: Duration) {
        let text = format!("{address}: no answer within {}, its share of `timeout=`", ms(share));
        self.no_answer(endpoint, &text);
    }

    fn no_answer(&mut self, endpoint: &Endpoint, text: &str) {
        let remedies = match self.current.0 {
            "resolve" => ["the name server does not answer: /etc/resolv.conf; or give the host's address"],
            "hello" | "register" => {
                ["the peer accepted and does not answer: is it a Valkey server, and not stopped?"]
            }
            "connect" if endpoint.transport() == Transport::Emulated => [ONLY_OURS],
            _ => [
                "check host, port, firewall (RoCE v2 is UDP port 4791) and that the server runs; or raise `timeout=`",
            ],
        };
        self.failed(text, &remedies);
    }

    /// Takes all steps, until `deadline` at most. `None`: one has failed.
    pub(super) async fn connect(&mut self, endpoint: &Endpoint, deadline: Instant) -> Option<Connected> {
        let Ok(addresses) = timeout_at(deadline, self.resolve(endpoint)).await else {
            self.give_up(endpoint, endpoint.timeout());
            return None;
        };
        self.try_addresses(endpoint, &addresses?, deadline).await
    }

    async fn try_addresses(
        &mut self,
        endpoint: &Endpoint,
        addresses: &[SocketAddr],
        deadline: Instant,
    ) -> Option<Connected> {
        // As the client does: each address has its share of the time, and only one that accepts is asked for a login.
        let mut stream = None;
        let mut last = addresses.len();
        for (address, share) in address::shares(addresses, deadline) {
            last -= 1;
            let before = self.section.findings.len();
            let reached = timeout(share, self.reach(endpoint, address)).await;
            stream = reached.unwrap_or_else(|_| {
                self.silent(endpoint, address, share);
                None
            });
            if stream.is_some() {
                break;
            }
            if last > 0 {
                // The next address may work.
                let tried = self.section.findings.drain(before..).map(Finding::at_most_a_warning);
                let tried: Vec<Finding> = tried.collect();
                self.section.findings.extend(tried);
            }
        }
        let info = stream.as_ref().and_then(Reached::info);
        let hello = async {
            match stream? {
                Reached::Tcp(stream) => self.hello(stream, endpoint).await,
                Reached::Device(stream) => self.hello(*stream, endpoint).await,
            }
        };
        let Ok(client) = timeout_at(deadline, hello).await else {
            self.give_up(endpoint, endpoint.timeout());
            return None;
        };
        Some(Connected { client: client?, info })
    }

    /// Connects to one address, without a login.
    async fn reach(&mut self, endpoint: &Endpoint, address: SocketAddr) -> Option<Reached> {
        match endpoint.transport() {
            Transport::Tcp => self.over_tcp(address).await,
            Transport::Rdma => self.over_device(endpoint, address, DeviceKind::Verbs).await,
            _ => self.over_device(endpoint, address, DeviceKind::Emulated).await,
        }
    }

    async fn resolve(&mut self, endpoint: &Endpoint) -> Option<Vec<SocketAddr>> {
        if let Some(Ok(address)) = address::literal(endpoint.host(), endpoint.port()) {
            return Some(vec![address]);
        }
        match address::resolve(endpoint.host(), endpoint.port()).await {
            Ok(addresses) => {
                let texts: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
                self.done(texts.join(", "));
                Some(addresses)
            }
            Err(error) if AddressError::within(&error).is_some() => {
                self.failed(&error_chain(&error), &[]);
                None
            }
            Err(error) => {
                self.failed(
                    &error_chain(&error),
                    &["check the name: `getent hosts NAME`; or give the host's address"],
                );
                None
            }
        }
    }

    async fn over_tcp(&mut self, address: SocketAddr) -> Option<Reached> {
        self.begin("connect");
        if let Err(error) = address::check_interface(address) {
            self.failed(&error.to_string(), &[]);
            return None;
        }
        let stream = match TcpStream::connect(address).await {
            Ok(stream) => stream,
            Err(error) => {
                let text = format!("{address}: {}", error_chain(&error));
                self.failed(&text, &["is the server running, and is this its host and port?"]);
                return None;
            }
        };
        // Without it the login would wait for an acknowledgement; it fails only on a closed socket.
        let _ = stream.set_nodelay(true);
        self.done(address.to_string());
        Some(Reached::Tcp(stream))
    }

    async fn over_device(
        &mut self,
        endpoint: &Endpoint,
        address: SocketAddr,
        kind: DeviceKind,
    ) -> Option<Reached> {
        self.begin("route");
        let config: Config = endpoint.transport_config().connect_timeout(endpoint.timeout());
        let device = match device::open(kind, address, &config.device_options()).await {
            Ok(device) => device,
            Err(error) => {
                self.failed(
                    &error_chain(&error),
                    &["run `valkey-rdma-doctor` here: it examines this machine"],
                );
                return None;
            }
        };
        let over = device.device();
        let mtu = over.mtu.map(|mtu| format!(", MTU {mtu}")).unwrap_or_default();
        self.done(format!("{address} from {} over {}{mtu},", device.local_addr().ip(), over.name));

        self.begin("connect");
        let established = Arc::new(OnceLock::new());
        let observed = Box::new(Observed::new(device, established.clone()));
        let stream = Stream::connect_over(observed, &config).await;
        if let Some(&at) = established.get() {
            self.done_at(at, "");
            self.current = ("register", at);
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                self.failed(&error_chain(&error), remedies(&error, kind));
                return None;
            }
        };
        let info = stream.info();
        self.done(format!("the server offers a window of {} bytes", info.peer_window));
        Some(Reached::Device(Box::new(stream)))
    }

    pub(super) async fn hello<S>(&mut self, stream: S, endpoint: &Endpoint) -> Option<Client>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        self.begin("hello");
        match Client::from_stream(stream, endpoint).await {
            Ok(client) => {
                self.done(client.info().protocol.to_string());
                Some(client)
            }
            Err(error) => {
                self.failed(&cause_of(&error), &[]);
                None
            }
        }
    }
}

/// Why a connection does not work, without its address: the report has that already, and for a Unix socket the client has none.
pub(super) fn cause_of(error: &Error) -> String {
    match error {
        Error::Connect(error) => error.cause().to_string(),
        Error::Lost(lost) => error_chain(lost.cause()),
        other => error_chain(other),
    }
}

impl Connected {
    /// The windows of the connection.
    pub(super) fn windows(&self) -> Option<Finding> {
        let info = self.info.as_ref()?;
        let (ours, count, theirs) = (info.window, info.windows, info.peer_window);
        let value = format!("{count} of {ours} bytes here, {theirs} bytes at the server");
        Some(Finding::ok("windows", value))
    }
}

/// Other servers may listen there and never answer.
const ONLY_OURS: &str =
    "only this project's servers answer emulated://, such as `valkey-rdma-mock --device emulated`";

/// What to do about an error whose own text does not say enough.
fn remedies(error: &TransportError, kind: DeviceKind) -> &'static [&'static str] {
    match error {
        TransportError::Refused { .. } | TransportError::ConnectTimeout { .. }
            if kind == DeviceKind::Emulated =>
        {
            &[ONLY_OURS]
        }
        TransportError::Refused { .. } => &[
            "start the server with `--rdma-bind ADDRESS --rdma-port PORT`, where ADDRESS is of one of its RDMA devices",
            "(in a module build also `--loadmodule /ABSOLUTE/PATH/valkey-rdma.so`)",
        ],
        TransportError::Unreachable { .. } => {
            &["on both machines: `valkey-rdma-doctor`; then `listen` on one and `check` on the other"]
        }
        _ => &[],
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;
    use valkey_rdma_mock::{Mock, Server};

    use super::*;
    use crate::report::Verdict;

    /// An address that drops what it receives: the queue of its listener is full.
    async fn silent_address() -> (tokio::net::TcpListener, Vec<std::net::TcpStream>) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("bound");
        let listener = socket.listen(1).expect("it listens");
        let address = listener.local_addr().expect("an address");
        let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300));
        // The first attempt that gets no answer shows that the queue is full.
        let waiting = std::iter::from_fn(|| connect().ok()).collect();
        (listener, waiting)
    }

    /// Before, the first address of a name used up the time of all.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next_one() {
        let server =
            Server::builder(Mock::new()).tcp(([127, 0, 0, 1], 0).into()).start().await.expect("a server");
        let (listener, _waiting) = silent_address().await;
        let silent = listener.local_addr().expect("an address");
        let endpoint: Endpoint = "valkey://store?timeout=3s".parse().expect("a URL");
        let mut steps = Steps::new(&endpoint);
        let deadline = Instant::now() + endpoint.timeout();
        let addresses = [silent, server.listening()[0].addr];
        let connected = steps.try_addresses(&endpoint, &addresses, deadline).await;
        assert!(connected.is_some(), "{:#?}", steps.section);
        let found: Vec<_> =
            steps.section.findings.iter().map(|finding| (&finding.id[..], finding.verdict)).collect();
        assert_eq!(found, [("connect", Verdict::Warning), ("connect", Verdict::Ok), ("hello", Verdict::Ok)]);
        assert!(steps.section.findings[0].value.contains("its share of `timeout=`"), "{:#?}", steps.section);
    }
}
