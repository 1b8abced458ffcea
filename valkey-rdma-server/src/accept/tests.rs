#[cfg(feature = "tls")]
mod encrypted;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use valkey_rdma_transport::TransportError;

use super::*;
use crate::listener::{AcceptError, Socket};
use crate::registry::Registry;
use crate::{Command, Reply};

/// Answers every command with `PONG`.
struct Pong;

impl Handler for Pong {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), _command: Command) -> Result<Reply, Reply> {
        Ok(Reply::simple("PONG"))
    }
}

/// A server without a listener: the test brings the clients.
struct Door {
    shared: Arc<Shared<Pong>>,
    connections: JoinSet<()>,
    tls: Option<TlsAcceptor>,
}

impl Door {
    fn new(limits: &Limits) -> Self {
        Self { shared: Arc::new(shared(limits.clone())), connections: JoinSet::new(), tls: None }
    }

    /// Connects a client.
    fn open(&mut self) -> DuplexStream {
        let (client, stream) = duplex(4096);
        self.admit(stream);
        client
    }

    fn admit<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&mut self, stream: S) {
        let Some(admission) = self.shared.admission() else { return };
        let tls = self.tls.clone();
        admit(accepted(stream), None, admission, Transport::Tcp, tls, &self.shared, &mut self.connections);
    }
}

fn shared(limits: Limits) -> Shared<Pong> {
    let (workers, _) = Workers::start(0).expect("nothing to start");
    let (at_end, _) = tokio::sync::oneshot::channel();
    Shared::new(Arc::new(Pong), limits, None, CancellationToken::new(), workers, at_end)
}

fn accepted<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S) -> Accepted {
    Accepted { stream: AnyStream::Other(Box::new(stream)), remote: nowhere(), local: nowhere(), rdma: None }
}

fn nowhere() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

fn failed(code: i32) -> AcceptError {
    AcceptError::of_tcp(io::Error::from_raw_os_error(code))
}

fn ended() -> AcceptError {
    TransportError::Closed.into()
}

fn accepting(accepts: Vec<Result<Accepted, AcceptError>>) -> impl Future<Output = ()> {
    let listener = Socket::Scripted(accepts).into_listener(None, false);
    let registration = Registry::default().add(listener.listening(), CancellationToken::new(), None);
    accept_until_closed(listener, Arc::new(shared(Limits::default())), registration)
}

async fn all_from(client: &mut DuplexStream) -> String {
    let mut all = String::new();
    client.read_to_string(&mut all).await.unwrap();
    all
}

const FULL: &str = "-ERR max number of clients reached\r\n";

#[tokio::test(start_paused = true)]
async fn only_some_are_refused_with_a_reply_at_once() {
    let mut door = Door::new(&Limits::default().max_connections(0));
    let mut refused: Vec<_> = (0..REFUSED_AT_ONCE).map(|_| door.open()).collect();
    assert_eq!(all_from(&mut door.open()).await, "");
    for client in &mut refused {
        assert_eq!(all_from(client).await, FULL);
    }
    // Whether they leave or not, others are refused with a reply after a while.
    while door.connections.join_next().await.is_some() {}
    assert_eq!(all_from(&mut door.open()).await, FULL);
}

#[tokio::test]
async fn a_refused_client_may_finish_sending() {
    let mut door = Door::new(&Limits::default().max_connections(0));
    let mut client = door.open();
    assert_eq!(all_from(&mut client).await, FULL);
    client.write_all(&b"PING\r\n".repeat(10_000)).await.unwrap();
}

/// A stream whose shutdown takes until the test says so, as it does on a device.
struct SlowToClose {
    stream: DuplexStream,
    closing: Arc<Notify>,
    closed: oneshot::Receiver<()>,
}

impl AsyncRead for SlowToClose {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for SlowToClose {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closing.notify_one();
        Pin::new(&mut self.closed).poll(cx).map(|_| Ok(()))
    }
}

#[tokio::test]
async fn a_connection_counts_until_its_stream_is_closed() {
    for (input, why) in [("QUIT\r\n", "it leaves"), ("PING PING PING", "it sent more than it may")] {
        let mut door = Door::new(&Limits::default().max_connections(1).input_limit(10));
        let (mut client, stream) = duplex(4096);
        let closing = Arc::new(Notify::new());
        let (close, closed) = oneshot::channel();
        door.admit(SlowToClose { stream, closing: closing.clone(), closed });
        client.write_all(input.as_bytes()).await.unwrap();
        timeout(PATIENCE, closing.notified()).await.expect(why);
        assert_eq!(door.shared.free.available_permits(), 0, "{why}");
        drop(client);
        close.send(()).unwrap();
        door.connections.join_next().await.unwrap().unwrap();
        assert_eq!(door.shared.free.available_permits(), 1, "{why}");
    }
}

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_client_that_vanished_does_not_keep_the_next_one_waiting() {
    for (error, keeps) in [(CONNECTION_ABORTED, false), (TOO_MANY_FILES, true)] {
        let accepts = vec![Ok(accepted(duplex(1).0)), Err(failed(error))];
        let mut listener = Socket::Scripted(accepts).into_listener(None, false);
        let shared = shared(Limits::default());
        let mut next = pin!(accept(&mut listener, &shared));
        assert_eq!(next.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), keeps);
    }
}

#[tokio::test(start_paused = true)]
async fn a_shortage_is_logged_once_a_minute() {
    let monitor = Monitor::default();
    let mut logged = 0;
    for _ in 0..601 {
        logged += u32::from(monitor.refusals().shortage_is_news(Instant::now()));
        tokio::time::advance(ACCEPT_PAUSE).await;
    }
    assert_eq!(logged, 2);
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_has_ended_is_not_called_again_and_its_connections_go_on() {
    let (mut client, stream) = duplex(4096);
    let accepting = tokio::spawn(accepting(vec![Err(ended()), Ok(accepted(stream))]));
    // Time passes only when all tasks wait: after this the listener has ended.
    tokio::time::sleep(ACCEPT_PAUSE * 10).await;
    client.write_all(b"PING\r\n").await.unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    drop(client);
    timeout(PATIENCE, accepting).await.expect("no connection is left").expect("no panic");
}

/// It gives back what was missing. Each end of a connection allows one accept, so a shortage does not keep the listener busy.
#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_cuts_the_pause_after_a_shortage_short() {
    let (leaves, first) = duplex(4096);
    let (mut waits, second) = duplex(4096);
    let accepts = vec![Err(ended()), Ok(accepted(second)), Err(failed(TOO_MANY_FILES)), Ok(accepted(first))];
    let begin = Instant::now();
    tokio::spawn(accepting(accepts));
    drop(leaves);
    waits.write_all(b"PING\r\n").await.unwrap();
    waits.read_exact(&mut [0; 7]).await.unwrap();
    assert_eq!(begin.elapsed(), Duration::ZERO, "before the pause is over");
}

// Linux's numbers of EMFILE and ECONNABORTED.
const TOO_MANY_FILES: i32 = 24;
const CONNECTION_ABORTED: i32 = 103;
