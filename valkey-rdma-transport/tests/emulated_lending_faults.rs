//! Values of a pool on emulated devices that are slow, or refuse.

#![cfg(feature = "emulated")]

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{BufferPool, Config, DeviceKind, Listener, Stream};

const LEN: usize = 50_000;

async fn pair(device: &Device) -> (Stream, Stream) {
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &Config::default()).await.expect("listens");
    let config = Config::default().device(device.name());
    let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
    let (client, server) = tokio::join!(connecting, listener.accept());
    (client.expect("connects"), server.expect("accepts"))
}

#[tokio::test]
async fn a_pool_that_cannot_be_registered_is_copied() {
    for link in [Link::InProcess, Link::Tcp] {
        let device = Device::new(link);
        let (mut client, mut server) = pair(&device).await;
        device.refuse_memory(true);
        let pool = BufferPool::new(1, LEN).expect("a usable pool");
        let pinned = client.stats().pinned_bytes;
        for _ in 0..2 {
            let mut buffer = pool.take().await;
            buffer.fill(7);
            client.write_all(&buffer.freeze()).await.expect("writes");
            let mut received = vec![0; LEN];
            server.read_exact(&mut received).await.expect("reads");
            assert!(received == [7; LEN]);
        }
        let stats = client.stats();
        assert_eq!((stats.device.lent, stats.device.copied_in), (0, 2 * LEN as u64));
        assert_eq!(stats.pinned_bytes, pinned);
    }
}

/// Hazard H20: the device reads the bytes long after they were written.
#[tokio::test(start_paused = true)]
async fn a_buffer_is_not_given_back_before_the_device_has_read_it() {
    let device = Device::new(Link::InProcess);
    let (mut client, mut server) = pair(&device).await;
    let pool = BufferPool::new(1, LEN).expect("a usable pool");
    let late = Duration::from_secs(5);
    device.delay(late..=late, 1);
    let mut buffer = pool.take().await;
    buffer.fill(7);
    client.write_all(&buffer.freeze()).await.expect("writes");
    assert!(tokio::time::timeout(Duration::from_secs(4), pool.take()).await.is_err(), "not yet");
    let mut buffer = pool.take().await;
    buffer.fill(0);
    let mut received = vec![0; LEN];
    server.read_exact(&mut received).await.expect("reads");
    assert!(received == [7; LEN]);
}
