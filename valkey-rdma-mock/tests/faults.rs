//! What scripted misbehaviour counts as having happened: what a peer can notice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::localhost;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};
use valkey_rdma_transport::{BufferPool, Listener, Stream, device};

/// How many faults have happened when a client was answered.
async fn happened(script: &str) -> u64 {
    let faults: Faults = script.parse().unwrap();
    let config = TransportConfig::default();
    let honest = device::listen(DeviceKind::Emulated, localhost(), &config.device_options()).await.unwrap();
    let addr = honest.local_addr();
    let listener = Listener::over(faults.listener(honest), &config);
    let _server = Server::builder(Mock::new()).listener(listener).start().await.unwrap();
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
    stream.write_all(b"PING\r\n").await.unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"+PONG\r\n", "{script}");
    faults.happened()
}

#[tokio::test]
async fn what_a_peer_notices_counts() {
    for script in [
        "register-late=1",
        "reserved,seed=1",
        "imm-zero",
        "imm-split=3",
        "write-first",
        "keepalive-flood=3",
        "stall=1",
        "register-length=65536",
    ] {
        assert_eq!(happened(script).await, 1, "{script}");
    }
}

#[tokio::test]
async fn what_comes_to_nothing_does_not_count() {
    for script in [
        "register-length=1048576",
        "imm-split=1",
        "tail-missing",
        "address-stale",
        "lenient-opcode",
        "lenient-length",
        "lenient-imm",
    ] {
        assert_eq!(happened(script).await, 0, "{script}");
    }
}

/// Noise is written to the send buffer only: the memory of a pool is never changed.
#[tokio::test]
async fn a_value_of_a_pool_is_copied_before_anything_happens_to_it() {
    let faults: Faults = "garbage@2".parse().unwrap();
    let config = TransportConfig::default();
    let honest = device::listen(DeviceKind::Emulated, localhost(), &config.device_options()).await.unwrap();
    let addr = honest.local_addr();
    let mut listener = Listener::over(faults.listener(honest), &config);
    let (client, server) =
        tokio::join!(Stream::connect(DeviceKind::Emulated, addr, &config), listener.accept());
    let (mut client, mut server) = (client.unwrap(), server.unwrap());
    let mut buffer = BufferPool::new(1, 50_000).unwrap().take().await;
    buffer.fill(7);
    let value = buffer.freeze();
    for right in [true, false] {
        server.write_all(&value).await.unwrap();
        let mut received = vec![0; value.len()];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(received == value, right);
    }
    assert!(value.iter().all(|byte| *byte == 7));
    assert_eq!((faults.happened(), server.stats().device.lent), (1, 0));
}

/// Two faults that change the same immediate. The second one subtracted more than was left, which panicked.
#[tokio::test]
async fn faults_that_change_the_same_immediate_do_not_panic() {
    let faults: Faults = "imm-swapped,imm-split=3".parse().unwrap();
    let config = TransportConfig::default();
    let honest = device::listen(DeviceKind::Emulated, localhost(), &config.device_options()).await.unwrap();
    let addr = honest.local_addr();
    let listener = Listener::over(faults.listener(honest), &config);
    let _server = Server::builder(Mock::new()).listener(listener).start().await.unwrap();
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
    // The reply has 65 536 bytes: swapped, its immediate is 256.
    let value = "x".repeat(65_526);
    stream.write_all(format!("*2\r\n$4\r\nECHO\r\n$65526\r\n{value}\r\n").as_bytes()).await.unwrap();
    let both = async {
        while faults.happened() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), both).await.expect("both faults happen");
}
