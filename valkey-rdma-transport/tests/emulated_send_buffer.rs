//! The send buffer: 64 KiB at first, and its whole size from when a connection has more to send at once until it is quiet. With exact
//! counts of pinned bytes.

#![cfg(feature = "emulated")]

use std::io::ErrorKind;
use std::time::Duration;

use stream_pair::{pair, pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{Config, FeatureSet, Stream};

mod stream_pair;

const FIRST: usize = 64 << 10;

async fn exchange(from: &mut Stream, to: &mut Stream, len: usize) {
    let sent = pattern(len as u64, len);
    let mut received = vec![0; len];
    let (written, read) = tokio::join!(from.write_all(&sent), to.read_exact(&mut received));
    written.expect("writes");
    read.expect("reads");
    assert!(received == sent);
}

/// Pinned bytes, and the length of the send buffer.
fn seen(stream: &Stream) -> (u64, usize) {
    (stream.stats().pinned_bytes, stream.info().send_buffer as usize)
}

#[tokio::test]
async fn it_grows_once_when_more_has_to_be_sent_at_once() {
    let config = Config::default();
    let (mut client, mut server) = pair(&config, &config).await;
    assert_eq!((config.pinned_bytes_at_first(), config.pinned_bytes()), (2_195_968, 3_244_544));
    for _ in 0..20 {
        exchange(&mut client, &mut server, FIRST / 4).await;
    }
    assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
    for len in [FIRST + 1, 3 << 20, 1] {
        exchange(&mut client, &mut server, len).await;
        assert_eq!(seen(&client), (config.pinned_bytes(), 1 << 20));
    }
    assert_eq!(seen(&server), (config.pinned_bytes_at_first(), FIRST), "it has sent nothing");
}

#[tokio::test]
async fn a_size_of_up_to_128_kib_is_pinned_at_once() {
    for (bytes, first) in [(4096, 4096), (128 << 10, 128 << 10), ((128 << 10) + 1, FIRST)] {
        let config = Config::default().send_buffer(bytes);
        let (mut client, mut server) = pair(&config, &config).await;
        assert_eq!(client.info().send_buffer as usize, first);
        exchange(&mut client, &mut server, 1 << 20).await;
        assert_eq!(client.stats().pinned_bytes, config.pinned_bytes());
    }
}

/// What waits in the first part leaves from there, while the second part is in use.
#[tokio::test(start_paused = true)]
async fn bytes_that_wait_for_the_peers_window_keep_their_place_when_it_grows() {
    let narrow = Config::default().rx_size(1000).rx_buffers(1);
    let (mut client, mut server) = pair(&Config::default(), &narrow).await;
    let sent = pattern(3, 500_000);
    // 999 bytes at a time: the first part is full in its middle.
    for chunk in sent.chunks(999) {
        client.write_all(chunk).await.expect("there is room for all of it");
    }
    assert_eq!(client.stats().pinned_bytes, Config::default().pinned_bytes());
    let mut received = vec![0; sent.len()];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == sent);
}

/// As long as three looks take, which are 10 s apart.
const QUIET: Duration = Duration::from_secs(31);

#[tokio::test(start_paused = true)]
async fn what_has_grown_is_given_back_after_a_quiet_time_and_grows_again() {
    let config = Config::default();
    let (mut client, mut server) = pair(&config, &config).await;
    for len in [FIRST + 1, 3 << 20, 100 << 10] {
        exchange(&mut client, &mut server, len).await;
        assert_eq!(seen(&client), (config.pinned_bytes(), 1 << 20));
        tokio::time::sleep(QUIET).await;
        assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
        exchange(&mut client, &mut server, FIRST / 4).await;
        assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
    }
    assert_eq!(client.max_reservation(), 544 << 10, "it can still become as long as before");
}

/// The last writes before a pause ask for no completion. Here no completion is due at all, and no other event.
#[tokio::test(start_paused = true)]
async fn it_is_given_back_by_a_side_to_which_nothing_comes() {
    let config = Config::default();
    let (mut client, mut server) = pair(&config, &config.clone().keepalive(None)).await;
    // The timers of the handshake have fired, too.
    tokio::time::sleep(QUIET).await;
    exchange(&mut client, &mut server, 100 << 10).await;
    tokio::time::sleep(QUIET).await;
    assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
}

/// The last bytes in flight are not acknowledged before more is sent: a reservation must not wait for them.
#[tokio::test(start_paused = true)]
async fn a_reservation_finds_room_beside_bytes_that_are_not_acknowledged() {
    for send_buffer in [4096, 128 << 10, (128 << 10) + 4, 160 << 10, 191 << 10, 1 << 20] {
        let config = Config::default().send_buffer(send_buffer);
        let (mut client, mut server) = pair(&config, &config.clone().keepalive(None)).await;
        let most = client.max_reservation();
        let mut received = vec![0; most];
        for unacknowledged in [0, 1, send_buffer as usize / 8, most / 4 - 1] {
            exchange(&mut client, &mut server, unacknowledged).await;
            let reserve = client.write_with(most, |room| room.len());
            let reserved = tokio::time::timeout(Duration::from_secs(1), reserve).await;
            let reserved = reserved.unwrap_or_else(|_| panic!("{most} of {send_buffer} wait for room"));
            assert_eq!(reserved.expect("writes"), most);
            server.read_exact(&mut received).await.expect("reads");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_goes_on_writing_keeps_what_has_grown() {
    let config = Config::default();
    // The device acknowledges a quarter of the send buffer at once, and single bytes not at all before more is sent.
    for len in [1, 256 << 10] {
        let (mut client, mut server) = pair(&config, &config).await;
        exchange(&mut client, &mut server, 256 << 10).await;
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_secs(9)).await;
            assert_eq!(seen(&client), (config.pinned_bytes(), 1 << 20));
            exchange(&mut client, &mut server, len).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bytes_that_wait_for_the_peers_window_keep_what_has_grown() {
    let (config, narrow) = (Config::default(), Config::default().rx_size(1000).rx_buffers(1));
    let (mut client, mut server) = pair(&config, &narrow).await;
    let sent = pattern(9, 500_000);
    client.write_all(&sent).await.expect("there is room for all of it");
    tokio::time::sleep(2 * QUIET).await;
    assert_eq!(client.stats().pinned_bytes, config.pinned_bytes());
    let mut received = vec![0; sent.len()];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == sent);
    tokio::time::sleep(QUIET).await;
    assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
}

/// The device may have to send them again.
#[tokio::test(start_paused = true)]
async fn bytes_on_their_way_keep_what_has_grown() {
    let device = Device::new(Link::InProcess);
    let config = Config::default().device(device.name()).connect_timeout(Duration::from_secs(30));
    let (mut client, mut server) = pair(&config, &Config::default()).await;
    let on_the_way = 2 * QUIET;
    device.delay(on_the_way..=on_the_way, 0);
    let sent = pattern(11, 100 << 10);
    client.write_all(&sent).await.expect("there is room for all of it");
    tokio::time::sleep(on_the_way - Duration::from_secs(1)).await;
    assert_eq!(client.stats().pinned_bytes, config.pinned_bytes());
    let mut received = vec![0; sent.len()];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == sent);
    tokio::time::sleep(on_the_way).await;
    assert_eq!(seen(&client), (config.pinned_bytes_at_first(), FIRST));
}

#[tokio::test]
async fn an_encoder_gets_room_that_the_first_part_has_not() {
    let (mut client, mut server) = pair(&Config::default(), &Config::default()).await;
    let (len, sent) = (client.max_reservation(), pattern(5, 544 << 10));
    assert_eq!(len, sent.len(), "half of the size that it can have");
    let filled = client.write_with(len, |room| {
        room.copy_from_slice(&sent);
        room.len()
    });
    let mut received = vec![0; len];
    let (filled, read) = tokio::join!(filled, server.read_exact(&mut received));
    assert_eq!(filled.expect("writes"), len);
    read.expect("reads");
    assert!(received == sent);
}

#[tokio::test]
async fn a_connection_that_cannot_pin_more_keeps_the_first_part() {
    let device = Device::new(Link::InProcess);
    let config = Config::default().device(device.name()).connect_timeout(Duration::from_secs(30));
    let (mut client, mut server) = pair(&config, &Config::default()).await;
    device.refuse_memory(true);
    exchange(&mut client, &mut server, 1 << 20).await;
    assert_eq!(client.stats().pinned_bytes, config.pinned_bytes_at_first());
}

/// Before, it waited for room that there can never be.
#[tokio::test]
async fn an_encoder_is_refused_the_room_that_could_not_be_pinned() {
    let device = Device::new(Link::InProcess);
    let config = Config::default().device(device.name()).connect_timeout(Duration::from_secs(30));
    let (mut client, mut server) = pair(&config, &Config::default()).await;
    device.refuse_memory(true);
    let refused = client.write_with(100 << 10, |_| unreachable!("refused")).await.expect_err("no room");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    assert_eq!(refused.to_string(), "102400 bytes are more than the send buffer takes at once, 32768 bytes");
    assert_eq!(client.max_reservation(), FIRST / 2);
    assert_eq!(client.write_with(FIRST / 2, |room| room.len()).await.expect("writes"), FIRST / 2);
    let mut received = vec![0; FIRST / 2];
    server.read_exact(&mut received).await.expect("reads");
}

/// Until the peer has chosen, the send buffer keeps its first part.
#[tokio::test]
async fn an_encoder_that_needs_more_than_the_first_part_waits_for_the_peers_choice() {
    let offers = Config::default().offers(FeatureSet::TLS);
    let (mut client, mut server) = pair(&Config::default(), &offers).await;
    let (sent, mut received) = (pattern(7, 100 << 10), vec![0; 100 << 10]);
    let filling = server.write_with(sent.len(), |room| {
        room.copy_from_slice(&sent);
        room.len()
    });
    let talking = async {
        client.write_all(b"its first byte is its choice").await?;
        client.read_exact(&mut received).await
    };
    let (filled, read) = tokio::join!(filling, talking);
    assert_eq!(filled.expect("writes"), sent.len());
    read.expect("reads");
    assert!(received == sent);
}
