//! A client and a server that have agreed on direct transfers, and commands between them of a few bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{Config, Direct, DirectMemory, Exposed, FeatureSet, RemoteRange, Stream};

use super::stream_pair::{bounded, defaults, pair};

/// What both sides are set to.
pub(crate) fn direct_config() -> Config {
    defaults().offers(FeatureSet::DIRECT).requires(FeatureSet::DIRECT)
}

/// The two streams, and the server's transfers.
pub(crate) async fn direct_pair() -> (Stream, Stream, Direct) {
    let (client, mut server) = pair(&direct_config(), &direct_config()).await;
    let agreed = bounded(server.agreed()).await.expect("agreed");
    assert_eq!(agreed, FeatureSet::DIRECT);
    let direct = server.direct().expect("agreed");
    (client, server, direct)
}

pub(crate) fn memory(len: usize) -> DirectMemory {
    DirectMemory::allocate(len).expect("a length")
}

/// Exposes a range of the memory, filled with `byte`.
pub(crate) fn expose(
    client: &Stream,
    memory: &DirectMemory,
    range: std::ops::Range<usize>,
    byte: u8,
    access: Access,
) -> Exposed {
    let mut slice = memory.take(range).expect("free");
    slice.fill(byte);
    client.expose(slice, access).expect("exposed")
}

/// One byte, as a command or a reply.
pub(crate) async fn say(stream: &mut Stream, byte: u8) {
    bounded(stream.write_all(&[byte])).await.expect("writes");
}

pub(crate) async fn hear(stream: &mut Stream) -> u8 {
    bounded(stream.read_u8()).await.expect("reads")
}

/// A part of a range.
pub(crate) fn part(range: RemoteRange, from: u32, len: u32) -> RemoteRange {
    RemoteRange { addr: range.addr + u64::from(from), rkey: range.rkey, len }
}
