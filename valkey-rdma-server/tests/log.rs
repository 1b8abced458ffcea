//! What the server logs: what an operator needs, once, and nothing that is not so.

mod support;

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use support::{Wire, localhost, start, until, wires};
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;
use valkey_rdma_server::{Command, Handler, Limits, Peer, Reply, Server};

/// What is logged on this thread, from `warn` on.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn begin() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::WARN)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("no test panics with it");
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no test panics with it").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Panics in `PANIC`, and in each session after the first `sessions`.
struct Fragile {
    sessions: usize,
    begun: AtomicUsize,
}

fn fragile(sessions: usize) -> Fragile {
    Fragile { sessions, begun: AtomicUsize::new(0) }
}

impl Handler for Fragile {
    type Session = ();

    fn session(&self, _peer: &Peer) {
        assert!(self.begun.fetch_add(1, Ordering::Relaxed) < self.sessions, "no session as asked");
    }

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        assert!(!command.is("PANIC"), "a command as asked");
        Ok(Reply::OK)
    }
}

#[tokio::test]
async fn a_panic_is_logged_once_with_its_connection_and_command_and_takes_no_earlier_reply() {
    let (log, _guard) = Log::begin();
    let server = start(fragile(6), &Limits::default()).await;
    for _ in 0..3 {
        for wire in &mut wires(&server).await {
            wire.send("SET z 1\r\nPANIC s3cret\r\nSET z 2\r\n").await;
            wire.expect("+OK\r\n").await;
            wire.expect_end().await;
        }
    }
    Wire::connect(&server.listening()[0]).await.rest_or_reset().await;
    until("all are counted", async || server.refused().panics == 7).await;
    let lines: Vec<_> = log.lines().into_iter().filter(|line| line.contains("panic")).collect();
    let [line] = &lines[..] else { panic!("{lines:#?}") };
    for part in ["ERROR", "connection{id=", "peer=127.0.0.1:", "command PANIC", "a command as asked"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("s3cret"), "{line}");
}

#[tokio::test]
async fn a_panic_at_the_start_of_a_session_is_logged_with_its_connection() {
    let (log, _guard) = Log::begin();
    let server = start(fragile(0), &Limits::default()).await;
    Wire::connect(&server.listening()[0]).await.rest_or_reset().await;
    until("it is counted", async || server.refused().panics == 1).await;
    let lines = log.lines();
    let is_logged = |line: &String| line.contains("connection{id=1 ") && line.contains("no session as asked");
    assert!(lines.iter().any(is_logged), "{lines:#?}");
}

/// The error of the start is what counts.
#[tokio::test]
async fn a_start_that_fails_does_not_report_the_end_of_its_listeners() {
    let (log, _guard) = Log::begin();
    let taken = TcpListener::bind(localhost()).await.unwrap();
    let builder = Server::builder(fragile(0)).tcp(localhost());
    builder.tcp(taken.local_addr().unwrap()).start().await.unwrap_err();
    assert_eq!(log.lines(), Vec::<String>::new());
}
