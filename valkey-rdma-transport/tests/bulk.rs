//! Many bytes each way at once through one stream, with windows that do and do not divide anything, in every polling
//! mode, checksummed.
//!
//! Each way carries `VALKEY_RDMA_TEST_BYTES` bytes (4 MiB by default; 1073741824 is the real thing). On the emulated
//! device this runs over every link; `VALKEY_RDMA_TEST_DEVICE` and `VALKEY_RDMA_TEST_ADDR` choose another device.

#![cfg(feature = "emulated")]

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use valkey_rdma_transport::{Config, DeviceKind, Listener, Polling, Stream};

/// Window lengths: Valkey's smallest, its default, and one that is odd.
const WINDOWS: [u32; 3] = [64 << 10, 1 << 20, 100_001];

const MODES: [Polling; 3] = [Polling::Event, Polling::Busy, Polling::Adaptive];

/// Bytes written, and read, at once: no divisor of any window.
const CHUNK: usize = 200_003;

fn bytes_each_way() -> u64 {
    match std::env::var("VALKEY_RDMA_TEST_BYTES") {
        Ok(text) => text.parse().expect("VALKEY_RDMA_TEST_BYTES is a number"),
        Err(_) => 4 << 20,
    }
}

/// The device, and the names by which its links are chosen.
fn device() -> (DeviceKind, Vec<Option<String>>) {
    let name = std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned());
    let kind = name.parse().expect("VALKEY_RDMA_TEST_DEVICE names a device");
    match kind {
        DeviceKind::Verbs => (kind, vec![None]),
        DeviceKind::Emulated => {
            let unix = format!("unix:{}/bulk", env!("CARGO_TARGET_TMPDIR"));
            (kind, vec![Some("inprocess".to_owned()), Some("tcp".to_owned()), Some(unix)])
        }
    }
}

fn any_port() -> SocketAddr {
    let host = std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    SocketAddr::new(host.parse::<IpAddr>().expect("VALKEY_RDMA_TEST_ADDR is an IP address"), 0)
}

/// Bytes of which none says where the next chunk goes on.
struct Pattern(u64);

impl Pattern {
    fn fill(&mut self, chunk: &mut [u8]) {
        for word in chunk.chunks_mut(8) {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&self.0.to_le_bytes()[..word.len()]);
        }
    }
}

/// A sum over bytes and their places, fast enough not to be what is measured.
#[derive(Default)]
struct Checksum(u64);

impl Checksum {
    fn add(&mut self, chunk: &[u8]) {
        for word in chunk.chunks(8) {
            let mut bytes = [0; 8];
            bytes[..word.len()].copy_from_slice(word);
            self.0 = (self.0.rotate_left(5) ^ u64::from_le_bytes(bytes)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }
}

/// Writes `total` bytes and returns their checksum.
async fn send(mut writer: WriteHalf<Stream>, seed: u64, total: u64) -> (u64, WriteHalf<Stream>) {
    let (mut pattern, mut checksum) = (Pattern(seed), Checksum::default());
    let mut chunk = vec![0; CHUNK];
    let mut left = total;
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        pattern.fill(&mut chunk[..len]);
        checksum.add(&chunk[..len]);
        writer.write_all(&chunk[..len]).await.expect("writes");
        left -= len as u64;
    }
    (checksum.0, writer)
}

/// Reads `total` bytes and returns their checksum, in pieces of the same lengths.
async fn receive(mut reader: ReadHalf<Stream>, total: u64) -> (u64, ReadHalf<Stream>) {
    let mut checksum = Checksum::default();
    let mut chunk = vec![0; CHUNK];
    let mut left = total;
    while left > 0 {
        let len = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        reader.read_exact(&mut chunk[..len]).await.expect("reads");
        checksum.add(&chunk[..len]);
        left -= len as u64;
    }
    (checksum.0, reader)
}

/// Sends and receives at once; returns the checksum of what was sent and that of what arrived.
async fn both_ways(stream: Stream, seed: u64, total: u64) -> (u64, u64, Stream) {
    let (reader, writer) = tokio::io::split(stream);
    let sending = tokio::spawn(send(writer, seed, total));
    let receiving = tokio::spawn(receive(reader, total));
    let (sent, writer) = sending.await.expect("sends");
    let (arrived, reader) = receiving.await.expect("receives");
    (sent, arrived, reader.unsplit(writer))
}

async fn transfer(kind: DeviceKind, config: &Config, total: u64) {
    let mut listener = Listener::bind(kind, any_port(), config).await.expect("listens");
    let addr = listener.local_addr();
    let (client, server) = tokio::join!(Stream::connect(kind, addr, config), listener.accept());
    let (client, server) = (client.expect("connects"), server.expect("accepts"));
    let serving = tokio::spawn(both_ways(server, 2, total));
    let (up_sent, down_arrived, client) = both_ways(client, 1, total).await;
    let (down_sent, up_arrived, server) = serving.await.expect("the server's side is right");
    assert_eq!((up_arrived, down_arrived), (up_sent, down_sent), "checksums differ");
    for stream in [client, server] {
        let counters = stream.stats().protocol;
        assert_eq!((counters.bytes_sent, counters.bytes_received), (total, total));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_each_way_at_once_arrive_as_they_were_sent_w4() {
    let total = bytes_each_way();
    let (kind, links) = device();
    for link in links {
        for (mode, window) in MODES.into_iter().flat_map(|mode| WINDOWS.map(|window| (mode, window))) {
            let mut config = Config::default().rx_size(window).polling(mode);
            if let Some(name) = &link {
                config = config.device(name);
            }
            let begin = Instant::now();
            transfer(kind, &config, total).await;
            let name = link.as_deref().unwrap_or("verbs");
            report(name, mode, window, total, begin.elapsed().as_secs_f64());
        }
    }
}

#[expect(clippy::print_stderr, reason = "the figures are worth seeing")]
fn report(link: &str, mode: Polling, window: u32, total: u64, seconds: f64) {
    let rate = 2.0 * total as f64 / seconds / 1e6;
    eprintln!(
        "{link}, {mode}, windows of {window} bytes: {total} bytes each way in {seconds:.2} s, {rate:.0} MB/s"
    );
}
