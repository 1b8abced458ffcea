//! What a `Stream` has beyond reading and writing: encoding in place, halves, shutdown. With exact counts
//! of copies. See `stream_pair` for how a device is chosen.

#![cfg(feature = "emulated")]

use std::future::Future;
use std::io::ErrorKind;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use stream_pair::{bounded, pair, pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{Config, Stream};

mod stream_pair;

async fn default_pair() -> (Stream, Stream) {
    pair(&Config::default(), &Config::default()).await
}

fn small(window: u32, send_buffer: u32) -> Config {
    Config::default().rx_size(window).rx_buffers(1).send_buffer(send_buffer)
}

/// Polls once, as somebody does who then gives up.
fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

// --- Copies --------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn bytes_are_copied_once_on_each_side_w7() {
    let (mut client, mut server) = default_pair().await;
    let sent = pattern(1, 100_000);
    client.write_all(&sent).await.expect("writes");
    let mut received = vec![0; sent.len()];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == sent);
    let (client, server) = (client.stats().device, server.stats().device);
    assert_eq!((client.copied_in, client.filled_in_place, client.copied_out), (100_000, 0, 0));
    assert_eq!((server.copied_in, server.filled_in_place, server.copied_out), (0, 0, 100_000));
}

#[tokio::test]
async fn what_is_encoded_in_place_is_not_copied_and_leaves_as_one_message() {
    let (mut client, mut server) = default_pair().await;
    let before = client.stats();
    let sent = client
        .write_with(1000, |room| {
            assert_eq!(room.len(), 1000);
            let commands = b"*1\r\n$4\r\nPING\r\n".repeat(16);
            room[..commands.len()].copy_from_slice(&commands);
            commands.len()
        })
        .await
        .expect("writes");
    assert_eq!(sent, 16 * 14);
    let mut received = vec![0; sent];
    server.read_exact(&mut received).await.expect("reads");
    assert_eq!(received, b"*1\r\n$4\r\nPING\r\n".repeat(16));
    let after = client.stats();
    assert_eq!((after.device.copied_in, after.device.filled_in_place), (0, sent as u64));
    assert_eq!(after.protocol.work_requests - before.protocol.work_requests, 1);
    assert_eq!(after.device.doorbells - before.device.doorbells, 1);
}

#[tokio::test]
async fn the_end_of_the_send_buffer_costs_one_copy_and_no_more() {
    let (mut client, mut server) = pair(&small(1 << 16, 4096), &Config::default()).await;
    let fill = |room: &mut [u8]| {
        room.copy_from_slice(&pattern(7, room.len()));
        room.len()
    };
    // 1500 bytes fit twice before the end of 4096.
    for round in 1..=3 {
        client.write_with(1500, fill).await.expect("writes");
        let mut received = vec![0; 1500];
        bounded(server.read_exact(&mut received)).await.expect("reads");
        assert!(received == pattern(7, 1500), "round {round}");
    }
    let device = client.stats().device;
    assert_eq!((device.filled_in_place, device.copied_in), (3000, 1500));
}

#[tokio::test]
async fn encoding_in_place_waits_for_room_for_all_of_it() {
    let (mut client, mut server) = pair(&small(1 << 16, 4096), &small(4096, 4096)).await;
    client.write_all(&pattern(8, 4096)).await.expect("fills the window");
    client
        .write_all(&pattern(9, 3000))
        .await
        .expect("fills most of the send buffer, once the first is acknowledged");
    let mut called = false;
    assert!(
        poll_once(client.write_with(2000, |_| {
            called = true;
            0
        }))
        .is_none(),
        "there is no room"
    );
    assert!(!called, "cancel safe: given up before it was called");
    let reading = tokio::spawn(async move {
        let mut received = vec![0; 4096 + 3000 + 2000];
        bounded(server.read_exact(&mut received)).await.expect("reads");
        received
    });
    let sent = bounded(client.write_with(2000, |room| {
        room.copy_from_slice(&pattern(10, 2000));
        2000
    }));
    assert_eq!(sent.await.expect("writes"), 2000);
    let expected = [pattern(8, 4096), pattern(9, 3000), pattern(10, 2000)].concat();
    assert!(reading.await.expect("reads") == expected);
}

#[tokio::test]
async fn more_than_half_of_the_send_buffer_cannot_be_reserved() {
    let (mut client, _server) = pair(&small(1 << 16, 4096), &Config::default()).await;
    assert_eq!(client.max_reservation(), 2048);
    let error = client.write_with(2049, |_| unreachable!("refused")).await.expect_err("too much");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), "2049 bytes are more than the send buffer takes at once, 2048 bytes");
    assert_eq!(client.write_with(2048, |room| room.len()).await.expect("writes"), 2048);
}

#[tokio::test]
#[should_panic(expected = "filled 11 of 10 bytes")]
async fn claiming_more_than_was_lent_is_a_bug() {
    let (mut client, _server) = default_pair().await;
    let _ = client.write_with(10, |_| 11).await;
}

#[tokio::test]
async fn reading_into_spare_capacity_copies_once() {
    let (mut client, mut server) = default_pair().await;
    client.write_all(&pattern(3, 5000)).await.expect("writes");
    let mut buffer = BytesMut::with_capacity(8192);
    while buffer.len() < 5000 {
        bounded(server.read_buf(&mut buffer)).await.expect("reads");
    }
    assert!(buffer == pattern(3, 5000)[..]);
    assert_eq!(server.stats().device.copied_out, 5000);
}

#[tokio::test]
async fn a_vectored_write_is_copied_once_and_may_be_cut() {
    let (mut client, mut server) = pair(&small(1 << 16, 4096), &Config::default()).await;
    let (head, body) = (pattern(4, 1000), pattern(5, 5000));
    let parts = [std::io::IoSlice::new(&head), std::io::IoSlice::new(&body)];
    assert_eq!(client.write_vectored(&parts).await.expect("writes"), 4096);
    let mut received = vec![0; 4096];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received[..1000] == head && received[1000..] == body[..3096]);
    assert_eq!(client.stats().device.copied_in, 4096);
}

// --- Halves --------------------------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_halves_of_tokio_work_in_two_tasks() {
    let (client, server) = default_pair().await;
    let echo = tokio::spawn(async move {
        let (mut reader, mut writer) = tokio::io::split(server);
        tokio::io::copy(&mut reader, &mut writer).await
    });
    let (mut reader, mut writer) = tokio::io::split(client);
    let sent = pattern(6, 3_000_000);
    let writing = tokio::spawn({
        let sent = sent.clone();
        async move {
            writer.write_all(&sent).await.expect("writes");
            writer
        }
    });
    let mut received = vec![0; sent.len()];
    bounded(reader.read_exact(&mut received)).await.expect("reads");
    assert!(received == sent);
    let writer = writing.await.expect("joins");
    drop(reader.unsplit(writer));
    assert_eq!(bounded(echo).await.expect("joins").expect("ends"), 3_000_000);
}

// --- Shutdown ------------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_reader_sees_what_had_arrived_and_then_end_of_file_after_its_own_shutdown_x1() {
    let (client, mut server) = default_pair().await;
    server.write_all(b"last reply").await.expect("writes");
    let (mut reader, mut writer) = tokio::io::split(client);
    // The bytes are in the window for certain once the first of them is read.
    assert_eq!(bounded(reader.read_u8()).await.expect("reads"), b'l');
    writer.shutdown().await.expect("nothing to deliver");
    let mut rest = Vec::new();
    bounded(reader.read_to_end(&mut rest)).await.expect("end of file, not an error");
    assert_eq!(rest, b"ast reply");
    let error = writer.write_all(b"x").await.expect_err("closed on this side");
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    writer.shutdown().await.expect("again, without effect");
}

/// What a user of TCP does: sends, shuts down, reads the answer. Over this wire it takes a linger.
#[tokio::test]
async fn replies_that_follow_a_shutdown_are_read_while_it_lingers_x1() {
    let patient = Config::default().linger(Duration::from_secs(3600));
    let (client, mut server) = pair(&patient, &Config::default()).await;
    let (mut reader, mut writer) = tokio::io::split(client);
    writer.write_all(b"question").await.expect("writes");
    let answering = tokio::spawn(async move {
        let mut question = [0; 8];
        server.read_exact(&mut question).await.expect("reads");
        server.write_all(&pattern(11, 2_000_000)).await.expect("writes");
        server.shutdown().await
    });
    let mut answer = Vec::new();
    let (shut, read) =
        bounded(async { tokio::join!(writer.shutdown(), reader.read_to_end(&mut answer)) }).await;
    shut.expect("delivered");
    read.expect("end of file, not an error");
    assert!(answer == pattern(11, 2_000_000));
    answering.await.expect("joins").expect("delivered");
}

#[tokio::test]
async fn a_shutdown_that_is_given_up_goes_on_by_itself_x1() {
    let (mut client, mut server) = default_pair().await;
    client.write_all(b"delivered").await.expect("writes");
    let _ = poll_once(client.shutdown());
    let mut received = Vec::new();
    bounded(server.read_to_end(&mut received)).await.expect("end of file");
    assert_eq!(received, b"delivered");
    bounded(client.shutdown()).await.expect("delivered");
}

// --- Cancelling ----------------------------------------------------------------------------------------------------

#[tokio::test]
async fn a_read_that_is_given_up_takes_nothing() {
    let (mut client, mut server) = default_pair().await;
    assert!(poll_once(server.read_u8()).is_none());
    client.write_all(b"abc").await.expect("writes");
    let mut received = [0; 3];
    bounded(server.read_exact(&mut received)).await.expect("reads");
    assert_eq!(&received, b"abc");
}
