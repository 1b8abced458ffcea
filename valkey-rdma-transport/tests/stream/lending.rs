//! Values of a pool are sent from where they lie, and everything else about them is as ever: areas W, X and L. See
//! `stream_pair` for how a device is chosen.

use std::io::IoSlice;

use super::stream_pair::{bounded, defaults, pair, pattern, polling_modes};
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use valkey_rdma_transport::{BufferPool, Config, SendRegion, Stream};

const LEN: usize = 100_000;

fn pool(buffers: usize) -> BufferPool {
    BufferPool::new(buffers, LEN).expect("a usable pool")
}

/// A value in a buffer of the pool.
async fn value(pool: &BufferPool, seed: u64) -> Bytes {
    let mut buffer = bounded(pool.take()).await;
    buffer.copy_from_slice(&pattern(seed, LEN));
    buffer.freeze()
}

/// Writes it as a client does: with something before it and behind it.
async fn write_around(stream: &mut (impl AsyncWrite + Unpin), value: &[u8]) {
    let mut pieces = [IoSlice::new(b"begin"), IoSlice::new(value), IoSlice::new(b"end")];
    let mut pieces = &mut pieces[..];
    while !pieces.is_empty() {
        let written = stream.write_vectored(pieces).await.expect("writes");
        IoSlice::advance_slices(&mut pieces, written);
    }
}

/// By how much the send buffer grows, because more than 64 KiB are sent at once. Lent bytes count as if they were in it.
fn growth() -> u64 {
    defaults().pinned_bytes() - defaults().pinned_bytes_at_first()
}

async fn expect_around(stream: &mut Stream, value: &[u8]) {
    let mut received = vec![0; 5 + value.len() + 3];
    bounded(stream.read_exact(&mut received)).await.expect("reads");
    assert!(received == [&b"begin"[..], value, b"end"].concat(), "bytes differ");
}

#[tokio::test]
async fn a_value_of_a_pool_is_not_copied_and_is_one_message_with_what_surrounds_it() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let pool = pool(1);
    for n in 0..3 {
        let before = client.stats();
        let value = value(&pool, n).await;
        write_around(&mut client, &value).await;
        let after = client.stats();
        assert_eq!(after.device.lent - before.device.lent, LEN as u64);
        assert_eq!(after.device.copied_in - before.device.copied_in, 8);
        assert_eq!(after.device.doorbells - before.device.doorbells, 1);
        assert_eq!(after.protocol.work_requests - before.protocol.work_requests, 3);
        let pinned = if n == 0 { LEN.next_multiple_of(64) as u64 + growth() } else { 0 };
        assert_eq!(after.pinned_bytes - before.pinned_bytes, pinned, "registered once");
        expect_around(&mut server, &value).await;
        assert_eq!(server.stats().protocol.immediates_received, n + 1);
    }
}

#[tokio::test]
async fn small_parts_of_a_pool_are_copied_with_the_rest() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let value = value(&pool(1), 1).await.slice(10_000..18_191);
    write_around(&mut client, &value).await;
    let stats = client.stats();
    assert_eq!((stats.device.lent, stats.device.copied_in), (0, 8199));
    assert_eq!(stats.protocol.work_requests, 2, "the Register, and one write");
    expect_around(&mut server, &value).await;
}

#[tokio::test]
async fn a_buffer_that_may_still_change_is_copied() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let mut buffer = pool(1).take().await;
    buffer.fill(1);
    write_around(&mut client, &buffer).await;
    buffer.fill(2);
    assert_eq!(client.stats().device.lent, 0);
    expect_around(&mut server, &[1; LEN]).await;
}

#[tokio::test]
async fn a_buffer_comes_back_when_its_bytes_have_been_delivered() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let pool = pool(1);
    let value = value(&pool, 1).await;
    write_around(&mut client, &value).await;
    drop(value);
    // Nothing is read on either side: the device's acknowledgement alone brings it back.
    let mut buffer = bounded(pool.take()).await;
    buffer.fill(0);
    expect_around(&mut server, &pattern(1, LEN)).await;
}

/// More values than buffers, than send buffer and window hold, among small writes, in every mode.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_keep_their_order_whatever_the_polling_and_the_windows_w4() {
    for (mode, config) in polling_modes() {
        for (window, send_buffer) in [(1 << 16, 1 << 16), (100_001, 1 << 18), (1 << 20, 1 << 20)] {
            let config = config.clone().rx_size(window).send_buffer(send_buffer);
            let (mut client, mut server) = pair(&config, &config).await;
            let pool = pool(2);
            let monitor = client.monitor();
            let writing = tokio::spawn(async move {
                for seed in 0..20 {
                    let value = value(&pool, seed).await;
                    let from = (seed as usize * 4999) % LEN;
                    write_around(&mut client, &value[from..]).await;
                }
                (client, pool)
            });
            for seed in 0..20 {
                let from = (seed as usize * 4999) % LEN;
                expect_around(&mut server, &pattern(seed, LEN)[from..]).await;
            }
            let (_client, pool) = writing.await.expect("no panic");
            bounded(async { (pool.take().await, pool.take().await) }).await;
            assert!(monitor.stats().device.lent > 0, "{mode:?}");
        }
    }
}

#[tokio::test]
async fn one_pool_serves_connections_side_by_side_and_one_after_the_other() {
    let pool = pool(2);
    for round in 0..2 {
        let (mut one, mut one_end) = pair(&defaults(), &defaults()).await;
        let (mut other, mut other_end) = pair(&defaults(), &defaults()).await;
        let value = value(&pool, round).await;
        write_around(&mut one, &value).await;
        write_around(&mut other, &value).await;
        for stream in [&one, &other] {
            assert_eq!(stream.stats().device.lent, LEN as u64);
        }
        expect_around(&mut one_end, &value).await;
        expect_around(&mut other_end, &value).await;
    }
}

#[tokio::test]
async fn a_task_that_drives_its_stream_lends_as_well() {
    let (client, mut server) = pair(&defaults(), &defaults()).await;
    let monitor = client.monitor();
    let mut client = client.driven();
    let pool = pool(1);
    let value = value(&pool, 1).await;
    write_around(&mut client, &value).await;
    assert_eq!(monitor.stats().device.lent, LEN as u64);
    expect_around(&mut server, &value).await;
    drop(value);
    // It takes the acknowledgement when it is polled, as everything else.
    tokio::select! {
        _ = bounded(pool.take()) => {}
        read = client.read_u8() => panic!("nothing was written: {read:?}"),
    }
}

#[tokio::test]
async fn what_is_being_sent_when_a_connection_ends_comes_back_x3() {
    let pool = pool(1);
    let small: Config = defaults().rx_size(1 << 16).rx_buffers(1);
    let (mut client, mut server) = pair(&defaults(), &small).await;
    // More than the peer's window takes: the rest waits, for ever.
    let value = value(&pool, 1).await;
    write_around(&mut client, &value).await;
    drop(value);
    server.write_all(b"no").await.expect("writes");
    drop(server);
    assert_eq!(bounded(client.read_u8()).await.expect("reads"), b'n');
    let told = bounded(async {
        loop {
            if let Err(error) = client.write(b"x").await {
                break error;
            }
        }
    });
    assert_eq!(told.await.kind(), std::io::ErrorKind::BrokenPipe, "the connection has ended");
    assert_eq!(pool.available(), 0, "something is left to be read");
    assert_eq!(bounded(client.read_u8()).await.expect("reads"), b'o');
    assert!(bounded(client.read_u8()).await.is_err(), "the end");
    bounded(pool.take()).await;
    assert!(client.shutdown().await.is_err(), "not all was delivered");
}

#[tokio::test]
async fn two_pools_serve_one_connection() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let (one, other) = (pool(1), pool(1));
    for seed in 0..3 {
        let values = [value(&one, seed).await, value(&other, seed + 10).await];
        for value in &values {
            write_around(&mut client, value).await;
        }
        for value in &values {
            expect_around(&mut server, value).await;
        }
    }
    assert_eq!(client.stats().device.lent, 6 * LEN as u64);
}

#[tokio::test]
async fn a_value_longer_than_the_send_buffer_is_lent_bit_by_bit() {
    const LONG: usize = 10 << 17;
    let config = defaults().send_buffer(1 << 17);
    let (mut client, mut server) = pair(&config, &defaults()).await;
    let mut buffer = BufferPool::new(1, LONG).expect("a usable pool").take().await;
    buffer.copy_from_slice(&pattern(1, LONG));
    let value = buffer.freeze();
    let (_, ()) = tokio::join!(expect_around(&mut server, &value), write_around(&mut client, &value));
    let device = client.stats().device;
    assert_eq!(device.lent + device.copied_in, LONG as u64 + 8);
    assert!(device.copied_in < LONG as u64 / 4, "{device:?}");
}

#[tokio::test]
async fn a_shutdown_delivers_what_is_lent_x1() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let pool = pool(1);
    let value = value(&pool, 1).await;
    write_around(&mut client, &value).await;
    bounded(client.shutdown()).await.expect("delivered");
    expect_around(&mut server, &value).await;
    drop((value, client));
    bounded(pool.take()).await;
}

#[tokio::test]
async fn a_value_of_a_region_is_not_copied_and_is_held_until_it_was_delivered() {
    let (mut client, mut server) = pair(&defaults(), &defaults()).await;
    let memory = Bytes::from(pattern(1, 3 * LEN));
    let region = SendRegion::new(memory.as_ptr().addr(), memory.len(), memory.clone());
    for n in 0..2 {
        let before = client.stats();
        let value = region.lend(memory.slice(n * LEN..(n + 1) * LEN));
        write_around(&mut client, &value).await;
        let after = client.stats();
        assert_eq!(after.device.lent - before.device.lent, LEN as u64);
        assert_eq!(after.device.copied_in - before.device.copied_in, 8);
        let pinned = if n == 0 { memory.len() as u64 + growth() } else { 0 };
        assert_eq!(after.pinned_bytes - before.pinned_bytes, pinned, "registered once");
        expect_around(&mut server, &value).await;
    }
    // What is not lent may change, so it is copied.
    let not_lent = &memory[2 * LEN..];
    write_around(&mut client, not_lent).await;
    assert_eq!(client.stats().device.lent, 2 * LEN as u64);
    expect_around(&mut server, not_lent).await;
}
