//! A caller that has the connection for itself.

use tokio::runtime::Handle;

use super::*;

const PONG: &[u8] = b"+PONG\r\n";

/// A client whose connection has answered one request, of one caller. `room` bytes fit between it and its peer.
async fn exclusive(room: usize) -> (Client, DuplexStream, Arc<AtomicUsize>) {
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

/// Polls a future once. Says whether that alone has written something.
fn writes_by_itself<F: Future>(future: Pin<&mut F>, writes: &AtomicUsize) -> bool {
    let before = writes.load(Ordering::Relaxed);
    assert!(poll_once(future).is_pending());
    writes.load(Ordering::Relaxed) > before
}

#[tokio::test]
async fn its_command_leaves_while_it_is_called_without_another_task() {
    let (client, mut peer, writes) = exclusive(1024).await;
    for _ in 0..8 {
        let mut ping = pin!(client.command(["PING"]));
        assert!(writes_by_itself(ping.as_mut(), &writes));
        expect(&mut peer, PING).await;
        peer.write_all(PONG).await.expect("open");
        assert_eq!(ping.await.expect("a reply").as_str(), Some("PONG"));
        settle().await;
    }
    let counters = client.counters();
    assert_eq!((counters.commands, counters.batches, counters.replies), (9, 9, 9));
    assert_eq!((counters.in_flight, writes.load(Ordering::Relaxed)), (0, 9));
}

#[tokio::test]
async fn a_pipeline_of_one_caller_leaves_while_it_is_sent() {
    let (client, mut peer, writes) = exclusive(1024).await;
    let mut pipeline = pin!(client.pipeline().command(["PING"]).command(["PING"]).send());
    assert!(writes_by_itself(pipeline.as_mut(), &writes));
    peer.write_all(&PONG.repeat(2)).await.expect("open");
    assert_eq!(pipeline.await.expect("replies").len(), 2);

    settle().await;
    let mut next = pin!(client.command(["PING"]));
    assert!(writes_by_itself(next.as_mut(), &writes), "one caller, however many its commands were");
}

#[tokio::test]
async fn a_second_caller_queues_behind_it_in_order() {
    let (client, mut peer, writes) = exclusive(1024).await;
    let mut first = pin!(client.command(["GET", "a"]));
    let mut second = pin!(client.command(["GET", "b"]));
    assert!(writes_by_itself(first.as_mut(), &writes));
    // The multiplexer's task looks around.
    peer.write_all(b">1\r\n+nothing\r\n").await.expect("open");
    settle().await;
    assert!(!writes_by_itself(second.as_mut(), &writes), "it waits for the multiplexer's task");
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(first.await.expect("a value"), bulk("A"));
    assert_eq!(second.await.expect("a value"), bulk("B"));
}

#[tokio::test]
async fn it_does_not_overtake_what_is_queued_already() {
    let (client, mut peer, writes) = exclusive(1024).await;
    // A deadline this early is for the multiplexer's task to watch, so the command queues.
    let mut queued = pin!(client.command(Command::new("PING").timeout(Duration::from_secs(10))));
    let mut second = pin!(client.command(["GET", "b"]));
    assert!(!writes_by_itself(queued.as_mut(), &writes));
    assert!(!writes_by_itself(second.as_mut(), &writes));
    expect(&mut peer, PING).await;
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"+PONG\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(queued.await.expect("a reply").as_str(), Some("PONG"));
    assert_eq!(second.await.expect("a value"), bulk("B"));
}

#[tokio::test]
async fn callers_that_are_answered_together_send_their_next_commands_together() {
    let (client, mut peer, writes) = exclusive(1024).await;
    let callers = [(); 2].map(|()| {
        let client = client.clone();
        tokio::spawn(async move {
            for _ in 0..3 {
                client.command(["PING"]).await.expect("a reply");
            }
        })
    });
    // The first finds nothing in flight and does not wait for the second.
    settle().await;
    let before = writes.load(Ordering::Relaxed);
    for round in 1..=2 {
        expect(&mut peer, &PING.repeat(2)).await;
        peer.write_all(&PONG.repeat(2)).await.expect("open");
        settle().await;
        assert_eq!(writes.load(Ordering::Relaxed), before + round);
    }
    expect(&mut peer, &PING.repeat(2)).await;
    peer.write_all(&PONG.repeat(2)).await.expect("open");
    for caller in callers {
        caller.await.expect("no panic");
    }
}

#[tokio::test]
async fn the_link_s_task_goes_on_with_what_the_stream_does_not_take_at_once() {
    let (client, mut peer, writes) = exclusive(64).await;
    let value = "v".repeat(10_000);
    let mut set = pin!(client.command(["SET", "k", &value]));
    assert!(writes_by_itself(set.as_mut(), &writes));
    let whole = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$10000\r\n{value}\r\n");
    expect(&mut peer, whole.as_bytes()).await;
    peer.write_all(b"+OK\r\n").await.expect("open");
    assert!(set.await.expect("a reply").is_ok());
}

#[tokio::test]
async fn a_peer_that_goes_under_it_leaves_its_fate_told() {
    let (client, peer, writes) = exclusive(PING.len() + 5).await;
    let value = "v".repeat(100);
    let mut set = pin!(client.command(["SET", "k", &value]));
    assert!(writes_by_itself(set.as_mut(), &writes), "its beginning");
    drop(peer);
    let (may_have_run, text) = lost(set.await);
    assert!(!may_have_run, "its end never left: {text}");
    assert!(client.is_closed());

    let (client, peer, _) = exclusive(1024).await;
    drop(peer);
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run && text.contains("the peer closed it"), "{text}");
    assert!(client.is_closed());
}

/// A client whose next write, by a caller that has the connection for itself, is the third.
async fn tripping(third: Write<DuplexStream>) -> (Client, DuplexStream, Arc<AtomicUsize>) {
    let (stream, mut peer) = duplex(1024);
    let writes = Arc::new(AtomicUsize::new(0));
    let client = client(Counted { stream, writes: writes.clone(), third: Some(third) });
    exchange(&client, &mut peer).await;
    exchange(&client, &mut peer).await;
    settle().await;
    (client, peer, writes)
}

#[tokio::test(start_paused = true)]
async fn an_error_that_the_stream_tells_its_caller_once_ends_the_connection_at_once() {
    let (client, _peer, writes) =
        tripping(|_, _, _| Poll::Ready(Err(io::Error::other("the cable was cut")))).await;
    let begin = Instant::now();
    let mut ping = pin!(client.command(["PING"]));
    assert!(writes_by_itself(ping.as_mut(), &writes));
    let (may_have_run, text) = lost(ping.await);
    assert!(!may_have_run && text.contains("the cable was cut"), "{text}");
    assert_eq!(begin.elapsed(), Duration::ZERO, "no deadline had to find it");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_panics_under_it_ends_the_connection_and_sends_nothing_twice() {
    let (client, mut peer, _) = tripping(|stream, cx, buf| {
        assert!(Pin::new(stream).poll_write(cx, buf).is_ready());
        panic!("after all of it was taken");
    })
    .await;
    let ping = start(&client, &["PING"]);
    assert!(ping.await.expect_err("the panic is its caller's").is_panic());
    settle().await;
    assert!(client.is_closed());
    let mut received = Vec::new();
    peer.read_to_end(&mut received).await.expect("open");
    assert_eq!(received, PING, "once");
}

#[tokio::test]
async fn dropping_its_future_takes_nobody_else_s_reply() {
    let (client, mut peer, writes) = exclusive(1024).await;
    {
        let mut dropped = pin!(client.command(["GET", "a"]));
        assert!(writes_by_itself(dropped.as_mut(), &writes));
    }
    let kept = start(&client, &["GET", "b"]);
    expect(&mut peer, b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n").await;
    peer.write_all(b"$1\r\nA\r\n$1\r\nB\r\n").await.expect("open");
    assert_eq!(kept.await.expect("no panic").expect("a value"), bulk("B"));
}

#[tokio::test(start_paused = true)]
async fn its_deadline_is_kept() {
    let (client, mut peer, writes) = exclusive(1024).await;
    let limited = |seconds| Command::new("PING").timeout(Duration::from_secs(seconds));
    // The multiplexer's timer goes off after 30 s, by default. An earlier one is for its task to set.
    for (seconds, alone) in [(60, true), (10, false), (20, true)] {
        let mut ping = pin!(client.command(limited(seconds)));
        assert_eq!(writes_by_itself(ping.as_mut(), &writes), alone, "{seconds} s");
        expect(&mut peer, PING).await;
        peer.write_all(PONG).await.expect("open");
        ping.await.expect("a reply");
        settle().await;
    }
    let begin = Instant::now();
    let mut unanswered = pin!(client.command(limited(15)));
    assert!(writes_by_itself(unanswered.as_mut(), &writes));
    let error = unanswered.await.expect_err("no reply");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    assert_eq!(begin.elapsed().as_secs(), 15);
}

#[tokio::test]
async fn closing_waits_for_its_reply_and_refuses_its_next_command() {
    let (client, mut peer, writes) = exclusive(1024).await;
    let mut ping = pin!(client.command(["PING"]));
    assert!(writes_by_itself(ping.as_mut(), &writes));
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

#[tokio::test]
async fn a_command_after_close_is_refused_though_its_caller_was_alone() {
    let (client, _peer, writes) = exclusive(1024).await;
    let before = writes.load(Ordering::Relaxed);
    let mut close = pin!(client.close());
    assert!(poll_once(close.as_mut()).is_pending());
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run, "{text}");
    close.await;
    assert_eq!(writes.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn nothing_is_written_to_a_stream_that_shuts_down() {
    let (client, _peer, writes) = tripping(|_, _, _| panic!("shut down")).await;
    let mut close = pin!(client.close());
    assert!(poll_once(close.as_mut()).is_pending());
    settle().await;
    assert!(poll_once(close.as_mut()).is_pending(), "it takes long");
    let (may_have_run, text) = lost(client.command(["PING"]).await);
    assert!(!may_have_run, "{text}");
    assert_eq!(writes.load(Ordering::Relaxed), 2);
}

/// Writes only within a runtime.
fn within_a_runtime(stream: &mut DuplexStream, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
    Handle::try_current().expect("a runtime");
    Pin::new(stream).poll_write(cx, buf)
}

#[test]
fn outside_of_a_runtime_the_stream_is_within_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (client, mut peer, writes) = runtime.block_on(tripping(within_a_runtime));
    let mut ping = pin!(client.command(["PING"]));
    assert!(writes_by_itself(ping.as_mut(), &writes));
    runtime.block_on(async {
        expect(&mut peer, PING).await;
        peer.write_all(PONG).await.expect("open");
        assert_eq!(ping.await.expect("a reply").as_str(), Some("PONG"));
    });
}

#[test]
fn a_runtime_that_ends_under_it_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (client, _peer, writes) = runtime.block_on(exclusive(1024));
    let mut sent = pin!(client.command(["PING"]));
    assert!(writes_by_itself(sent.as_mut(), &writes));
    drop(runtime);
    let Poll::Ready(sent) = poll_once(sent) else { panic!("nobody will answer") };
    assert!(lost(sent).0, "it left");
    let Poll::Ready(next) = poll_once(pin!(client.command(["PING"]))) else { panic!("nobody will answer") };
    assert!(!lost(next).0);
}
