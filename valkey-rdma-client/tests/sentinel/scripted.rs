//! Sentinels that say what a test wants, and a primary with a replica.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{sleep, timeout};
use valkey_rdma_mock::{DeviceKind, MockCluster, Server, ServerTls, Transports};
use valkey_rdma_server::{Address, Command, Handler, Peer, Pusher, Reply, answer_basic};

use super::PATIENCE;

/// A primary, node 0, and its replica, node 1.
pub(crate) struct Pair {
    pub(crate) cluster: MockCluster,
}

impl Pair {
    pub(crate) async fn start() -> Self {
        let both = Transports::Both(DeviceKind::Emulated);
        let cluster = MockCluster::builder(1).replicas(1).transports(both).start().await.expect("started");
        Self { cluster }
    }

    /// The address of a node, as a Sentinel would be asked to report it: that of the emulated device.
    pub(crate) fn address(&self, node: usize) -> (String, u16) {
        let url = self.cluster.url(node);
        let (host, port) =
            url.rsplit('/').next().and_then(|address| address.split_once(':')).expect("host and port");
        (host.to_owned(), port.parse().expect("a port"))
    }

    /// A Sentinel that reports this node.
    pub(crate) async fn sentinel(&self, node: usize) -> Sentinel {
        Sentinel::start(Script::Reports(self.address(node))).await
    }
}

/// The folder with the certificates of all mocks, if the environment asks for TLS: see `MockServer`.
pub(crate) fn certificates() -> Option<PathBuf> {
    std::env::var_os("VALKEY_RDMA_MOCK_TLS").map(PathBuf::from)
}

/// The scheme of a service on the emulated device.
pub(crate) fn scheme() -> &'static str {
    if certificates().is_some() { "emulateds+sentinel" } else { "emulated+sentinel" }
}

/// What a Sentinel answers.
#[derive(Clone)]
pub(crate) enum Script {
    Reports((String, u16)),
    /// As `Reports`, later than others.
    Slow((String, u16)),
    Garbage,
    /// It requires a password.
    Guarded,
}

pub(crate) struct Sentinel {
    /// `host:port`
    pub(crate) address: String,
    state: Arc<State>,
    _server: Server,
}

struct State {
    script: Mutex<Script>,
    listeners: Mutex<Vec<Pusher>>,
    asked: Mutex<usize>,
    pings: AtomicUsize,
    /// Of the connections so far: set when they are to get no more answers.
    frozen: Mutex<Arc<AtomicBool>>,
}

impl Sentinel {
    pub(crate) async fn start(script: Script) -> Self {
        let password = matches!(script, Script::Guarded).then_some("watch");
        let state = Arc::new(State {
            script: Mutex::new(script),
            listeners: Mutex::default(),
            asked: Mutex::default(),
            pings: AtomicUsize::default(),
            frozen: Mutex::default(),
        });
        let any_port = Address::tcp("127.0.0.1:0".parse().expect("an address"));
        let builder = Server::builder(state.clone()).listen(match certificates() {
            Some(folder) => {
                any_port.tls(ServerTls::new(folder.join("server.crt"), folder.join("server.key")))
            }
            None => any_port,
        });
        let builder = match password {
            Some(password) => builder.password(password),
            None => builder,
        };
        let server = builder.start().await.expect("started");
        let address = server.listening()[0].addr.to_string();
        Self { address, state, _server: server }
    }

    pub(crate) fn report(&self, address: (String, u16)) {
        *self.state.script.lock().expect("no panic") = Script::Reports(address);
    }

    /// Sends `+switch-master`.
    pub(crate) fn announce(&self) {
        for listener in &*self.state.listeners.lock().expect("no panic") {
            let message = ["message", "+switch-master", "mymaster 127.0.0.1 1 127.0.0.1 2"];
            listener.push(Reply::Push(message.map(Reply::bulk).to_vec()));
        }
    }

    /// Ends the subscriptions. The client makes new ones.
    pub(crate) fn hang_up(&self) {
        self.state.listeners.lock().expect("no panic").drain(..).for_each(|listener| listener.close());
    }

    /// Answers nothing any more on the connections so far, and keeps them open.
    pub(crate) fn freeze(&self) {
        let frozen = std::mem::take(&mut *self.state.frozen.lock().expect("no panic"));
        frozen.store(true, Ordering::Relaxed);
    }

    /// How often a client has subscribed.
    pub(crate) fn listeners(&self) -> usize {
        self.state.listeners.lock().expect("no panic").len()
    }

    /// How many PINGs it has answered.
    pub(crate) fn pings(&self) -> usize {
        self.state.pings.load(Ordering::Relaxed)
    }

    /// How often it was asked for the primary.
    pub(crate) fn asked(&self) -> usize {
        *self.state.asked.lock().expect("no panic")
    }

    /// Waits for this many listeners, and until each has asked what it may have missed.
    pub(crate) async fn heard(&self, listeners: usize) {
        let heard = async {
            while self.state.listeners.lock().expect("no panic").len() < listeners
                || self.asked() < 1 + listeners
            {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, heard).await.expect("the client listens");
    }
}

impl Handler for State {
    /// True if it is frozen.
    type Session = Arc<AtomicBool>;

    fn session(&self, _: &Peer) -> Arc<AtomicBool> {
        self.frozen.lock().expect("no panic").clone()
    }

    fn basics(&self, peer: &mut Peer, frozen: &mut Arc<AtomicBool>, command: &Command) -> Option<Reply> {
        if frozen.load(Ordering::Relaxed) {
            return None;
        }
        self.pings.fetch_add(command.is("PING").into(), Ordering::Relaxed);
        answer_basic(peer, command)
    }

    async fn call(
        &self,
        peer: &mut Peer,
        frozen: &mut Arc<AtomicBool>,
        command: Command,
    ) -> Result<Reply, Reply> {
        if frozen.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if command.is("SUBSCRIBE") {
            let channel = Reply::Bulk(command.args()[0].clone());
            self.listeners.lock().expect("no panic").push(peer.pusher());
            return Ok(Reply::Push(vec![Reply::bulk("subscribe"), channel, Reply::Integer(1)]));
        }
        if !command.is("SENTINEL") {
            return Err(command.unknown());
        }
        *self.asked.lock().expect("no panic") += 1;
        let script = self.script.lock().expect("no panic").clone();
        if let Script::Slow(_) = script {
            sleep(Duration::from_millis(50)).await;
        }
        Ok(match script {
            _ if command.args()[1] != "mymaster" => Reply::NullArray,
            Script::Reports((host, port)) | Script::Slow((host, port)) => {
                Reply::Array(vec![Reply::bulk(host), Reply::bulk(port.to_string())])
            }
            // Its callers never get here: they lack the password.
            Script::Guarded => Reply::NullArray,
            Script::Garbage => Reply::Array(vec![Reply::bulk("127.0.0.1"), Reply::bulk("none")]),
        })
    }
}
