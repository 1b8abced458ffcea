//! How often the task that drives its own stream is woken for a message. On the emulated device, within the process: a
//! message is there as soon as its write returns.

#![cfg(feature = "emulated")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Stream};

/// A waker that counts.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each message moves the deadline of the idle timeout. That must not wake the task that has just read the message: each
/// wake-up of a task is a poll. (On a runtime of one thread the task also wakes itself on purpose, so that others run first.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_wakes_the_task_that_drives_its_stream_once() {
    const MESSAGES: u64 = 100;
    let config = Config::default().idle_timeout(Some(Duration::from_secs(20)));
    let any_port = ([127, 0, 0, 1], 0).into();
    let mut listener = Listener::bind(DeviceKind::Emulated, any_port, &config).await.expect("listens");
    let connect = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
    let (client, server) = tokio::join!(connect, listener.accept());
    let mut client = client.expect("connects").driven();
    let mut server = server.expect("accepts");

    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let mut message = [0; 8];
    // The first message waits until the server knows the client's memory.
    server.write_all(&message).await.expect("writes");
    client.read_exact(&mut message).await.expect("reads");
    for n in 0..MESSAGES {
        let mut buf = ReadBuf::new(&mut message);
        assert!(Pin::new(&mut client).poll_read(&mut cx, &mut buf).is_pending(), "nothing was sent yet");
        let before = wakes.0.load(Ordering::Relaxed);
        server.write_all(&n.to_be_bytes()).await.expect("writes");
        assert!(Pin::new(&mut client).poll_read(&mut cx, &mut buf).is_ready(), "a message is there");
        assert_eq!(buf.filled(), n.to_be_bytes());
        assert_eq!(wakes.0.load(Ordering::Relaxed) - before, 1, "wake-ups for message {n}");
    }
}
