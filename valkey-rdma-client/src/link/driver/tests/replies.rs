//! Who gets which reply.

use tokio::io::{join, sink};

use super::*;

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
        assert_eq!(replies[1].as_ref().ok(), Some(&bulk("a\r\nbc")));
        assert!(matches!(replies[2], Ok(Value::Array(ref items)) if matches!(items[1], Value::Error(_))));
        assert_eq!(
            replies[3].as_ref().expect_err("an error").server().expect("its reply").message,
            "outer x"
        );
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
    assert_eq!(replies[0].as_ref().expect_err("an error").server().expect("its reply").code, "WRONGTYPE");
    assert!(replies[1].is_ok());

    let single = start(&client, &["INCR", "n"]);
    peer.write_all(b"-WRONGTYPE not a number\r\n").await.expect("open");
    let error = single.await.expect("no panic").expect_err("an error");
    assert_eq!(error.server().expect("a server error").code, "WRONGTYPE");
    assert!(!client.is_closed());
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

#[tokio::test(start_paused = true)]
async fn a_reply_that_is_there_when_the_time_is_up_is_in_time() {
    let bytes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let client = client(join(Silent(bytes.clone()), sink()));
    let command = Command::new("GET").arg("k").timeout(Duration::from_secs(1));
    let get = tokio::spawn({
        let client = client.clone();
        async move { client.command(command).await }
    });
    settle().await;
    bytes.lock().expect("no panic").extend_from_slice(b"$1\r\nv\r\n");
    let reply = timeout(Duration::from_secs(60), get).await.expect("its deadline").expect("no panic");
    assert_eq!(reply.expect("a reply"), bulk("v"));
    assert_eq!(client.counters().timeouts, 0);
}
