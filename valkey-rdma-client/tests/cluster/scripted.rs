//! A cluster of one node that confirms subscriptions when a test says so.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tokio::sync::watch;
use tokio::time::timeout;
use valkey_rdma_mock::Server;
use valkey_rdma_server::{Command, Handler, Peer, Pusher, Reply, answer_basic};

use crate::target::PATIENCE;

/// The node, which has all slots.
pub(crate) struct Node {
    state: Arc<State>,
    _server: Server,
}

#[derive(Default)]
struct State {
    address: OnceLock<SocketAddr>,
    /// The connections with subscriptions, by the number of their peer.
    subscribers: Mutex<HashMap<u64, Pusher>>,
    /// Commands that wait until they are no longer in it.
    held: watch::Sender<HashSet<&'static str>>,
    /// The subscribing commands that have come, with their names.
    orders: watch::Sender<Vec<String>>,
    refuses_logins: AtomicBool,
}

impl Node {
    pub(crate) async fn start() -> Self {
        let state = Arc::new(State::default());
        let any_port = "127.0.0.1:0".parse().expect("an address");
        let server = Server::builder(state.clone()).tcp(any_port).start().await.expect("started");
        state.address.set(server.listening()[0].addr).expect("set once");
        Self { state, _server: server }
    }

    pub(crate) fn url(&self) -> String {
        format!("valkey://{}?timeout={}s", self.state.address(), PATIENCE.as_secs())
    }

    /// Leaves commands of this name without a confirmation.
    pub(crate) fn hold(&self, command: &'static str) {
        self.state.held.send_modify(|held| {
            held.insert(command);
        });
    }

    /// Confirms them.
    pub(crate) fn release(&self, command: &'static str) {
        self.state.held.send_modify(|held| {
            held.remove(command);
        });
    }

    /// Waits until this command has come for the `count`th time.
    pub(crate) async fn ordered(&self, order: &str, count: usize) {
        let mut orders = self.state.orders.subscribe();
        let came = orders.wait_for(|orders| orders.iter().filter(|known| *known == order).count() >= count);
        timeout(PATIENCE, came).await.expect("it comes").expect("the node lives");
    }

    /// All subscribing commands that have come.
    pub(crate) fn orders(&self) -> Vec<String> {
        self.state.orders.borrow().clone()
    }

    /// Sends a message to each connection with subscriptions.
    pub(crate) fn publish(&self, channel: &str, payload: &str) {
        for subscriber in self.state.subscribers.lock().expect("no panic").values() {
            let message = ["message", channel, payload];
            subscriber.push(Reply::Push(message.map(|word| Reply::bulk(word.to_owned())).to_vec()));
        }
    }

    /// Ends the connections with subscriptions.
    pub(crate) fn hang_up(&self) {
        self.state.subscribers.lock().expect("no panic").drain().for_each(|(_, pusher)| pusher.close());
    }

    pub(crate) fn refuse_logins(&self, refuse: bool) {
        self.state.refuses_logins.store(refuse, Ordering::Relaxed);
    }
}

impl State {
    fn address(&self) -> SocketAddr {
        *self.address.get().expect("listens")
    }
}

impl Handler for State {
    type Session = ();

    fn session(&self, _: &Peer) {}

    fn basics(&self, peer: &mut Peer, (): &mut (), command: &Command) -> Option<Reply> {
        if command.is("HELLO") && self.refuses_logins.load(Ordering::Relaxed) {
            return Some(Reply::error("WRONGPASS invalid username-password pair or user is disabled."));
        }
        answer_basic(peer, command)
    }

    async fn call(&self, peer: &mut Peer, (): &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("CLUSTER") {
            let address = self.address();
            let (host, port) = (Reply::bulk(address.ip().to_string()), Reply::Integer(address.port().into()));
            let node =
                Reply::Array(vec![host, port, Reply::bulk("0123456789012345678901234567890123456789")]);
            let slots = Reply::Array(vec![Reply::Integer(0), Reply::Integer(16383), node]);
            return Ok(Reply::Array(vec![slots]));
        }
        let verb = String::from_utf8_lossy(command.name()).to_ascii_lowercase();
        if !verb.ends_with("subscribe") {
            return Err(command.unknown());
        }
        let names: Vec<_> =
            command.args().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        if !verb.contains("unsub") {
            self.subscribers.lock().expect("no panic").insert(peer.id(), peer.pusher());
        }
        self.orders.send_modify(|orders| orders.push(format!("{verb} {}", names.join(" "))));
        let mut held = self.held.subscribe();
        held.wait_for(|held| !held.contains(&*verb)).await.expect("this lives");
        let confirm = |name: &String| {
            Reply::Push(vec![Reply::bulk(verb.clone()), Reply::bulk(name.clone()), Reply::Integer(1)])
        };
        let (last, others) = names.split_last().expect("a name");
        let pusher = peer.pusher();
        for name in others {
            pusher.push(confirm(name));
        }
        // What is pushed leaves before the reply if the connection sends it first.
        tokio::task::yield_now().await;
        Ok(confirm(last))
    }
}
