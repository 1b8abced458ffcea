//! A connected pair of streams. The device is the one that `VALKEY_RDMA_TEST_DEVICE` names (`emulated` by default),
//! the address the one in `VALKEY_RDMA_TEST_ADDR` (`127.0.0.1` by default). In a module `tcp` or `unix` it is the
//! emulated device over these sockets.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use valkey_rdma_transport::{Config, DeviceKind, Listener, Polling, SharedCq, Stream};

/// The emulated device's name, in a module `tcp` or `unix`.
fn device_name() -> Option<String> {
    let module = module_path!();
    if module.contains("::tcp::") {
        Some("tcp".to_owned())
    } else if module.contains("::unix::") {
        Some(format!("unix:{}/streams", env!("CARGO_TARGET_TMPDIR")))
    } else {
        None
    }
}

thread_local! {
    /// That of the connections that this thread makes, if they are to share their completion queues: with
    /// `VALKEY_RDMA_TEST_SHARE` set.
    static GROUP: SharedCq = SharedCq::new();
}

/// The defaults, on the device under test.
pub(crate) fn defaults() -> Config {
    let mut config = Config::default();
    if let Some(name) = device_name() {
        config = config.device(name);
    }
    if std::env::var_os("VALKEY_RDMA_TEST_SHARE").is_some() {
        GROUP.with(|group| config.shared_cq(group))
    } else {
        config
    }
}

pub(crate) fn device() -> DeviceKind {
    if device_name().is_some() {
        return DeviceKind::Emulated;
    }
    let name = std::env::var("VALKEY_RDMA_TEST_DEVICE").unwrap_or_else(|_| "emulated".to_owned());
    name.parse().expect("VALKEY_RDMA_TEST_DEVICE names a device")
}

pub(crate) fn any_port() -> SocketAddr {
    let host = std::env::var("VALKEY_RDMA_TEST_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    SocketAddr::new(host.parse::<IpAddr>().expect("VALKEY_RDMA_TEST_ADDR is an IP address"), 0)
}

pub(crate) async fn listen(config: &Config) -> Listener {
    Listener::bind(device(), any_port(), config).await.expect("listens")
}

/// A connected pair: the client's end, the server's end.
pub(crate) async fn pair(client: &Config, server: &Config) -> (Stream, Stream) {
    connect(&mut listen(server).await, client).await
}

/// Connects to a listener of ours.
pub(crate) async fn connect(listener: &mut Listener, client: &Config) -> (Stream, Stream) {
    let addr = listener.local_addr();
    let (client, server) = tokio::join!(Stream::connect(device(), addr, client), listener.accept());
    (client.expect("connects"), server.expect("accepts"))
}

/// Bytes that tell where they belong, so that a shift is seen.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| ((n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Fails the test where it would hang otherwise.
pub(crate) async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("done within the deadline")
}

/// Every way to wait; adaptive also where it would not pay, as on a machine so busy that nothing comes soon.
pub(crate) fn polling_modes() -> [(Polling, Config); 3] {
    [Polling::Event, Polling::Adaptive, Polling::Busy].map(|mode| {
        let config = defaults().polling(mode).danger_spin_anyway(true).spin_limit(Duration::from_millis(50));
        (mode, config)
    })
}
