//! What leaves, when, and together with what.

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

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

/// In the order in which their futures were first polled, however many wait, and whichever is polled next.
#[tokio::test]
async fn commands_leave_in_the_order_in_which_they_came() {
    let (client, mut peer, _) = connection(1 << 20);
    let get = |number: usize| Box::pin(client.command(Command::new("GET").arg(format!("{number:06}"))));
    let mut waiting: Vec<_> = (0..1100).map(get).collect();
    for call in &mut waiting {
        assert!(call.now_or_never().is_none());
    }
    // The driver takes some of them.
    settle().await;
    for mut late in (1100..1110).map(get) {
        assert!((&mut late).now_or_never().is_none());
        waiting.insert(0, late);
    }
    let count = waiting.len();
    let server = async {
        for number in 0..count {
            expect(&mut peer, format!("*2\r\n$3\r\nGET\r\n$6\r\n{number:06}\r\n").as_bytes()).await;
            peer.write_all(b"_\r\n").await.expect("open");
        }
    };
    let (replies, ()) = tokio::join!(join_all(waiting), server);
    assert!(replies.iter().all(Result::is_ok));
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
async fn an_empty_pipeline_sends_nothing() {
    let (client, _peer, writes) = connection(1024);
    assert!(client.pipeline().send().await.expect("nothing to do").is_empty());
    assert_eq!(writes.load(Ordering::Relaxed), 0);
}

/// A server with little room stops reading while it cannot write: a client that reads no replies until it has written
/// waits forever. The clock is paused, so a deadlock fails at once.
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
    assert!(replies.iter().all(|reply| reply.as_ref().ok() == Some(&bulk(&"x".repeat(100)))));
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
