//! A server on threads of its own.

mod support;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, Barrier, Mutex, Weak, mpsc};
use std::thread;
use std::time::Duration;

use support::{Wire, localhost, until, within};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use valkey_rdma_server::{
    Command, DeviceKind, Handler, Limits, Peer, Reply, Server, TransportConfig, handler_fn,
};

/// `MEET` waits on its thread until two do so, `SPAWN` starts tasks that never end; every command is answered with the name of
/// its thread.
struct Threads(Barrier);

impl Handler for Threads {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("MEET") {
            self.0.wait();
        }
        if command.is("SPAWN") {
            for _ in 0..10 {
                tokio::spawn(std::future::pending::<()>());
            }
        }
        Ok(Reply::simple(thread::current().name().unwrap_or_default().to_owned()))
    }
}

async fn serve(count: usize) -> (Server, Weak<Threads>) {
    let handler = Arc::new(Threads(Barrier::new(2)));
    let alive = Arc::downgrade(&handler);
    let server = Server::builder(handler)
        .tcp(localhost())
        .rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default())
        .threads(count)
        .start()
        .await
        .expect("the addresses are free");
    (server, alive)
}

#[tokio::test]
async fn connections_are_spread_evenly_and_stay_on_their_threads() {
    let (server, alive) = serve(2).await;
    // Kept: a connection counts until its task has ended.
    let mut wires = Vec::new();
    for listening in server.listening() {
        let mut threads: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..4 {
            let mut wire = Wire::connect(&listening).await;
            wire.send("WHERE\r\n").await;
            let thread = wire.line().await;
            for _ in 0..10 {
                wire.send("WHERE\r\n").await;
                assert_eq!(wire.line().await, thread);
            }
            *threads.entry(thread).or_default() += 1;
            wires.push(wire);
        }
        let expected = [("+valkey-server-1".to_owned(), 2), ("+valkey-server-2".to_owned(), 2)];
        assert_eq!(threads, BTreeMap::from(expected));
    }
    within("the server stops", server.shutdown()).await;
    until("no thread holds the handler", async || alive.strong_count() == 0).await;
}

/// Connections count, and not the tasks that a handler starts.
#[tokio::test]
async fn a_thread_with_many_tasks_gets_its_share_of_connections() {
    let (server, _) = serve(2).await;
    let listening = server.listening()[0];
    let mut wires = Vec::new();
    for expected in ["+valkey-server-1", "+valkey-server-2", "+valkey-server-1", "+valkey-server-2"] {
        let mut wire = Wire::connect(&listening).await;
        wire.send("SPAWN\r\n").await;
        assert_eq!(wire.line().await, expected);
        // The next one's tasks are fewer.
        if expected == "+valkey-server-1" {
            wire.send("SPAWN\r\n").await;
            assert_eq!(wire.line().await, expected);
        }
        wires.push(wire);
    }
    drop(wires);
}

#[tokio::test]
async fn commands_of_two_threads_run_at_the_same_time() {
    for transport in 0..2 {
        let (server, _) = serve(2).await;
        let listening = server.listening()[transport];
        // The first `MEET` blocks its thread, so both are connected before.
        let mut wires = Vec::new();
        for _ in 0..2 {
            let mut wire = Wire::connect(&listening).await;
            wire.send("WHERE\r\n").await;
            wire.line().await;
            wires.push(wire);
        }
        let mut meeting = JoinSet::new();
        for mut wire in wires {
            meeting.spawn(async move {
                wire.send("MEET\r\n").await;
                wire.line().await
            });
        }
        within("they meet", meeting.join_all()).await;
    }
}

#[tokio::test]
async fn dropping_the_server_cuts_connections_on_every_thread() {
    let (server, alive) = serve(3).await;
    let mut wires = Vec::new();
    for listening in server.listening().repeat(3) {
        let mut wire = Wire::connect(&listening).await;
        wire.dialogue(&[("PING", "+PONG\r\n")]).await;
        wires.push(wire);
    }
    drop(server);
    for wire in &mut wires {
        wire.expect_end().await;
    }
    until("no thread holds the handler", async || alive.strong_count() == 0).await;
}

/// Each thread that has run a command holds a clone until it ends.
struct Held(Arc<()>);

thread_local! {
    static HELD: Cell<Option<Arc<()>>> = const { Cell::new(None) };
}

impl Handler for Held {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), _command: Command) -> Result<Reply, Reply> {
        HELD.set(Some(self.0.clone()));
        Ok(Reply::OK)
    }
}

#[tokio::test]
async fn shutdown_returns_after_the_threads_have_ended() {
    let held = Arc::new(());
    let server = Server::builder(Held(held.clone())).tcp(localhost()).threads(3).start().await;
    let server = server.expect("a free port");
    let mut wires = Vec::new();
    for listening in server.listening().repeat(3) {
        let mut wire = Wire::connect(&listening).await;
        wire.dialogue(&[("HOLD", "+OK")]).await;
        wires.push(wire);
    }
    assert_eq!(Arc::strong_count(&held), 5, "ours, the handler's, and one for each thread");
    drop(wires);
    within("the server stops", server.shutdown()).await;
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn a_handler_that_blocks_its_thread_delays_shutdown_once() {
    let begun = Arc::new(Notify::new());
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    let handler = handler_fn({
        let begun = begun.clone();
        move |_command| {
            begun.notify_one();
            // Until the test has ended.
            let _ = blocked.lock().unwrap().recv();
            async { Ok(Reply::OK) }
        }
    });
    let limit = Duration::from_secs(30);
    let limits = Limits::default().drain_timeout(limit);
    let server = Server::builder(handler).tcp(localhost()).threads(1).limits(limits).start().await.unwrap();
    let mut wire = Wire::connect(&server.listening()[0]).await;
    wire.send("BLOCK\r\n").await;
    within("the handler blocks", begun.notified()).await;
    // From here on the test's clock shows what the server waits for, and not how long it takes.
    tokio::time::pause();
    let begin = Instant::now();
    server.shutdown().await;
    assert!((limit..limit * 3 / 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    drop(release);
}
