//! A connection that is lost or closed: what its callers learn.

use tokio::io::{join, sink};

use super::*;

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

/// A stream that panics when it is read for the second time.
struct Panics(bool);

impl AsyncRead for Panics {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        assert!(!std::mem::replace(&mut self.get_mut().0, true), "as a user's stream may");
        Poll::Pending
    }
}

#[tokio::test]
async fn a_connection_whose_task_has_panicked_is_closed_and_not_chosen() {
    let (ours, mut peer) = duplex(1024);
    let streams: [Box<dyn Duplex>; 2] = [Box::new(join(Panics(false), sink())), Box::new(ours)];
    let client = client_over(streams.into());
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

#[tokio::test]
async fn callers_whose_replies_came_before_a_panic_are_woken() {
    let (ours, mut peer) = duplex(1024);
    let client = client_with(vec![Box::new(ours)], Some(Arc::new(|_| panic!("on purpose"))));
    let pings = [(); 2].map(|()| start(&client, &["PING"]));
    expect(&mut peer, &PING.repeat(2)).await;
    peer.write_all(b"+one\r\n+two\r\n>1\r\n+message\r\n").await.expect("open");
    for (ping, expected) in pings.into_iter().zip(["one", "two"]) {
        let reply = timeout(LONG, ping).await.expect("woken").expect("no panic");
        assert_eq!(reply.expect("a reply").as_str(), Some(expected));
    }
}

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(10);
