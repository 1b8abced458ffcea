use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::{Instant, sleep, timeout};
use valkey_rdma_resp::Value;

use super::queue::SWEEP;
use crate::client::Client;
use crate::command::Command;
use crate::config::Config;
use crate::error::{Error, Fate};
use crate::events::ConnectionEvent;
use crate::link::driver::MAX_BATCHES_IN_FLIGHT;

mod another;
mod closing;
mod deadlines;
mod reconnecting;
mod renamed;

/// What a client sends to log in, and what it is answered.
pub(crate) const HELLO: &str = "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n";
const WELCOME: &[u8] = b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n";
/// The last command of a login.
pub(crate) const PROBE: &str = "*2\r\n$4\r\nPING\r\n$11\r\nvalkey-rdma\r\n";
pub(crate) const PING: &str = "*1\r\n$4\r\nPING\r\n";

/// Where a client's connections arrive, in order; refused while there is none to give.
#[derive(Clone, Default)]
pub(crate) struct Door {
    open: Arc<Mutex<Vec<DuplexStream>>>,
    tried: Arc<AtomicUsize>,
}

impl Door {
    /// Lets one connection in, and gives its far end.
    pub(crate) fn admit(&self) -> Peer {
        let (ours, peer) = duplex(4096);
        self.open.lock().expect("no panic").push(ours);
        Peer(peer)
    }

    /// How often a connection was asked for.
    pub(crate) fn tries(&self) -> usize {
        self.tried.load(Ordering::Relaxed)
    }

    pub(crate) async fn connect(&self, config: &Config) -> Client {
        self.connect_to("valkey://test:1", config).await
    }

    pub(crate) async fn connect_to(&self, url: &str, config: &Config) -> Client {
        let door = self.clone();
        let dialer = move || {
            door.tried.fetch_add(1, Ordering::Relaxed);
            let stream = door.open.lock().expect("no panic").pop();
            async move { stream.ok_or_else(|| io::ErrorKind::ConnectionRefused.into()) }
        };
        Client::connect_with_dialer(url, config, dialer).await.expect("connected")
    }
}

/// The server's end.
pub(crate) struct Peer<S = DuplexStream>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Peer<S> {
    pub(crate) async fn expect(&mut self, text: &str) {
        let mut received = vec![0; text.len()];
        self.0.read_exact(&mut received).await.expect("the client writes");
        assert_eq!(String::from_utf8_lossy(&received), text);
    }

    pub(crate) async fn say(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.expect("open");
    }

    /// Takes the login and answers it.
    pub(crate) async fn greet(&mut self) {
        self.expect(HELLO).await;
        let mut info = [0; 512];
        let mut len = 0;
        while !info[..len].ends_with(PROBE.as_bytes()) {
            len += self.0.read(&mut info[len..]).await.expect("the client writes");
        }
        self.say(WELCOME).await;
    }

    /// As [`greet`](Self::greet), for a client that comes back: it asks whether the server has its data.
    pub(crate) async fn greet_again(&mut self) {
        self.greet_again_with(b"+PONG\r\n").await;
    }

    /// As [`greet_again`](Self::greet_again), with this answer to the question.
    pub(crate) async fn greet_again_with(&mut self, answer: &[u8]) {
        self.greet().await;
        self.expect(PING).await;
        self.say(answer).await;
    }

    /// As [`greet_again`](Self::greet_again) if the client asks, which it does on connections that tasks share.
    pub(crate) async fn greet_any(&mut self) {
        self.greet().await;
        settle().await;
        let mut next = [0; PING.len()];
        self.0.read(&mut next).now_or_never();
        if next == PING.as_bytes() {
            self.say(b"+PONG\r\n").await;
        }
    }
}

pub(crate) async fn pair(config: &Config) -> (Client, Door, Peer) {
    let door = Door::default();
    let mut peer = door.admit();
    let (client, ()) = tokio::join!(door.connect(config), peer.greet());
    (client, door, peer)
}

fn start(client: &Client, command: Command) -> tokio::task::JoinHandle<Result<Value, Error>> {
    let client = client.clone();
    tokio::spawn(async move { client.command(command).await })
}

fn get(key: &str) -> Command {
    Command::new("GET").arg(key)
}

fn raw(key: &str) -> String {
    format!("*2\r\n$3\r\nGET\r\n$1\r\n{key}\r\n")
}

/// Lets every task run until none can go on.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
