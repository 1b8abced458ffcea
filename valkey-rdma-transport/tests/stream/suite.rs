//! What a user of `Stream` relies on as of any byte stream. See `stream_pair` for how a device is chosen.

use std::time::Duration;

use super::stream_pair::{any_port, connect, defaults, device, listen, pair, pattern, polling_modes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{CloseReason, Config, Listener, Stream, TransportError, raw};

async fn send_and_check(stream: Stream, mine: Vec<u8>, theirs: Vec<u8>) -> Stream {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let send = async {
        writer.write_all(&mine).await.expect("writes");
    };
    let check = async {
        let mut received = vec![0; theirs.len()];
        reader.read_exact(&mut received).await.expect("reads");
        assert!(received == theirs, "bytes differ");
    };
    tokio::join!(send, check);
    reader.unsplit(writer)
}

async fn both_ways(rx_size: u32, rx_buffers: u32, send_buffer: u32, len: usize) {
    both_ways_with(defaults(), rx_size, rx_buffers, send_buffer, len).await;
}

async fn both_ways_with(config: Config, rx_size: u32, rx_buffers: u32, send_buffer: u32, len: usize) {
    let config = config.rx_size(rx_size).rx_buffers(rx_buffers).send_buffer(send_buffer);
    let (client, server) = pair(&config, &config).await;
    let (up, down) = (pattern(1, len), pattern(2, len));
    let server = tokio::spawn(send_and_check(server, down.clone(), up.clone()));
    let client = send_and_check(client, up, down).await;
    server.await.expect("the server's side is right");
    let registers = client.stats().protocol.registers_received;
    assert!(registers >= (len as u64 - 1) / u64::from(rx_size), "{registers} registers for {len} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_arrive_in_order_both_ways_at_once_w4() {
    both_ways(1 << 20, 2, 1 << 20, 20_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_arrive_in_order_whatever_the_polling_and_the_window_w4() {
    for (_, config) in polling_modes() {
        for window in [1 << 16, 1 << 20, 100_001] {
            both_ways_with(config.clone(), window, 2, 1 << 18, 3_000_000).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_receive_buffer_is_enough_w5() {
    both_ways(1 << 16, 1, 1 << 16, 3_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_of_an_odd_length_is_filled_to_the_last_byte_w4() {
    both_ways(100_001, 2, 1 << 18, 3_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn windows_smaller_than_a_message_work_w2() {
    both_ways(1, 1, 4096, 300).await;
    both_ways(7, 2, 4096, 5_000).await;
}

#[tokio::test]
async fn a_small_write_is_one_work_request_and_one_doorbell() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let before = client.stats();
    client.write_all(b"PING\r\n").await.expect("writes");
    let mut received = [0; 6];
    server.read_exact(&mut received).await.expect("reads");
    let after = client.stats();
    assert_eq!(after.protocol.work_requests - before.protocol.work_requests, 1);
    assert_eq!(after.device.doorbells - before.device.doorbells, 1);
}

#[tokio::test]
async fn a_vectored_write_leaves_as_one_message() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let parts = [&b"$5\r\n"[..], b"value", b"\r\n"].map(std::io::IoSlice::new);
    assert_eq!(client.write_vectored(&parts).await.expect("writes"), 11);
    let mut received = [0; 11];
    server.read_exact(&mut received).await.expect("reads");
    assert_eq!(&received, b"$5\r\nvalue\r\n");
    assert_eq!(server.stats().protocol.immediates_received, 1);
}

#[tokio::test]
async fn shutdown_delivers_what_was_written_x1() {
    let (client, mut server) = pair(&defaults(), &defaults()).await;
    let sent = pattern(3, 3_000_000);
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        let mut client = client;
        client.write_all(&sent).await.expect("writes");
        client.shutdown().await.expect("everything is acknowledged");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("ends");
        assert!(rest.is_empty());
    });
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.expect("end of file, not an error");
    assert!(received == expected);
    writing.await.expect("the writer is content");
}

#[tokio::test]
async fn drop_delivers_what_was_written_x1() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    client.write_all(b"last words").await.expect("writes");
    drop(client);
    let mut received = Vec::new();
    server.read_to_end(&mut received).await.expect("end of file, not an error");
    assert_eq!(received, b"last words");
}

#[tokio::test]
async fn a_server_that_closes_after_its_reply_is_read_to_the_end_x2() {
    for _ in 0..20 {
        let (mut client, mut server) = pair(&defaults(), &defaults()).await;
        server.write_all(b"+OK\r\n").await.expect("writes");
        let closing = tokio::spawn(async move { server.shutdown().await });
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.expect("end of file, not an error");
        assert_eq!(received, b"+OK\r\n");
        drop(client);
        closing.await.expect("joins").expect("delivered");
    }
}

#[tokio::test]
async fn shutdown_tells_of_bytes_that_the_peer_did_not_take_x1() {
    let config = defaults().rx_size(4096).rx_buffers(1);
    let (mut client, server) = pair(&defaults(), &config).await;
    client.write_all(&pattern(6, 100_000)).await.expect("fits into the send buffer");
    let (outcome, ()) = tokio::join!(client.shutdown(), async { drop(server) });
    let error = outcome.expect_err("the peer's window held 4096 of the bytes");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe, "{error}");
}

#[tokio::test]
async fn a_connection_that_ended_keeps_no_resources_whoever_looks_at_its_counts() {
    let mut listener = listen(&defaults()).await;
    let addr = listener.local_addr();
    let (mut client, mut server) = connect(&mut listener, &defaults()).await;
    let monitor = client.monitor();
    server.write_all(b"bye").await.expect("writes");
    server.shutdown().await.expect("delivered");
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.expect("ends");
    assert_eq!(received, b"bye");
    assert_eq!(monitor.stats().pinned_bytes, 0);
    assert_eq!((monitor.info().peer_addr, monitor.stats().protocol.bytes_received), (addr, 3));
}

#[tokio::test]
async fn a_deadline_beyond_the_end_of_the_clock_never_comes() {
    let config = defaults()
        .handshake_timeout(Duration::MAX)
        .keepalive(Some(Duration::MAX))
        .idle_timeout(Some(Duration::MAX));
    let (mut client, mut server) = pair(&defaults(), &config).await;
    client.write_all(b"x").await.expect("writes");
    assert_eq!(server.read_u8().await.expect("reads"), b'x');
}

#[tokio::test]
async fn writing_after_the_peer_left_is_a_broken_pipe() {
    let (mut client, server) = pair(&defaults(), &defaults()).await;
    drop(server);
    let mut end = [0];
    assert_eq!(client.read(&mut end).await.expect("end of file"), 0);
    let error = client.write_all(b"x").await.expect_err("nobody is there");
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<TransportError>());
    assert!(matches!(cause, Some(TransportError::Lost(CloseReason::Peer))), "{cause:?}");
}

#[tokio::test]
async fn connecting_where_nobody_listens_is_refused() {
    let mut nobody = any_port();
    nobody.set_port(9);
    let error = Stream::connect(device(), nobody, &defaults()).await.expect_err("nobody listens");
    assert!(matches!(error, TransportError::Refused { peer, .. } if peer == nobody), "{error:?}");
}

#[tokio::test]
async fn an_address_is_listened_on_once() {
    let first = Listener::bind(device(), any_port(), &defaults()).await.expect("listens");
    let error = Listener::bind(device(), first.local_addr(), &defaults()).await.expect_err("taken");
    assert!(matches!(error, TransportError::Listen { .. }), "{error:?}");
}

#[tokio::test]
async fn a_listener_that_never_accepts_ends_in_the_connect_deadline() {
    let listener = Listener::bind(device(), any_port(), &defaults()).await.expect("listens");
    let config = defaults().connect_timeout(Duration::from_millis(300));
    let error = Stream::connect(device(), listener.local_addr(), &config).await.expect_err("nobody accepts");
    assert!(matches!(error, TransportError::ConnectTimeout { .. }), "{error:?}");
}

#[tokio::test]
async fn a_server_that_accepts_and_never_registers_is_reported_with_the_limit_that_passed_h4() {
    let bound = raw::Listener::bind(device(), any_port(), &defaults().device_options()).await;
    let mut listener = bound.expect("listens");
    let (addr, limit) = (listener.local_addr(), Duration::from_millis(300));
    let config = defaults().connect_timeout(Duration::from_secs(60)).handshake_timeout(limit);
    let accepting = async {
        let mut accepted = listener.incoming().await.expect("a request");
        accepted.establish().await.expect("accepts");
        accepted
    };
    let (connected, _silent) = tokio::join!(Stream::connect(device(), addr, &config), accepting);
    let error = connected.expect_err("nothing is registered");
    assert!(
        matches!(error, TransportError::SilentInHandshake { peer, after } if (peer, after) == (addr, limit)),
        "{error:?}"
    );
    assert!(error.to_string().contains("accepted the connection and did not register"), "{error}");
}

#[tokio::test]
async fn a_full_window_holds_the_writer_back_until_the_reader_reads_w5() {
    let config = defaults().rx_size(4096).rx_buffers(1).send_buffer(4096);
    let (mut client, mut server) = pair(&config, &config).await;
    let sent = pattern(4, 50_000);
    let expected = sent.clone();
    let writing = tokio::spawn(async move {
        client.write_all(&sent).await.expect("writes");
        client
    });
    let mut received = vec![0; expected.len()];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == expected);
    let client = writing.await.expect("joins");
    assert!(client.stats().protocol.window_stalls > 0);
    assert!(client.stats().protocol.registers_received >= 12);
}

#[tokio::test]
async fn a_client_stays_within_its_credits_c1() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let echo = tokio::spawn(async move {
        let mut received = vec![0; 5000];
        server.read_exact(&mut received).await.expect("reads");
    });
    for byte in pattern(5, 5000) {
        client.write_all(&[byte]).await.expect("writes");
    }
    echo.await.expect("joins");
    // The writer outran the server: what it wrote without credits left together, once the server had answered.
    let counters = client.stats().protocol;
    assert!(counters.credits_low_water.is_some_and(|left| left < 16), "{counters:?}");
    assert!(counters.probes >= 1 && counters.work_requests < 5000, "{counters:?}");
}
