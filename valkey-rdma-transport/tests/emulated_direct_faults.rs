//! Direct transfers on emulated devices that refuse memory.

#![cfg(feature = "emulated")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use valkey_rdma_proto::work::{Region, RegionId};
use valkey_rdma_transport::device::{self, DeviceConnection, DeviceLayer, DeviceOptions, SendMemory};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{
    BufferPool, Config, DeviceKind, DirectMemory, FeatureSet, Listener, Stream, TransportError,
};

const LEN: usize = 50_000;

/// A client and a server on one device, which have agreed on transfers.
async fn pair(device: &Device) -> (Stream, Stream) {
    let config = Config::default().device(device.name()).offers(FeatureSet::DIRECT).wants(FeatureSet::DIRECT);
    let any = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("listens");
    let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
    let (client, server) = tokio::join!(connecting, listener.accept());
    let mut server = server.expect("accepts");
    assert_eq!(server.agreed().await.expect("agreed"), FeatureSet::DIRECT);
    (client.expect("connects"), server)
}

#[tokio::test]
async fn memory_that_cannot_be_pinned_is_an_error_that_ends_nothing() {
    for link in [Link::InProcess, Link::Tcp] {
        let device = Device::new(link);
        let (client, server) = pair(&device).await;
        let direct = server.direct().expect("agreed");
        let (theirs, ours) =
            (DirectMemory::allocate(LEN).expect("a length"), DirectMemory::allocate(LEN).expect("a length"));
        let take = |memory: &DirectMemory| memory.take(0..LEN).expect("free");
        device.refuse_memory(true);
        let error = client.expose(take(&theirs), Access::RemoteReadWrite).expect_err("refused");
        assert!(matches!(error, TransportError::Memory { bytes, .. } if bytes == LEN as u64), "{error:?}");
        device.refuse_memory(false);
        let exposed = client.expose(take(&theirs), Access::RemoteReadWrite).expect("tried again");
        device.refuse_memory(true);
        for (error, len) in [
            (direct.read(exposed.remote(), take(&ours)).await.map(drop), LEN as u64),
            (direct.write(exposed.remote(), vec![1; LEN]).await, 1 << 20),
        ] {
            let error = error.expect_err("refused");
            assert!(matches!(error, TransportError::Memory { bytes, .. } if bytes == len), "{error:?}");
        }
        device.refuse_memory(false);
        let pool = BufferPool::new(1, LEN).expect("a usable pool");
        let mut buffer = pool.take().await;
        buffer.fill(3);
        direct.write(exposed.remote(), buffer.freeze()).await.expect("written");
        let read = direct.read(exposed.remote(), take(&ours)).await.expect("read");
        assert!(read.iter().all(|byte| *byte == 3));
    }
}

#[tokio::test]
async fn a_pool_that_cannot_be_registered_is_copied_for_transfers() {
    let device = Device::new(Link::InProcess);
    let (client, server) = pair(&device).await;
    let direct = server.direct().expect("agreed");
    let theirs = DirectMemory::allocate(LEN).expect("a length");
    let exposed = client.expose(theirs.take(0..LEN).expect("free"), Access::RemoteWrite).expect("exposed");
    direct.write(exposed.remote(), vec![1; 10]).await.expect("written: there is memory to copy to");
    device.refuse_memory(true);
    let pool = BufferPool::new(1, LEN).expect("a usable pool");
    let mut buffer = pool.take().await;
    buffer.fill(7);
    direct.write(exposed.remote(), buffer.freeze()).await.expect("written");
    assert!(exposed.withdraw().iter().all(|byte| *byte == 7));
    assert_eq!(server.stats().device.lent, 0);
}

/// Keeps the regions of direct memory that are registered.
struct Watched {
    below: Box<dyn DeviceConnection>,
    registered: Arc<Mutex<Vec<RegionId>>>,
}

impl DeviceLayer for Watched {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.below
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.below
    }

    fn register_direct(&mut self, memory: &DirectMemory, access: Access) -> Result<Region, TransportError> {
        let region = self.below.register_direct(memory, access)?;
        self.registered.lock().expect("no panic").push(region.id);
        Ok(region)
    }

    fn deregister(&mut self, region: RegionId) -> Option<SendMemory> {
        self.registered.lock().expect("no panic").retain(|known| *known != region);
        self.below.deregister(region)
    }
}

/// An adapter keeps a key until then, whatever the program has dropped.
#[tokio::test]
async fn memory_that_nothing_uses_any_more_is_deregistered_with_the_device_d2() {
    let config = Config::default().offers(FeatureSet::DIRECT).requires(FeatureSet::DIRECT);
    let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &config).await.expect("listens");
    let options = DeviceOptions::default();
    let below = device::open(DeviceKind::Emulated, listener.local_addr(), &options).await.expect("opens");
    let registered = Arc::<Mutex<Vec<RegionId>>>::default();
    let layer = Watched { below, registered: registered.clone() };
    let (client, server) = tokio::join!(Stream::connect_over(Box::new(layer), &config), listener.accept());
    let (client, _server) = (client.expect("connects"), server.expect("accepts"));
    for _ in 0..3 {
        let memory = DirectMemory::allocate(LEN).expect("a length");
        let slice = memory.take(0..LEN).expect("free");
        drop(client.expose(slice, Access::RemoteWrite).expect("exposed").withdraw());
        assert_eq!(registered.lock().expect("no panic").len(), 1, "that of the memory before is gone");
    }
}
