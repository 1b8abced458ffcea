//! Queues as shallow as asked for carry everything. See `stream_pair` for how a device is chosen.

#![cfg(feature = "emulated")]

use stream_pair::{bounded, pair, pattern};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{Config, DeviceKind, Stream, TransportError};

mod stream_pair;

/// Bytes that cross each way, ten to a write.
const LEN: usize = 20_000;

/// Writes and reads at once; what was read.
async fn exchange(stream: &mut Stream, sent: &[u8]) -> Vec<u8> {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let write = async {
        for piece in sent.chunks(10) {
            writer.write_all(piece).await.expect("writes");
            writer.flush().await.expect("flushes");
        }
    };
    let mut received = vec![0; LEN];
    let ((), read) = tokio::join!(write, reader.read_exact(&mut received));
    read.expect("reads");
    received
}

#[tokio::test]
async fn the_shallowest_queues_carry_many_small_writes_both_ways() {
    let shallow = Config::default().rx_size(1 << 12);
    let deep = shallow.pinned_bytes();
    let shallow = shallow.send_depth(0).receive_depth(0);
    let (mut client, mut server) = pair(&shallow, &shallow).await;
    assert_eq!(
        client.stats().pinned_bytes,
        shallow.pinned_bytes_at_first(),
        "what is promised is what is pinned"
    );
    assert_eq!(deep - shallow.pinned_bytes(), 32 * (1024 - 16), "32 bytes for each receive");
    let (from_client, from_server) = (pattern(1, LEN), pattern(2, LEN));
    let (at_client, at_server) = bounded(async {
        tokio::join!(exchange(&mut client, &from_client), exchange(&mut server, &from_server))
    })
    .await;
    assert!(at_client == from_server && at_server == from_client);
}

#[tokio::test]
async fn what_only_kernel_verbs_have_is_refused_by_the_emulated_device() {
    let addr = "127.0.0.1:1".parse().expect("an address");
    let config = Config::default().retry_count(200);
    assert_eq!(config.device_options().retry_count, Some(7), "brought into its range");
    let error = Stream::connect(DeviceKind::Emulated, addr, &config).await.expect_err("an option of verbs");
    assert!(matches!(error, TransportError::EmulatedOption { option: "retry count" }), "{error:?}");
}
