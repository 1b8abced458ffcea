//! What crosses a device between giving up a reply and the disconnect, counted by a server that knows one key.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_client::transport::{Config, DeviceKind, Listener, Stream};
use valkey_rdma_client::{Client, Command};

/// More than all windows and buffers between the two.
const LEN: usize = 12 << 20;

async fn accept(listener: &mut Listener) -> Stream {
    let mut stream = listener.accept().await.expect("accepts");
    // The login ends with a PING, and is answered as a server does that has nothing to tell.
    read_until(&mut stream, "*2\r\n$4\r\nPING\r\n$11\r\nvalkey-rdma\r\n").await;
    stream.write_all(b"%1\r\n$5\r\nproto\r\n:3\r\n+OK\r\n+OK\r\n+PONG\r\n").await.expect("writes");
    stream
}

async fn read_until(stream: &mut Stream, end: &str) {
    let mut received = Vec::new();
    while !received.ends_with(end.as_bytes()) {
        assert!(stream.read_buf(&mut received).await.expect("reads") > 0, "there is more to come");
    }
}

/// Answers a GET, then waits for the disconnect. Returns how many bytes of the reply were sent.
async fn answer(mut own: Stream) -> u64 {
    let before = own.stats().protocol.bytes_sent;
    read_until(&mut own, "$3\r\nGET\r\n$1\r\nk\r\n").await;
    let mut reply = format!("${LEN}\r\n").into_bytes();
    reply.resize(reply.len() + LEN, b'v');
    reply.extend_from_slice(b"\r\n");
    own.write_all(&reply).await.expect("the client takes it all");
    assert_eq!(own.read(&mut [0]).await.expect("a disconnect"), 0);
    let sent = own.stats().protocol.bytes_sent - before;
    assert_eq!(sent, reply.len() as u64);
    sent
}

#[tokio::test]
async fn the_whole_of_a_reply_that_is_given_up_crosses_before_the_disconnect() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &Config::default()).await.expect("listens");
    let url = format!("emulated://{}", listener.local_addr());
    let (client, _shared) = tokio::join!(Client::connect(url.as_str()), accept(&mut listener));
    let client = client.expect("connects");

    let server = tokio::spawn(async move { answer(accept(&mut listener).await).await });
    let reader = client.stream_reply(Command::new("GET").arg("k")).await;
    let mut reader = reader.expect("a reply").expect("a value");
    let chunk = reader.chunk().await.expect("a chunk").expect("not the end");
    let read = chunk.len() as u64;
    drop(reader);
    let sent = server.await.expect("every byte was sent");
    assert!(read < sent, "given up before its end");
}
