//! Streams that their only task drives, and streams whose driver is gone. See `stream_pair` for how a device is chosen.

#![cfg(feature = "emulated")]

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use stream_pair::{bounded, defaults, device, listen, pair, pattern, polling_modes};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use valkey_rdma_transport::{Config, Stream, TransportError};

mod stream_pair;

/// Sends and receives at once, in one task. The rest, the background delivers.
async fn exchange(stream: Stream, mine: &[u8], theirs: &[u8]) -> Stream {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut received = vec![0; theirs.len()];
    let (sent, read) = tokio::join!(writer.write_all(mine), reader.read_exact(&mut received));
    sent.expect("writes");
    read.expect("reads");
    assert!(received == theirs, "bytes differ");
    reader.unsplit(writer).resting()
}

async fn both_ways(config: &Config, len: usize) {
    let (client, server) = pair(config, config).await;
    let (up, down) = (pattern(1, len), pattern(2, len));
    let (asked, sent) = (up.clone(), down.clone());
    let server = tokio::spawn(async move { exchange(server.driven(), &sent, &asked).await });
    bounded(exchange(client.driven(), &up, &down)).await;
    bounded(server).await.expect("the server's side is right");
}

#[tokio::test]
async fn bytes_arrive_in_order_both_ways_at_once_w4() {
    for (_, config) in polling_modes() {
        for window in [1 << 16, 100_001] {
            both_ways(&config.clone().rx_size(window).send_buffer(1 << 18), 3_000_000).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_do_on_a_runtime_of_several_threads_w4() {
    for (_, config) in polling_modes() {
        both_ways(&config.rx_size(100_001).send_buffer(1 << 18), 3_000_000).await;
    }
}

/// Nothing but the writes is polled while they wait for the peer's window.
#[tokio::test]
async fn a_write_that_waits_drives_the_connection_w6() {
    let config = defaults().rx_size(10_001).send_buffer(1 << 16);
    let (client, mut server) = pair(&config, &config).await;
    let sent = pattern(3, 1_000_000);
    let expected = sent.clone();
    let reading = tokio::spawn(async move {
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.expect("ends");
        assert!(received == expected);
    });
    let mut client = client.driven();
    bounded(client.write_all(&sent)).await.expect("writes");
    bounded(client.shutdown()).await.expect("everything is acknowledged");
    reading.await.expect("the peer has all of it");
}

/// It needs a timer, and the thread of a client's caller may have no runtime.
#[test]
fn a_write_that_waits_outside_of_a_runtime_drives_within_its_own() {
    let runtime = one_thread();
    let config = defaults().rx_size(10_001).send_buffer(1 << 16);
    let (client, server) = runtime.block_on(pair(&config, &config));
    let mut client = runtime.block_on(async { client.driven() });
    let bytes = pattern(3, 100_000);
    let mut cx = Context::from_waker(Waker::noop());
    while Pin::new(&mut client).poll_write(&mut cx, &bytes).is_ready() {}
    runtime.block_on(async { drop((client, server)) });
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A connected stream and its runtime. The server's side lives on a thread of its own until the sender is dropped.
fn with_its_runtime() -> (Stream, Runtime, oneshot::Sender<()>) {
    let (end, ended) = oneshot::channel();
    let (sender, address) = mpsc::channel();
    thread::spawn(move || {
        one_thread().block_on(async move {
            let mut listener = listen(&defaults()).await;
            sender.send(listener.local_addr()).expect("the test waits");
            let _server = listener.accept().await.expect("accepts");
            let _ = ended.await;
        });
    });
    let (address, runtime) = (address.recv().expect("listens"), one_thread());
    let config = defaults().linger(Duration::from_secs(60));
    let client = runtime.block_on(Stream::connect(device(), address, &config)).expect("connects");
    (client, runtime, end)
}

fn names_the_runtime<T>(outcome: io::Result<T>) {
    let Err(error) = outcome else { panic!("no driver, and no error") };
    let typed = error.get_ref().and_then(|error| error.downcast_ref::<TransportError>());
    assert!(matches!(typed, Some(TransportError::RuntimeEnded)), "{error:?}");
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[test]
fn reads_and_writes_end_with_the_runtime_that_drives_the_stream() {
    let (mut client, runtime, _server) = with_its_runtime();
    drop(runtime);
    let other = one_thread();
    names_the_runtime(other.block_on(bounded(client.read(&mut [0]))));
    names_the_runtime(other.block_on(bounded(client.write(&[0]))));
    names_the_runtime(other.block_on(bounded(client.shutdown())));
}

#[test]
fn a_read_that_waits_ends_with_the_runtime_that_drives_the_stream() {
    let (mut client, runtime, _server) = with_its_runtime();
    let mut byte = [0];
    let read = async {
        let mut read = pin!(client.read(&mut byte));
        assert!(poll_fn(|cx| Poll::Ready(read.as_mut().poll(cx).is_pending())).await);
        // This one may be dropped inside of another.
        runtime.shutdown_background();
        bounded(read).await
    };
    names_the_runtime(one_thread().block_on(read));
}

#[test]
fn a_shutdown_that_waits_ends_with_the_runtime_that_drives_the_stream() {
    let (mut client, runtime, _server) = with_its_runtime();
    let shutdown = async {
        let mut shutdown = pin!(client.shutdown());
        assert!(poll_fn(|cx| Poll::Ready(shutdown.as_mut().poll(cx).is_pending())).await);
        runtime.shutdown_background();
        bounded(shutdown).await
    };
    names_the_runtime(one_thread().block_on(shutdown));
}

#[test]
fn a_driven_stream_that_rests_when_its_runtime_has_shut_down_ends() {
    let (client, runtime, _server) = with_its_runtime();
    let client = runtime.block_on(async { client.driven() });
    drop(runtime);
    let mut client = client.resting();
    names_the_runtime(one_thread().block_on(bounded(client.read(&mut [0]))));
}

#[tokio::test]
async fn nothing_runs_in_the_background_until_it_is_a_stream_again() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (client, mut server) = pair(&defaults(), &defaults()).await;
    let monitor = client.monitor();
    let with_background = tasks();
    let client = client.driven();
    bounded(async {
        while tasks() == with_background {
            tokio::task::yield_now().await;
        }
    })
    .await;
    server.write_all(b"unread").await.expect("writes");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(monitor.stats().protocol.immediates_received, 0);
    // Nobody reads now either, and yet the device's completions are taken.
    let _client = client.resting();
    bounded(async {
        while monitor.stats().protocol.immediates_received == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(tasks(), with_background);
}

/// More than the peer's window holds, so that the peer has to make room for the rest.
#[tokio::test]
async fn one_that_is_dropped_delivers_what_was_written_x1() {
    let config = defaults().rx_size(1000).send_buffer(1 << 16);
    let (client, mut server) = pair(&config, &config).await;
    let mut client = client.driven();
    let sent = pattern(4, 30_000);
    client.write_all(&sent).await.expect("writes");
    drop(client);
    let mut received = Vec::new();
    bounded(server.read_to_end(&mut received)).await.expect("end of file, not an error");
    assert!(received == sent);
}

#[tokio::test]
async fn driving_learns_how_long_to_look() {
    let [_, (_, adaptive), _] = polling_modes();
    let (client, mut server) = pair(&adaptive, &adaptive).await;
    let mut client = client.driven();
    let echo = tokio::spawn(async move {
        while let Ok(byte) = server.read_u8().await {
            server.write_u8(byte).await.expect("writes");
        }
    });
    for n in 0..10 {
        client.write_u8(n).await.expect("writes");
        assert_eq!(bounded(client.read_u8()).await.expect("reads"), n);
    }
    // What it slept for came within the 50 ms that this mode's limit is here.
    assert!(!client.stats().spin_budget.is_zero(), "{:?}", client.stats());
    drop(client);
    bounded(echo).await.expect("no panic");
}

#[tokio::test]
async fn the_peers_end_comes_after_its_last_bytes_x2() {
    let (client, mut server) = pair(&defaults(), &defaults()).await;
    let mut client = client.driven();
    let mut first = [0; 2];
    let read = tokio::spawn(async move {
        client.read_exact(&mut first).await.expect("reads");
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.expect("end of file, not an error");
        rest
    });
    server.write_all(b"+OK\r\n").await.expect("writes");
    server.shutdown().await.expect("everything is acknowledged");
    assert_eq!(bounded(read).await.expect("no panic"), b"K\r\n");
}
