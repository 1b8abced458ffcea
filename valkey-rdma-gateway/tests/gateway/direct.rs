//! Direct transfers through a gateway in front of servers that know none (spec, area D).

mod calls;
mod commands;
mod ends;

use std::net::SocketAddr;

use tokio::io::AsyncWriteExt;
use valkey_rdma_client::{Client, DirectMemory, DirectSlice};
use valkey_rdma_gateway::{Config, Limits, Listen, Share};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{
    Config as TransportConfig, DeviceKind, Exposed, FeatureSet, RemoteRange, Stream,
};

use crate::support::{Client as RespClient, PATIENCE, Running, config, start};

/// A gateway that also listens on the emulated device.
pub(crate) async fn gateway_with(url: &str, change: impl FnOnce(&mut Config)) -> (Running, SocketAddr) {
    let mut config = config(url, Share::Auto, Limits::default());
    config.routes[0].listen.push("emulated:127.0.0.1:0".parse().unwrap());
    change(&mut config);
    let gateway = start(&config).await;
    let mut device = gateway.gateway.listening().into_iter();
    let device =
        device.find_map(|listen| if let Listen::Emulated(addr) = listen { Some(addr) } else { None });
    (gateway, device.expect("it listens"))
}

async fn connect(addr: SocketAddr) -> Client {
    Client::connect(format!("emulated://{addr}")).await.unwrap()
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A range of memory, filled.
fn filled(memory: &DirectMemory, range: std::ops::Range<usize>, bytes: &[u8]) -> DirectSlice {
    let mut slice = memory.take(range).expect("free");
    slice.fill(0xee);
    slice[..bytes.len()].copy_from_slice(bytes);
    slice
}

fn joined(slices: &[DirectSlice]) -> Vec<u8> {
    slices.iter().flat_map(|slice| slice.iter().copied()).collect()
}

async fn bounded<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("in time")
}

/// A client over RDMA whose every byte is chosen here.
struct Wire {
    client: RespClient,
    exposed: Exposed,
}

impl Wire {
    /// It has exposed memory of this length, which has these bytes.
    async fn new(addr: SocketAddr, bytes: &[u8]) -> Self {
        let config = TransportConfig::default().requires(FeatureSet::DIRECT);
        let stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
        let memory = DirectMemory::allocate(bytes.len()).unwrap();
        let exposed = stream.expose(filled(&memory, 0..bytes.len(), bytes), Access::RemoteReadWrite).unwrap();
        Self { client: RespClient::new(stream), exposed }
    }

    /// A command in which `@` is all of its memory.
    fn line(&self, command: &str) -> String {
        let RemoteRange { addr, rkey, len } = self.exposed.remote();
        command.replace('@', &format!("{rkey} {addr} {len}"))
    }

    async fn say(&mut self, command: &str) -> String {
        self.client.say(&self.line(command)).await
    }

    /// Its memory now.
    fn memory(self) -> Vec<u8> {
        self.exposed.withdraw().to_vec()
    }
}

/// Ends a connection in the middle.
async fn cut(mut stream: tokio::net::TcpStream) {
    let _ = stream.shutdown().await;
}
