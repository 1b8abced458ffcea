//! A caller that has the connection for itself.

use super::*;

const PONG: &[u8] = b"+PONG\r\n";

/// A client whose connection has answered one request, of one caller. `room` bytes fit between it and its peer.
async fn lone(room: usize) -> (Client, DuplexStream, Arc<AtomicUsize>) {
    let (client, mut peer, writes) = connection(room);
    exchange(&client, &mut peer).await;
    settle().await;
    (client, peer, writes)
}

async fn exchange(client: &Client, peer: &mut DuplexStream) {
    let ping = start(client, &["PING"]);
    expect(peer, PING).await;
    peer.write_all(PONG).await.expect("open");
    ping.await.expect("no panic").expect("a reply");
}

/// Polls a future once, and lets no other task run.
fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[tokio::test]
async fn its_command_leaves_while_it_is_called_without_another_task() {
    let (client, mut peer, writes) = lone(1024).await;
    for round in 2..10 {
        let mut ping = pin!(client.command(["PING"]));
        assert!(poll_once(ping.as_mut()).is_pending());
        assert_eq!(writes.load(Ordering::Relaxed), round, "nobody else has had a turn");
        expect(&mut peer, PING).await;
        peer.write_all(PONG).await.expect("open");
        assert_eq!(ping.await.expect("a reply").as_str(), Some("PONG"));
        settle().await;
    }
    let counters = client.counters();
    assert_eq!((counters.commands, counters.batches, counters.replies), (9, 9, 9));
    assert_eq!(counters.in_flight, 0);
}

#[tokio::test]
async fn a_pipeline_of_one_caller_leaves_while_it_is_sent() {
    let (client, mut peer, writes) = lone(1024).await;
    let mut pipeline = pin!(client.pipeline().command(["PING"]).command(["PING"]).send());
    assert!(poll_once(pipeline.as_mut()).is_pending());
    assert_eq!(writes.load(Ordering::Relaxed), 2);
    peer.write_all(&PONG.repeat(2)).await.expect("open");
    assert_eq!(pipeline.await.expect("replies").len(), 2);

    settle().await;
    let mut next = pin!(client.command(["PING"]));
    assert!(poll_once(next.as_mut()).is_pending());
    assert_eq!(writes.load(Ordering::Relaxed), 3, "one caller, however many its commands were");
}

#[tokio::test]
async fn a_second_caller_queues_behind_it_in_order() {
    let (client, mut peer, writes) = lone(1024).await;
    let mut first = pin!(client.command(["GET", "a"]));
    let mut second = pin!(client.command(["GET", "b"]));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    assert_eq!(writes.load(Ordering::Relaxed), 2, "the second waits for the link's task");
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(first.await.expect("a value"), bulk("A"));
    assert_eq!(second.await.expect("a value"), bulk("B"));
}

#[tokio::test]
async fn several_callers_that_are_answered_together_queue_to_leave_together() {
    let (client, mut peer, writes) = lone(1024).await;
    let mut callers = [(); 2].map(|()| start(&client, &["PING"]));
    for _ in 0..3 {
        expect(&mut peer, &PING.repeat(2)).await;
        peer.write_all(&PONG.repeat(2)).await.expect("open");
        for caller in callers {
            caller.await.expect("no panic").expect("a reply");
        }
        let before = writes.load(Ordering::Relaxed);
        callers = [(); 2].map(|()| start(&client, &["PING"]));
        settle().await;
        assert_eq!(writes.load(Ordering::Relaxed), before + 1);
    }
}

#[tokio::test]
async fn the_link_s_task_goes_on_with_what_the_stream_does_not_take_at_once() {
    let (client, mut peer, _) = lone(64).await;
    let value = "v".repeat(10_000);
    let mut set = pin!(client.command(["SET", "k", &value]));
    assert!(poll_once(set.as_mut()).is_pending());
    let whole = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10000\r\n{value}\r\n");
    expect(&mut peer, whole.as_bytes()).await;
    peer.write_all(b"+OK\r\n").await.expect("open");
    assert!(set.await.expect("a reply").is_ok());
}

#[tokio::test]
async fn a_stream_that_breaks_under_it_ends_the_connection_with_the_reason() {
    let (client, peer, _) = lone(PING.len() + 5).await;
    let value = "v".repeat(100);
    let mut set = pin!(client.command(["SET", "k", &value]));
    // Half of it has left; then the link's task is not asked before the peer is gone.
    assert!(poll_once(set.as_mut()).is_pending());
    drop(peer);
    let (may_have_run, text) = lost(set.await);
    assert!(!may_have_run, "its end never left: {text}");
    assert!(client.is_closed());

    let (client, peer, _) = lone(1024).await;
    drop(peer);
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run && text.contains("the peer closed it"), "{text}");
    assert!(client.is_closed());
}

/// Fails the third write, and only that one.
struct FailsOnce {
    stream: DuplexStream,
    writes: usize,
}

impl AsyncRead for FailsOnce {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for FailsOnce {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        if self.writes == 3 {
            return Poll::Ready(Err(io::Error::other("the cable was cut")));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn an_error_that_the_stream_tells_its_caller_is_not_lost() {
    let (stream, mut peer) = duplex(1024);
    let client = client(FailsOnce { stream, writes: 0 });
    exchange(&client, &mut peer).await;
    exchange(&client, &mut peer).await;
    settle().await;
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run && text.contains("the cable was cut"), "{text}");
}

#[tokio::test]
async fn dropping_its_future_takes_nobody_else_s_reply() {
    let (client, mut peer, _) = lone(1024).await;
    {
        let mut dropped = pin!(client.command(["GET", "a"]));
        assert!(poll_once(dropped.as_mut()).is_pending());
    }
    let kept = start(&client, &["GET", "b"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(kept.await.expect("no panic").expect("a value"), bulk("B"));
}

#[tokio::test(start_paused = true)]
async fn its_deadline_is_kept() {
    let (client, mut peer, writes) = lone(1024).await;
    let limited = |seconds| Command::new("PING").timeout(Duration::from_secs(seconds));
    // The link's alarm goes off after 30 s, by default. An earlier one is for its task to set.
    for (seconds, alone) in [(60, true), (10, false), (20, true)] {
        let before = writes.load(Ordering::Relaxed);
        let mut ping = pin!(client.execute(limited(seconds)));
        assert!(poll_once(ping.as_mut()).is_pending());
        assert_eq!(writes.load(Ordering::Relaxed) > before, alone, "{seconds} s");
        expect(&mut peer, PING).await;
        peer.write_all(PONG).await.expect("open");
        ping.await.expect("a reply");
        settle().await;
    }
    let begin = tokio::time::Instant::now();
    let mut unanswered = pin!(client.execute(limited(15)));
    assert!(poll_once(unanswered.as_mut()).is_pending());
    assert_eq!(writes.load(Ordering::Relaxed), 5, "sent by its caller");
    let error = unanswered.await.expect_err("no reply");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    assert_eq!(begin.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn closing_waits_for_its_reply_and_refuses_its_next_command() {
    let (client, mut peer, _) = lone(1024).await;
    let mut ping = pin!(client.command(["PING"]));
    assert!(poll_once(ping.as_mut()).is_pending());
    let mut close = pin!(client.close());
    assert!(poll_once(close.as_mut()).is_pending());
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run, "{text}");
    settle().await;
    assert!(poll_once(close.as_mut()).is_pending());
    expect(&mut peer, PING).await;
    peer.write_all(PONG).await.expect("open");
    assert!(ping.await.expect("a reply").as_str() == Some("PONG"));
    close.await;
}

#[test]
fn a_runtime_that_ends_under_it_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (client, _peer, _) = runtime.block_on(lone(1024));
    let mut sent = pin!(client.command(["PING"]));
    assert!(poll_once(sent.as_mut()).is_pending());
    drop(runtime);
    let Poll::Ready(sent) = poll_once(sent) else { panic!("nobody will answer") };
    assert!(lost(sent).0, "it left");
    let Poll::Ready(next) = poll_once(pin!(client.command(["PING"]))) else { panic!("nobody will answer") };
    assert!(!lost(next).0);
}
