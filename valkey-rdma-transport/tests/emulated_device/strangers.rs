//! Peers that are none.

use std::future::poll_fn;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use valkey_rdma_proto::work::{FailureStatus, Outcome};
use valkey_rdma_transport::DeviceKind;
use valkey_rdma_transport::device::{self, CmEvent};

use super::ANY;
use super::device_peer::{self, MESSAGE, Peer, bounded, options};

/// A header of the given kind, whose fields are all zero.
fn header(kind: u8) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[0] = kind;
    bytes
}

fn connect_header() -> [u8; 32] {
    let mut bytes = header(1);
    bytes[8..16].copy_from_slice(b"VRDMAEMU");
    bytes[23] = 2;
    bytes
}

#[tokio::test]
async fn bytes_that_are_no_request_are_hung_up_on_and_the_listener_goes_on() {
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    for greeting in
        [&b"PING\r\nPING\r\nPING\r\nPING\r\nPING\r\nPING\r\n"[..], &[0xff; 32], &header(4), &header(16)]
    {
        let mut socket = TcpStream::connect(listener.local_addr()).await.expect("connects");
        socket.write_all(greeting).await.expect("writes");
        let closed = async {
            let mut rest = [0; 1];
            // Either way of closing will do.
            assert!(!matches!(socket.read(&mut rest).await, Ok(1..)));
        };
        let nobody = poll_fn(|cx| listener.poll_request(cx));
        tokio::select! {
            () = bounded(closed) => {}
            _ = nobody => panic!("a request made of {greeting:?}"),
        }
    }
    let silent = TcpStream::connect(listener.local_addr()).await.expect("connects");
    device_peer::connect(listener.as_mut()).await;
    drop(silent);
}

/// A peer that speaks the frames, up to a point.
async fn accepted_with(frames: &[u8]) -> (Peer, TcpStream) {
    let mut listener = device::listen(DeviceKind::Emulated, ANY, &options()).await.expect("listens");
    let mut socket = TcpStream::connect(listener.local_addr()).await.expect("connects");
    socket.write_all(&connect_header()).await.expect("writes");
    let mut passive = device_peer::accept(listener.as_mut()).await;
    passive.endpoint.establish().expect("accepts");
    socket.read_exact(&mut [0; 32]).await.expect("the acceptance");
    socket.write_all(&header(4)).await.expect("writes");
    assert_eq!(passive.cm_event().await, CmEvent::Established);
    socket.write_all(frames).await.expect("writes");
    (passive, socket)
}

#[tokio::test]
async fn a_peer_that_breaks_the_rules_of_the_frames_is_disconnected() {
    let mut out_of_sequence = header(16);
    out_of_sequence[15] = 5;
    let mut too_long = header(16);
    too_long[4] = 0x80;
    let done = header(32);
    for (what, frames) in [
        ("no frame", header(99)),
        ("a second request to connect", connect_header()),
        ("an acceptance by the active end", header(2)),
        ("a request out of sequence", out_of_sequence),
        ("a message too long", too_long),
        ("an answer to nothing", done),
    ] {
        let (mut passive, mut socket) = accepted_with(&frames).await;
        assert_eq!(passive.cm_event().await, CmEvent::Disconnected, "{what}");
        let mut rest = Vec::new();
        // Reset or closed.
        let _ = bounded(socket.read_to_end(&mut rest)).await;
        passive.endpoint.disconnect();
    }
}

#[tokio::test]
async fn a_request_that_promises_more_than_it_brings_takes_nothing() {
    let mut promise = header(16);
    promise[4..8].copy_from_slice(&MESSAGE.to_be_bytes());
    let (mut passive, socket) = accepted_with(&promise).await;
    drop(socket);
    assert_eq!(passive.cm_event().await, CmEvent::Disconnected);
    assert_eq!(passive.completed(), []);
}

#[tokio::test]
async fn a_gigabyte_that_nobody_admitted_is_neither_kept_nor_acknowledged() {
    // A write with a key of nobody, of the greatest length there is.
    let mut write = header(17);
    write[4..8].copy_from_slice(&(1_u32 << 30).to_be_bytes());
    let (mut passive, mut socket) = accepted_with(&write).await;
    let mut answer = [0; 32];
    bounded(socket.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!((answer[0], answer[31]), (34, 10), "denied: remote access error");
    let completion = passive.completion().await;
    assert_eq!(completion.outcome, Outcome::Failed(FailureStatus::Flushed));
}
