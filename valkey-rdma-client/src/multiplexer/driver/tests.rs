use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;
use valkey_rdma_resp::{Protocol, Value};

use super::*;
use crate::client::Client;
use crate::config::Config;
use crate::connection::Connector;
use crate::endpoint::{Endpoint, Transport};
use crate::error::Error;
use crate::events::{EventHub, EventReporter};
use crate::multiplexer::handle::Multiplexer;
use crate::multiplexer::submit::{BATCH_BYTES, BATCH_COMMANDS};
use crate::resp::Command;
use crate::stats::ConnectionInfo;
use valkey_rdma_transport::AnyStream;

mod ends;
mod exclusive;
mod yields;

/// Counts the writes that a stream is asked for and does not put off.
struct Counted<S> {
    stream: S,
    writes: Arc<AtomicUsize>,
    /// What happens to the third instead. A stream that has one is never done with its shutdown.
    third: Option<Write<S>>,
}

/// `poll_write` of a stream.
type Write<S> = fn(&mut S, &mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>;

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let Self { stream, writes, third } = &mut *self;
        if let Some(third) = third
            && writes.load(Ordering::Relaxed) == 2
        {
            writes.fetch_add(1, Ordering::Relaxed);
            return third(stream, cx, buf);
        }
        let written = ready!(Pin::new(stream).poll_write(cx, buf))?;
        writes.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.third.is_some() {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn info() -> ConnectionInfo {
    ConnectionInfo {
        transport: Transport::Tcp,
        peer: None,
        device: None,
        mtu: None,
        rx_window: None,
        tx_window: None,
        polling: None,
        adaptive_off: None,
        protocol: Protocol::Resp3,
        fallback: None,
    }
}

fn client(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Client {
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let raw = RawConnection::new(AnyStream::Other(Box::new(stream)), info(), None);
    let events = Arc::new(EventHub::new(1));
    let reporter = EventReporter::new(events.clone(), 0);
    let multiplexer = Multiplexer::start(raw, "test:1".into(), None, None, reporter);
    Client::assemble(vec![multiplexer], Arc::new(Connector::once(endpoint, Config::default())), events)
}

/// A client without handshake, its peer, and the count of its writes. `room` bytes fit between them each way.
fn connection(room: usize) -> (Client, DuplexStream, Arc<AtomicUsize>) {
    let (ours, peer) = duplex(room);
    let writes = Arc::new(AtomicUsize::new(0));
    let stream = Counted { stream: ours, writes: writes.clone(), third: None };
    (client(stream), peer, writes)
}

/// Lets every task run until none can go on.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

async fn expect(peer: &mut DuplexStream, bytes: &[u8]) {
    let mut received = vec![0; bytes.len()];
    peer.read_exact(&mut received).await.expect("the client writes");
    assert_eq!(Bytes::from(received), bytes);
}

/// Starts a task that sends a command.
fn start(client: &Client, args: &[&str]) -> tokio::task::JoinHandle<Result<Value, Error>> {
    let (client, args) = (client.clone(), args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
    tokio::spawn(async move { client.command(args).await })
}

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn lost(result: Result<impl std::fmt::Debug, Error>) -> (bool, String) {
    let error = result.expect_err("the connection is lost");
    assert!(matches!(error, Error::Lost(_)), "{error:?}");
    (error.may_have_run(), format!("{error:#}"))
}

const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

#[tokio::test]
async fn a_command_leaves_at_once_and_gets_its_reply() {
    let (client, mut peer, writes) = connection(1024);
    let get = start(&client, &["GET", "k"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
    peer.write_all(b"$1\r\nv\r\n").await.expect("open");
    assert_eq!(get.await.expect("no panic").expect("a value"), bulk("v"));
    assert_eq!(writes.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn commands_that_wait_together_leave_in_one_write() {
    let (client, mut peer, writes) = connection(4096);
    let tasks: Vec<_> = (0..16).map(|_| start(&client, &["PING"])).collect();
    settle().await;
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    expect(&mut peer, &PING.repeat(16)).await;
    peer.write_all(&b"+PONG\r\n".repeat(16)).await.expect("open");
    for task in tasks {
        assert_eq!(task.await.expect("no panic").expect("a value").as_str(), Some("PONG"));
    }
    assert_eq!(client.counters().batches, 1);
    assert_eq!(client.counters().commands, 16);
    assert_eq!(client.counters().replies, 16);
}

#[tokio::test]
async fn commands_pile_up_while_many_batches_are_unanswered() {
    let (client, mut peer, writes) = connection(4096);
    for _ in 0..MAX_BATCHES_IN_FLIGHT {
        start(&client, &["PING"]);
        settle().await;
    }
    assert_eq!(writes.load(Ordering::Relaxed), MAX_BATCHES_IN_FLIGHT);
    for _ in 0..16 {
        start(&client, &["PING"]);
        settle().await;
    }
    assert_eq!(writes.load(Ordering::Relaxed), MAX_BATCHES_IN_FLIGHT, "they wait");
    peer.write_all(b"+PONG\r\n").await.expect("open");
    settle().await;
    let left_together = MAX_BATCHES_IN_FLIGHT + 1;
    assert_eq!(writes.load(Ordering::Relaxed), left_together, "they leave when a batch is answered");
    expect(&mut peer, &PING.repeat(MAX_BATCHES_IN_FLIGHT + 16)).await;
}

#[tokio::test]
async fn half_of_many_replies_are_handed_out_before_their_callers_get_their_turn() {
    let (client, mut peer, writes) = connection(4096);
    for _ in 0..40 {
        let client = client.clone();
        tokio::spawn(async move {
            client.command(["PING"]).await.expect("a reply");
            client.command(["PING"]).await
        });
    }
    expect(&mut peer, &PING.repeat(40)).await;
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    peer.write_all(&b"+PONG\r\n".repeat(40)).await.expect("open");
    settle().await;
    assert_eq!(
        writes.load(Ordering::Relaxed),
        3,
        "the server gets the first half's commands before the second's"
    );
    expect(&mut peer, &PING.repeat(40)).await;
    assert_eq!(client.counters().replies, 40);
}

#[tokio::test]
async fn a_full_batch_leaves_however_many_are_unanswered() {
    let (client, _peer, writes) = connection(65_536);
    for _ in 0..MAX_BATCHES_IN_FLIGHT {
        start(&client, &["PING"]);
        settle().await;
    }
    for _ in 0..BATCH_COMMANDS - 1 {
        start(&client, &["PING"]);
    }
    settle().await;
    assert_eq!(writes.load(Ordering::Relaxed), MAX_BATCHES_IN_FLIGHT);
    start(&client, &["PING"]);
    settle().await;
    assert_eq!(writes.load(Ordering::Relaxed), MAX_BATCHES_IN_FLIGHT + 1, "by count");

    start(&client, &["SET", "k", &"v".repeat(BATCH_BYTES)]);
    settle().await;
    assert_eq!(client.counters().batches, MAX_BATCHES_IN_FLIGHT as u64 + 2, "by size");
}

#[tokio::test]
async fn a_dropped_future_keeps_its_place_among_the_replies() {
    let (client, mut peer, _) = connection(1024);
    let dropped = start(&client, &["GET", "a"]);
    let kept = start(&client, &["GET", "b"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    dropped.abort();
    settle().await;
    peer.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(kept.await.expect("no panic").expect("a value"), bulk("B"));
}

#[tokio::test]
async fn a_future_dropped_before_its_command_left_sends_nothing() {
    let (ours, mut peer) = duplex(1024);
    let client = client(ours);
    {
        let mut command = pin!(client.command(["GET", "a"]));
        assert!(command.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    let kept = start(&client, &["GET", "b"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"$1\r\nB\r\n").await.expect("open");
    assert_eq!(kept.await.expect("no panic").expect("a value"), bulk("B"));
}

#[tokio::test]
async fn replies_may_be_split_anywhere() {
    let replies = b"+OK\r\n$5\r\na\r\nbc\r\n*2\r\n:1\r\n-ERR inner\r\n-ERR outer x\r\n%1\r\n+k\r\n_\r\n";
    for at in 1..replies.len() {
        let (client, mut peer, _) = connection(1024);
        let pipeline =
            client.pipeline().command(["A"]).command(["B"]).command(["C"]).command(["D"]).command(["E"]);
        let pipeline = tokio::spawn(pipeline.send());
        settle().await;
        peer.write_all(&replies[..at]).await.expect("open");
        settle().await;
        peer.write_all(&replies[at..]).await.expect("open");
        let replies = pipeline.await.expect("no panic").expect("replies");
        assert!(replies[0].as_ref().is_ok_and(Value::is_ok));
        assert_eq!(replies[1], Ok(bulk("a\r\nbc")));
        assert!(matches!(replies[2], Ok(Value::Array(ref items)) if matches!(items[1], Value::Error(_))));
        assert_eq!(replies[3].as_ref().expect_err("an error").message, "outer x");
        assert!(matches!(replies[4], Ok(Value::Map(_))));
    }
}

#[tokio::test]
async fn an_error_in_a_pipeline_is_one_of_its_replies() {
    let (client, mut peer, writes) = connection(1024);
    let pipeline = tokio::spawn(client.pipeline().command(["INCR", "n"]).command(["PING"]).send());
    expect(&mut peer, b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*1\r\n$4\r\nPING\r\n").await;
    assert_eq!(writes.load(Ordering::Relaxed), 1);
    peer.write_all(b"-WRONGTYPE not a number\r\n+PONG\r\n").await.expect("open");
    let replies = pipeline.await.expect("no panic").expect("replies");
    assert_eq!(replies[0].as_ref().expect_err("an error").code, "WRONGTYPE");
    assert!(replies[1].is_ok());

    let single = start(&client, &["INCR", "n"]);
    peer.write_all(b"-WRONGTYPE not a number\r\n").await.expect("open");
    let error = single.await.expect("no panic").expect_err("an error");
    assert_eq!(error.server().expect("a server error").code, "WRONGTYPE");
    assert!(!client.is_closed());
}

#[tokio::test]
async fn an_empty_pipeline_sends_nothing() {
    let (client, _peer, writes) = connection(1024);
    assert_eq!(client.pipeline().send().await.expect("nothing to do"), []);
    assert_eq!(writes.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn push_messages_are_not_replies() {
    let (client, mut peer, _) = connection(1024);
    peer.write_all(b">2\r\n+invalidate\r\n_\r\n").await.expect("open");
    let get = start(&client, &["GET", "k"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
    peer.write_all(b">2\r\n+invalidate\r\n_\r\n$1\r\nv\r\n").await.expect("open");
    assert_eq!(get.await.expect("no panic").expect("a value"), bulk("v"));
    assert_eq!(client.counters().pushes, 2);
}

#[tokio::test]
async fn a_lost_connection_tells_what_may_have_run() {
    // Room for the first command only: the second is cut, the third waits.
    let (client, mut peer, _) = connection(PING.len() + 5);
    let sent = start(&client, &["PING"]);
    settle().await;
    let cut = start(&client, &["GET", "k"]);
    settle().await;
    let waiting = start(&client, &["GET", "l"]);
    let pipeline = tokio::spawn(client.pipeline().command(["PING"]).command(["PING"]).send());
    settle().await;
    let mut some = [0; 3];
    peer.read_exact(&mut some).await.expect("open");
    drop(peer);

    let (may_have_run, text) = lost(sent.await.expect("no panic"));
    assert!(may_have_run);
    assert!(
        text.starts_with("connection to test:1 lost: ") && text.ends_with("the command may have run"),
        "{text}"
    );
    assert!(!lost(cut.await.expect("no panic")).0, "its end never left");
    assert!(!lost(waiting.await.expect("no panic")).0);
    assert!(!lost(pipeline.await.expect("no panic")).0);
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run && text.ends_with("the command was not sent"), "{text}");
    assert!(client.is_closed());
}

/// A program may keep its clients for long after.
#[tokio::test]
async fn a_lost_connection_frees_its_stream_though_clients_remain() {
    let (client, peer, writes) = connection(1024);
    let clone = client.clone();
    settle().await;
    assert_eq!(Arc::strong_count(&writes), 2, "ours and the stream's");
    drop(peer);
    settle().await;
    assert_eq!(Arc::strong_count(&writes), 1);
    assert!(client.is_closed() && clone.is_closed());
}

#[tokio::test]
async fn a_pipeline_may_have_run_once_its_first_command_left() {
    let (client, peer, _) = connection(PING.len());
    let pipeline = tokio::spawn(client.pipeline().command(["PING"]).command(["PING"]).send());
    settle().await;
    drop(peer);
    assert!(lost(pipeline.await.expect("no panic")).0);
}

#[tokio::test]
async fn garbage_ends_the_connection() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"+OK\r\n+more\r\n", b"$9223372036854775808\r\n"] {
        let (client, mut peer, _) = connection(1024);
        let command = start(&client, &["PING"]);
        expect(&mut peer, PING).await;
        peer.write_all(garbage).await.expect("open");
        drop(command.await.expect("no panic"));
        settle().await;
        let error = client.command(["PING"]).await.expect_err("lost");
        assert!(
            matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Protocol(_))),
            "{garbage:?}: {error:?}"
        );
        let mut rest = Vec::new();
        peer.read_to_end(&mut rest).await.expect("closed");
        assert_eq!(rest, b"");
    }
}

/// A server with little room stops reading while it cannot write: whoever waits for it to read before reading its
/// replies waits forever. The clock is paused, so a deadlock fails at once.
#[tokio::test(start_paused = true)]
async fn reading_goes_on_while_writing_is_blocked() {
    const COMMANDS: usize = 2000;
    let (client, peer, _) = connection(64);
    tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(peer);
        let mut command = [0; PING.len()];
        while reader.read_exact(&mut command).await.is_ok() {
            assert_eq!(command, PING);
            writer.write_all(b"$100\r\n").await.expect("open");
            writer.write_all(&[b'x'; 100]).await.expect("open");
            writer.write_all(b"\r\n").await.expect("open");
        }
    });
    let (mut pipeline, ping) = (client.pipeline(), Command::new("PING"));
    for _ in 0..COMMANDS {
        pipeline.push(&ping);
    }
    let both = async { tokio::join!(pipeline.send(), client.command(["PING"])) };
    let (replies, single) = timeout(Duration::from_secs(60), both).await.expect("no deadlock");
    let replies = replies.expect("replies");
    assert_eq!(replies.len(), COMMANDS);
    assert!(replies.iter().all(|reply| *reply == Ok(bulk(&"x".repeat(100)))));
    assert_eq!(single.expect("a reply"), bulk(&"x".repeat(100)));
}

#[tokio::test(start_paused = true)]
async fn large_arguments_arrive_in_order() {
    let (client, mut peer, _) = connection(1000);
    let big = Bytes::from((0..100_000_u32).flat_map(u32::to_be_bytes).collect::<Vec<_>>());
    let shared = Command::new("SET").arg("k").arg(big.clone()).arg("NX");
    let copied = Command::new("SET").arg("l").arg(&big);
    let mut pipeline = client.pipeline();
    pipeline.push(shared).push(Command::new("PING")).push(copied);
    let replies = tokio::spawn(pipeline.send());

    let expected = [
        b"*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$400000\r\n",
        &big[..],
        b"\r\n$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$400000\r\n",
        &big[..],
        b"\r\n",
    ];
    expect(&mut peer, &expected.concat()).await;
    peer.write_all(b"+OK\r\n+PONG\r\n+OK\r\n").await.expect("open");
    assert!(replies.await.expect("no panic").expect("replies").iter().all(Result::is_ok));
}

#[tokio::test]
async fn close_waits_for_what_is_under_way() {
    let (client, mut peer, _) = connection(1024);
    let before = start(&client, &["PING"]);
    settle().await;
    let closing = tokio::spawn({
        let client = client.clone();
        async move { client.close().await }
    });
    settle().await;
    let after = start(&client, &["PING"]);
    settle().await;
    assert!(!closing.is_finished());
    let (may_have_run, text) = lost(after.await.expect("no panic"));
    assert!(!may_have_run && text.contains("closed by this program"), "{text}");

    expect(&mut peer, PING).await;
    peer.write_all(b"+PONG\r\n").await.expect("open");
    assert!(before.await.expect("no panic").is_ok());
    closing.await.expect("no panic");
    assert_eq!(peer.read(&mut [0; 1]).await.expect("closed"), 0);
    client.close().await;
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_clone_ends_the_connection() {
    let (client, mut peer, _) = connection(1024);
    let clone = client.clone();
    let never_answered = start(&client, &["PING"]);
    expect(&mut peer, PING).await;
    drop(client);
    settle().await;
    never_answered.abort();
    settle().await;
    peer.write_all(b">0\r\n").await.expect("a clone keeps it open");
    drop(clone);
    assert_eq!(peer.read(&mut [0; 1]).await.expect("closed"), 0);
}

#[tokio::test]
async fn what_cannot_be_shared_is_refused_unsent() {
    let (client, mut peer, writes) = connection(1024);
    for args in [&["SUBSCRIBE", "c"][..], &["multi"], &[], &["HELLO", "3"]] {
        let error = client.command(args).await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)) && !error.may_have_run(), "{error}");
    }
    let open = client.pipeline().command(["MULTI"]).command(["PING"]);
    assert!(matches!(open.send().await, Err(Error::Refused(_))));
    let unended = client.pipeline().command(["MULTI"]).command(["PING"]).command(["DISCARD", "extra"]);
    assert!(matches!(unended.send().await, Err(Error::Refused(_))));
    let blocking = client.pipeline().command(["PING"]).command(["BLPOP", "l", "0"]);
    assert!(matches!(blocking.send().await, Err(Error::Refused(_))));
    let with_monitor = client.pipeline().command(["PING"]).command(["MONITOR"]);
    assert!(matches!(with_monitor.send().await, Err(Error::Refused(_))));
    settle().await;
    assert_eq!(writes.load(Ordering::Relaxed), 0);

    let whole = tokio::spawn(client.pipeline().command(["MULTI"]).command(["PING"]).command(["EXEC"]).send());
    expect(&mut peer, b"*1\r\n$5\r\nMULTI\r\n*1\r\n$4\r\nPING\r\n*1\r\n$4\r\nEXEC\r\n").await;
    peer.write_all(b"+OK\r\n+QUEUED\r\n*1\r\n+PONG\r\n").await.expect("open");
    assert_eq!(whole.await.expect("no panic").expect("replies").len(), 3);
}

#[tokio::test]
async fn no_more_is_sent_than_may_be_in_flight() {
    let (client, mut peer, _) = connection(1 << 20);
    let mut pipeline = client.pipeline();
    for _ in 0..MAX_IN_FLIGHT {
        pipeline.push(Command::new("PING"));
    }
    let first = tokio::spawn(pipeline.send());
    settle().await;
    let second = start(&client, &["GET", "k"]);
    settle().await;
    expect(&mut peer, &PING.repeat(MAX_IN_FLIGHT)).await;
    settle().await;
    assert_eq!(client.counters().commands, MAX_IN_FLIGHT as u64);
    peer.write_all(b"+PONG\r\n").await.expect("open");
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
    peer.write_all(&b"+PONG\r\n".repeat(MAX_IN_FLIGHT)).await.expect("open");
    assert_eq!(first.await.expect("no panic").expect("replies").len(), MAX_IN_FLIGHT);
    assert_eq!(second.await.expect("no panic").expect("a reply").as_str(), Some("PONG"));
}

/// A stream that panics when it is read for the second time.
struct Panics(bool);

impl AsyncRead for Panics {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        assert!(!std::mem::replace(&mut self.get_mut().0, true), "as a user's stream may");
        Poll::Pending
    }
}

impl AsyncWrite for Panics {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_connection_whose_task_has_panicked_is_closed_and_not_chosen() {
    let events = Arc::new(EventHub::new(2));
    let multiplexers = {
        let (ours, peer) = duplex(1024);
        let streams: [Box<dyn valkey_rdma_transport::Duplex>; 2] = [Box::new(Panics(false)), Box::new(ours)];
        let multiplexers = streams.map(|stream| {
            Multiplexer::start(
                RawConnection::new(AnyStream::Other(stream), info(), None),
                "test:1".into(),
                None,
                None,
                EventReporter::new(events.clone(), 0),
            )
        });
        (multiplexers, peer)
    };
    let (multiplexers, mut peer) = multiplexers;
    let endpoint = Endpoint::new(Transport::Tcp, "test", 1);
    let connector = Arc::new(Connector::once(endpoint, Config::default()));
    let client = Client::assemble(multiplexers.into(), connector, events);
    settle().await;
    let error = start(&client, &["PING"]).await.expect("no panic").expect_err("the task panics");
    assert!(error.to_string().contains("its task was stopped"), "{error}");
    let states: Vec<_> = client.connections().iter().map(|connection| connection.state).collect();
    assert_eq!(states, [crate::stats::State::Closed, crate::stats::State::Connected]);
    for _ in 0..3 {
        let ping = start(&client, &["PING"]);
        settle().await;
        peer.write_all(b"+PONG\r\n").await.expect("open");
        assert_eq!(ping.await.expect("no panic").expect("a reply").as_str(), Some("PONG"));
    }
}

/// A stream whose peer answers without a wake-up.
struct Silent(Arc<std::sync::Mutex<Vec<u8>>>);

impl AsyncRead for Silent {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut bytes = self.0.lock().expect("no panic");
        if bytes.is_empty() {
            return Poll::Pending;
        }
        buf.put_slice(&bytes);
        bytes.clear();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Silent {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_there_when_the_time_is_up_is_in_time() {
    let bytes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let client = client(Silent(bytes.clone()));
    let command = Command::new("GET").arg("k").timeout(Duration::from_secs(1));
    let get = tokio::spawn({
        let client = client.clone();
        async move { client.execute(command).await }
    });
    settle().await;
    bytes.lock().expect("no panic").extend_from_slice(b"$1\r\nv\r\n");
    let reply = timeout(Duration::from_secs(60), get).await.expect("its deadline").expect("no panic");
    assert_eq!(reply.expect("a reply"), bulk("v"));
    assert_eq!(client.counters().timeouts, 0);
}
