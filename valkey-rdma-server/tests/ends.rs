//! How connections and the server end: panics, shutdown, drop.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::{Wire, start, store, until, wires, within};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use valkey_rdma_server::{Command, Handler, Limits, Peer, Reply, Transport};

/// Waits in `WAIT` until `go`, and in `LISTEN` also until the server stops; panics in `PANIC`.
#[derive(Default)]
struct Moody {
    waiting: Notify,
    go: Notify,
    cancelled: AtomicBool,
}

impl Handler for Moody {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        assert!(!command.is("PANIC"), "as asked");
        if command.is("WAIT") {
            let on_drop = SetOnDrop(&self.cancelled);
            self.waiting.notify_one();
            self.go.notified().await;
            std::mem::forget(on_drop);
        }
        if command.is("LISTEN") {
            self.waiting.notify_one();
            tokio::select! {
                () = self.go.notified() => {}
                () = peer.stopping() => return Err(Reply::error("UNBLOCKED the server is shutting down")),
            }
        }
        Ok(Reply::OK)
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn a_panic_ends_only_its_own_connection() {
    let server = start(Arc::new(Moody::default()), &Limits::default()).await;
    for (mut unlucky, mut other) in wires(&server).await.into_iter().zip(wires(&server).await) {
        unlucky.send("PANIC\r\n").await;
        unlucky.expect_end().await;
        other.dialogue(&[("PING", "+PONG\r\n")]).await;
    }
}

#[tokio::test]
async fn shutdown_delivers_the_replies_of_running_commands() {
    let moody = Arc::new(Moody::default());
    let server = start(moody.clone(), &Limits::default()).await;
    let listening = server.listening();
    let mut wires = wires(&server).await;
    for wire in &mut wires {
        wire.send("WAIT\r\nPING\r\n").await;
        within("the command runs", moody.waiting.notified()).await;
    }
    let shutdown = tokio::spawn(server.shutdown());
    tokio::task::yield_now().await;
    assert!(!shutdown.is_finished());
    for wire in &mut wires {
        moody.go.notify_one();
        wire.expect("+OK\r\n+PONG\r\n").await;
        wire.expect_end().await;
    }
    drop(wires);
    within("the server stops", shutdown).await.unwrap();
    let tcp = listening.iter().find(|listening| listening.transport == Transport::Tcp).unwrap();
    assert!(TcpStream::connect(tcp.addr).await.is_err());
}

#[tokio::test]
async fn a_blocked_command_that_hears_of_the_stop_does_not_delay_it() {
    let moody = Arc::new(Moody::default());
    let server = start(moody.clone(), &Limits::default().drain_timeout(Duration::MAX)).await;
    let mut wires = wires(&server).await;
    for wire in &mut wires {
        wire.send("LISTEN\r\n").await;
        within("the command runs", moody.waiting.notified()).await;
    }
    let shutdown = tokio::spawn(server.shutdown());
    for wire in &mut wires {
        wire.expect("-UNBLOCKED the server is shutting down\r\n").await;
        wire.expect_end().await;
    }
    drop(wires);
    within("the server stops", shutdown).await.unwrap();
}

#[tokio::test]
async fn shutdown_cuts_what_takes_too_long() {
    let moody = Arc::new(Moody::default());
    let server = start(moody.clone(), &Limits::default().drain_timeout(Duration::from_millis(1))).await;
    let mut wire = Wire::connect(&server.listening()[0]).await;
    wire.send("WAIT\r\n").await;
    within("the command runs", moody.waiting.notified()).await;
    server.shutdown().await;
    assert!(moody.cancelled.load(Ordering::Relaxed));
    wire.expect_cut().await;
}

/// Counts its sessions, and never replies.
#[derive(Default)]
struct Silent(Arc<AtomicUsize>);

struct Counted(Arc<AtomicUsize>);

impl Handler for Silent {
    type Session = Counted;

    fn session(&self, _peer: &Peer) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.0.clone())
    }

    async fn call(&self, _: &mut Peer, _: &mut Counted, _: Command) -> Result<Reply, Reply> {
        std::future::pending().await
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A program may save its data then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_session_is_left_after_shutdown() {
    for _ in 0..10 {
        let handler = Silent::default();
        let sessions = handler.0.clone();
        let server = start(handler, &Limits::default().drain_timeout(Duration::ZERO)).await;
        let mut wires = Vec::new();
        for _ in 0..100 {
            wires.push(Wire::connect(&server.listening()[0]).await);
        }
        until("all are served", async || sessions.load(Ordering::Relaxed) == wires.len()).await;
        server.shutdown().await;
        assert_eq!(sessions.load(Ordering::Relaxed), 0);
    }
}

#[tokio::test]
async fn dropping_the_server_cuts_every_connection() {
    let server = store().await;
    let mut wires = wires(&server).await;
    for wire in &mut wires {
        wire.dialogue(&[("PING", "+PONG\r\n")]).await;
    }
    drop(server);
    for wire in &mut wires {
        wire.expect_cut().await;
    }
}
