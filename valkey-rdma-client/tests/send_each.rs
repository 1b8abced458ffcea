//! Replies of a pipeline that are handed over as they come.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use valkey_rdma_client::{Client, Command, Config, Error, Value};

/// A server that lets clients in and leaves the rest to the test.
async fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("valkey://{}?protocol=resp2", listener.local_addr().expect("its address"));
    (listener, url)
}

/// Takes bytes until these have come.
async fn take(stream: &mut TcpStream, end: &[u8]) {
    let mut taken = Vec::new();
    while !taken.ends_with(end) {
        assert_ne!(stream.read_buf(&mut taken).await.expect("bytes"), 0, "the client has gone");
    }
}

/// Lets a client in.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a client");
    // Two CLIENT SETINFO, and a PING with an argument.
    take(&mut stream, b"$4\r\nPING\r\n$11\r\nvalkey-rdma\r\n").await;
    stream.write_all(b"+OK\r\n+OK\r\n+PONG\r\n").await.expect("written");
    stream
}

const SECOND: &[u8] = b"$6\r\nsecond\r\n";

fn two(client: &Client) -> valkey_rdma_client::Pipeline {
    let get = |key: &str| Command::new("GET").arg(key).idempotent();
    client.pipeline().command(get("first")).command(get("second"))
}

#[tokio::test]
async fn a_reply_is_handed_over_before_the_next_one_has_come() {
    let (listener, url) = server().await;
    let (seen, first_was_seen) = oneshot::channel();
    let serving = tokio::spawn(async move {
        let mut stream = accept(&listener).await;
        take(&mut stream, SECOND).await;
        stream.write_all(b":1\r\n").await.expect("written");
        first_was_seen.await.expect("the first reply is seen");
        stream.write_all(b"-ERR no\r\n").await.expect("written");
    });
    let client = Client::connect(&url).await.expect("connected");
    let (mut seen, mut replies) = (Some(seen), Vec::new());
    let sent = two(&client).send_each(|place, reply| {
        replies.push((place, reply.ok()));
        if let Some(seen) = seen.take() {
            seen.send(()).expect("the server waits");
        }
    });
    sent.await.expect("answered");
    assert_eq!(replies, [(0, Some(Value::Int(1))), (1, None)]);
    serving.await.expect("served");
}

#[tokio::test]
async fn what_was_handed_over_is_not_asked_for_again() {
    let (listener, url) = server().await;
    let serving = tokio::spawn(async move {
        // Lost before the first reply: sent again. Lost after it: not.
        let mut stream = accept(&listener).await;
        take(&mut stream, SECOND).await;
        drop(stream);
        let mut stream = accept(&listener).await;
        take(&mut stream, b"PING\r\n").await;
        stream.write_all(b"+PONG\r\n").await.expect("written");
        take(&mut stream, SECOND).await;
        stream.write_all(b":1\r\n").await.expect("written");
        drop(stream);
        listener
    });
    let config = Config::default().command_timeout(Duration::from_secs(60));
    let client = Client::connect_with(&url, &config).await.expect("connected");
    let mut places = Vec::new();
    let outcome = two(&client).send_each(|place, _| places.push(place)).await;
    assert!(matches!(outcome, Err(Error::Lost(_))), "{outcome:?}");
    assert_eq!(places, [0]);
    serving.await.expect("served");
}
