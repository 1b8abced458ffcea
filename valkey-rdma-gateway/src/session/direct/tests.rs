use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::timeout;
use valkey_rdma_mock::MockServer;
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{Config, DeviceKind, DirectMemory, FeatureSet, Listener, RemoteRange, Stream};

use super::*;
use crate::config::limits::Limits;

/// Each half is longer than what a connection to a node takes before the node reads.
const LEN: usize = 8 << 20;

const DELAY: Duration = Duration::from_millis(500);

/// Longer than any step takes. Only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two sides that have agreed on direct transfers: a client and a server.
async fn pair(device: &Device) -> (Stream, Stream) {
    let config = Config::default().device(device.name()).offers(FeatureSet::DIRECT).wants(FeatureSet::DIRECT);
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("listens");
    let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
    let (client, server) = tokio::join!(connecting, listener.accept());
    let mut server = server.expect("accepts");
    server.agreed().await.expect("agreed");
    (client.expect("connects"), server)
}

/// Room for one client.
fn limits() -> Limits {
    Limits { direct_bytes: LEN, direct_bytes_total: LEN, ..Limits::default() }
}

#[tokio::test]
async fn when_a_value_is_refused_early_no_read_of_it_is_in_flight_d3() {
    let device = Device::new(Link::InProcess);
    let (client, server) = pair(&device).await;
    let direct = server.direct().expect("agreed");
    let staging = Staging::new(&direct, &limits(), &Arc::default()).expect("there is room");
    let memory = DirectMemory::allocate(LEN).expect("a length");
    let exposed = client.expose(memory.take(0..LEN).expect("free"), Access::RemoteRead).expect("exposed");
    let RemoteRange { addr, rkey, len } = exposed.remote();
    let words = [rkey.to_string(), addr.to_string(), len.to_string()].map(Bytes::from);
    let ranges = RemoteRanges::parse(&words).expect("a range");
    let mock = MockServer::start().await;
    let node = Client::connect(mock.url()).await.expect("connects");
    // The node refuses a value of that length when it has read the start of the command.
    let begin =
        async { Ok(Sink::Node(node.stream_argument(Command::new("SET").arg("k"), 1 << 30).await?.into())) };
    device.delay(DELAY..=DELAY, 1);
    let moving = Moving { direct: &direct, staging: &staging, ranges: &ranges, len: LEN };
    let moved = moving.read_into(begin).await;
    assert!(matches!(moved, Err(Failed::Upstream(_))), "{moved:?}");
    // The first piece was in the other half.
    let second = timeout(Duration::ZERO, staging.take(1, staging.half())).await;
    assert!(second.is_ok(), "the second piece is still being read");
}

#[tokio::test]
async fn memory_is_counted_until_its_connection_has_closed_the_device() {
    let device = Device::new(Link::InProcess);
    let (client, server) = pair(&device).await;
    let direct = server.direct().expect("agreed");
    let total = Arc::new(AtomicUsize::new(0));
    drop(Staging::new(&direct, &limits(), &total).expect("there is room"));
    assert_eq!(total.load(Ordering::Relaxed), LEN, "it is still registered");
    let refusal = Staging::new(&direct, &limits(), &total).err().expect("there is no room");
    assert!(format!("{refusal:?}").contains("limits.direct_bytes_total = 8388608"), "{refusal:?}");
    drop((client, server, direct));
    let closed = async {
        while total.load(Ordering::Relaxed) > 0 {
            yield_now().await;
        }
    };
    timeout(PATIENCE, closed).await.expect("the device is closed");
}
