//! Direct transfers of a handler, to and from memory of its clients (spec, area D).

#![allow(clippy::single_range_in_vec_init, reason = "ranges of memory, of which there may be one")]

#[path = "../examples/blobs.rs"]
#[expect(dead_code, reason = "its main is not for tests")]
mod blobs;
mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::future::ready;
use std::ops::Range;
use std::sync::Mutex;

use bytes::Bytes;
use support::{localhost, until, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_server::{
    Address, Command, DeviceKind, DirectError, DirectMemory, Handler, Limits, Listening, Peer, RemoteRange,
    RemoteRanges, Reply, Server, Transport, TransportConfig,
};
use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{Exposed, FeatureSet, Stream};

/// Keeps values.
///
/// | Command | |
/// |---|---|
/// | `STORE key len rkey addr len [...]` | reads a value, and keeps a copy |
/// | `ADOPT key len rkey addr len [...]` | reads a value into the server's own memory, and keeps it there |
/// | `LOAD key rkey addr len [...]` | writes a value |
/// | `DROP key rkey addr len [...]` | begins to write a value, and replies |
struct Vault {
    values: Mutex<HashMap<Bytes, Bytes>>,
    memory: DirectMemory,
    errors: Mutex<Vec<String>>,
}

impl Default for Vault {
    fn default() -> Self {
        let memory = DirectMemory::allocate(4 << 20).expect("a length");
        Self { values: Mutex::default(), memory, errors: Mutex::default() }
    }
}

impl Handler for Vault {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        let mut direct = peer.direct().ok_or(Reply::error("ERR no direct transfers"))?;
        let key = command.keep(0).ok_or_else(|| command.wrong_arity())?;
        let is_read = command.is("STORE") || command.is("ADOPT");
        let ranges = RemoteRanges::parse(&command.args()[if is_read { 2 } else { 1 }..])?;
        let transferred = async {
            if is_read {
                let len = usize::try_from(command.int(1)?).map_err(|_| Reply::error("ERR length"))?;
                let value = if command.is("STORE") {
                    direct.read_from(&ranges, len).await?
                } else {
                    // What was there before gives its place back.
                    self.values.lock().expect("not poisoned").remove(&key);
                    let place =
                        self.memory.take(0..len).map_err(|error| error.to_string()).map_err(Reply::error)?;
                    direct.read_into(&ranges, place).await?.freeze()
                };
                self.values.lock().expect("not poisoned").insert(key, value);
                return Ok(());
            }
            let value = self.values.lock().expect("not poisoned").get(&key).cloned().unwrap_or_default();
            if command.is("DROP") {
                tokio::select! {
                    biased;
                    _ = direct.write_to(&ranges, value.clone()) => return Err(Reply::error("ERR it is too short")),
                    () = ready(()) => {}
                }
                let error = direct.write_to(&ranges, value).await.expect_err("one was dropped");
                assert!(matches!(error, DirectError::Abandoned), "{error}");
                return Ok(());
            }
            Ok::<_, Reply>(direct.write_to(&ranges, value).await?)
        };
        match transferred.await {
            Ok(()) => Ok(Reply::OK),
            Err(error) => {
                self.errors.lock().expect("not poisoned").push(format!("{error:?}"));
                Err(error)
            }
        }
    }
}

/// The vault on the emulated device and on TCP.
async fn serve(vault: impl Handler, limits: &Limits) -> Server {
    let rdma = Address::rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default().rx_size(10_001));
    let builder = Server::builder(vault).direct(true).limits(limits.clone());
    builder.listen(rdma).listen(Address::tcp(localhost())).start().await.expect("it listens")
}

/// A client with memory of its own.
struct Client {
    stream: Stream,
    memory: DirectMemory,
}

impl Client {
    async fn connect(listening: &Listening) -> Self {
        Self::connect_with(listening, &TransportConfig::default()).await
    }

    async fn connect_with(listening: &Listening, config: &TransportConfig) -> Self {
        let Transport::Rdma(device) = listening.transport else { panic!("no RDMA") };
        let config = config.clone().requires(FeatureSet::DIRECT);
        let stream =
            Stream::connect(device, listening.addr, &config).await.expect("it offers direct transfers");
        Self { stream, memory: DirectMemory::allocate(4 << 20).expect("a length") }
    }

    /// Exposes ranges, filled with `fill`.
    fn expose(&self, ranges: &[Range<usize>], fill: impl Fn(usize) -> u8, access: Access) -> Vec<Exposed> {
        let expose = |range: &Range<usize>| {
            let mut slice = self.memory.take(range.clone()).expect("free");
            slice.iter_mut().zip(range.clone()).for_each(|(byte, at)| *byte = fill(at));
            self.stream.expose(slice, access).expect("exposed")
        };
        ranges.iter().map(expose).collect()
    }

    /// Sends a command with these ranges, and returns the reply. Empty: the connection has ended.
    async fn ask(&mut self, command: &str, ranges: impl IntoIterator<Item = RemoteRange>) -> String {
        let mut text = command.to_owned();
        for RemoteRange { addr, rkey, len } in ranges {
            write!(text, " {rkey} {addr} {len}").expect("it is memory");
        }
        text.push_str("\r\n");
        within("it is sent", self.stream.write_all(text.as_bytes())).await.expect("sent");
        let mut reply = Vec::new();
        while !reply.ends_with(b"\r\n") {
            match within("a reply comes", self.stream.read_u8()).await {
                Ok(byte) => reply.push(byte),
                Err(_) => break,
            }
        }
        String::from_utf8(reply).expect("text").trim_end().to_owned()
    }

    /// Has the server read a value of `len` bytes out of ranges of this memory.
    async fn store(&mut self, command: &str, ranges: &[Range<usize>], len: usize) {
        let exposed = self.expose(ranges, pattern, Access::RemoteRead);
        let reply = self.ask(&format!("{command} key {len}"), remote(&exposed)).await;
        assert_eq!(reply, "+OK", "{len}");
        exposed.into_iter().for_each(|exposed| drop(exposed.withdraw()));
    }

    /// What ranges of this memory have when the server has written a value there.
    async fn load(&mut self, ranges: &[Range<usize>]) -> Vec<u8> {
        let exposed = self.expose(ranges, |_| GUARD, Access::RemoteWrite);
        assert_eq!(self.ask("LOAD key", remote(&exposed)).await, "+OK");
        exposed.into_iter().flat_map(|exposed| exposed.withdraw().to_vec()).collect()
    }
}

fn pattern(at: usize) -> u8 {
    (at * 31 + at / 251) as u8
}

const GUARD: u8 = 0xa5;

fn remote(exposed: &[Exposed]) -> impl Iterator<Item = RemoteRange> {
    exposed.iter().map(Exposed::remote)
}

#[tokio::test]
async fn values_are_read_out_of_several_ranges_and_written_into_others_d3() {
    let limits = Limits::default().direct_limit(200_000);
    for command in ["STORE", "ADOPT"] {
        let server = serve(Vault::default(), &limits).await;
        let mut client = Client::connect(&server.listening()[0]).await;
        for len in [0, 1, 8191, 300_001, 3 << 20] {
            let ranges = [
                10..10 + len / 3,
                2_000_000..2_000_001,
                2_000_001..2_000_001,
                2_000_010..2_000_020 + len / 2,
            ];
            let all = [10..10 + len / 3, 1_500_000..1_500_100 + len - len / 3];
            client.store(command, &all, len).await;
            let expected: Vec<u8> = all.into_iter().flatten().map(pattern).take(len).collect();
            let room: usize = ranges.iter().map(ExactSizeIterator::len).sum();
            if room >= len {
                let found = client.load(&ranges).await;
                assert!(found[..len] == expected, "{command}: {len} bytes differ");
                assert!(found[len..].iter().all(|byte| *byte == GUARD), "{command}: {len}: beyond the value");
            }
            let whole = client.load(&[0..len + 100]).await;
            assert!(
                whole[..len] == expected && whole[len..].iter().all(|byte| *byte == GUARD),
                "{command}: {len}"
            );
        }
    }
}

#[tokio::test]
async fn ranges_that_are_too_small_are_refused_and_nothing_is_transferred_d2() {
    let server = serve(Vault::default(), &Limits::default().max_argument_len(200_000)).await;
    let mut client = Client::connect(&server.listening()[0]).await;
    client.store("STORE", &[0..100_000], 100_000).await;
    let exposed = client.expose(&[0..50_000, 60_000..109_999], |_| GUARD, Access::RemoteReadWrite);
    let refused = "-ERR the value has 100000 bytes, and the ranges have 99999";
    assert_eq!(client.ask("LOAD key", remote(&exposed)).await, refused);
    for command in ["STORE", "ADOPT"] {
        assert_eq!(client.ask(&format!("{command} other 100000"), remote(&exposed)).await, refused);
    }
    let untouched = exposed.into_iter().flat_map(|exposed| exposed.withdraw().to_vec());
    assert!(untouched.into_iter().all(|byte| byte == GUARD));
    assert!(client.ask("LOAD key 1 2", []).await.starts_with("-ERR syntax error"));
    let exposed = client.expose(&[0..200_001], |_| 0, Access::RemoteRead);
    let reply = client.ask("STORE key 200001", remote(&exposed)).await;
    assert_eq!(reply, "-ERR a value of 200001 bytes is longer than 200000: see Limits::max_argument_len");
}

#[tokio::test]
async fn a_wrong_key_ends_that_connection_and_no_other_d2() {
    let vault: std::sync::Arc<Vault> = Default::default();
    let server = serve(vault.clone(), &Limits::default()).await;
    let mut bystander = Client::connect(&server.listening()[0]).await;
    bystander.store("STORE", &[0..100_000], 100_000).await;
    for command in ["LOAD key", "STORE other 100000", "ADOPT other 100000"] {
        let mut client = Client::connect(&server.listening()[0]).await;
        let exposed = client.expose(&[0..100_000], |_| GUARD, Access::RemoteReadWrite);
        let wrong = remote(&exposed).map(|range| RemoteRange { rkey: range.rkey ^ 0x1000, ..range });
        let wrong: Vec<_> = wrong.collect();
        assert_eq!(client.ask(command, wrong).await, "");
        assert!(exposed.into_iter().all(|exposed| exposed.withdraw().iter().all(|byte| *byte == GUARD)));
    }
    // The first one was written before its device could say so.
    until("the others see why", async || vault.errors.lock().expect("not poisoned").len() == 2).await;
    for error in &*vault.errors.lock().expect("not poisoned") {
        assert!(error.contains("the client's device has refused a direct transfer"), "{error}");
    }
    assert!(bystander.load(&[0..100_000]).await.into_iter().eq((0..100_000).map(pattern)));
}

#[tokio::test]
async fn a_transfer_that_the_handler_drops_ends_the_connection_without_a_reply_d3() {
    let server = serve(Vault::default(), &Limits::default()).await;
    // Within one process, a transfer is complete when it has begun.
    let over_tcp = TransportConfig::default().device("tcp");
    let mut client = Client::connect_with(&server.listening()[0], &over_tcp).await;
    client.store("STORE", &[0..3 << 20], 3 << 20).await;
    let exposed = client.expose(&[0..3 << 20], |_| GUARD, Access::RemoteWrite);
    assert_eq!(client.ask("DROP key", remote(&exposed)).await, "");
}

#[tokio::test]
async fn connections_share_a_limit_and_all_their_transfers_complete() {
    let limits = Limits::default().direct_limit(3000).direct_limit_of_all(5000);
    let server = serve(Vault::default(), &limits).await;
    let listening = server.listening()[0];
    Client::connect(&listening).await.store("STORE", &[0..50_000], 50_000).await;
    let loads = (0..8).map(|_| {
        tokio::spawn(async move {
            let mut client = Client::connect(&listening).await;
            client.load(&[0..50_000]).await.into_iter().eq((0..50_000).map(pattern))
        })
    });
    for load in loads.collect::<Vec<_>>() {
        assert!(load.await.expect("it does not panic"));
    }
}

#[tokio::test]
async fn only_clients_that_ask_have_direct_transfers_and_only_where_they_are_offered_d1() {
    let mut server = serve(Vault::default(), &Limits::default()).await;
    for mut wire in support::wires(&server).await {
        wire.dialogue(&[("LOAD key 1 2 3", "-ERR no direct transfers\r\n")]).await;
    }
    let later = Address::rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default());
    let later = server.listen(later).await.expect("it listens");
    Client::connect(&later).await.store("STORE", &[0..10], 10).await;

    let plain = Address::rdma(DeviceKind::Emulated, localhost(), &TransportConfig::default());
    let plain = Server::builder(Vault::default()).listen(plain).start().await.expect("it listens");
    let config = TransportConfig::default().wants(FeatureSet::DIRECT);
    let addr = plain.listening()[0].addr;
    let mut stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.expect("connected");
    assert_eq!(stream.agreed().await.expect("agreed"), FeatureSet::NONE);
}

/// What a client does then is its own choice; the connection allows both.
#[tokio::test]
async fn a_server_that_cannot_register_memory_refers_its_client_to_the_stream_d7() {
    let device = Device::new(Link::Any);
    let config = TransportConfig::default().device(device.name());
    let vault: std::sync::Arc<Vault> = Default::default();
    let address = Address::rdma(DeviceKind::Emulated, localhost(), &config);
    let server =
        Server::builder(vault.clone()).direct(true).listen(address).start().await.expect("it listens");
    let mut client = Client::connect(&server.listening()[0]).await;
    vault.values.lock().expect("not poisoned").insert("key".into(), vec![1; 20_000].into());
    device.refuse_memory(true);
    let exposed = client.expose(&[0..20_000], pattern, Access::RemoteReadWrite);
    for command in ["STORE other 20000", "ADOPT other 20000", "LOAD key"] {
        let reply = client.ask(command, remote(&exposed)).await;
        assert!(reply.starts_with("-NODIRECT direct transfer failed: cannot register"), "{command}: {reply}");
    }
    assert!(!vault.values.lock().expect("not poisoned").contains_key(&b"other"[..]));
    drop(exposed.into_iter().map(Exposed::withdraw).collect::<Vec<_>>());
    device.refuse_memory(false);
    client.store("ADOPT", &[0..20_000], 20_000).await;
    assert!(client.load(&[0..20_000]).await.into_iter().eq((0..20_000).map(pattern)));
}

#[tokio::test]
async fn the_example_keeps_values_in_registered_memory() {
    let server = serve(blobs::Blobs::new(), &Limits::default()).await;
    let mut client = Client::connect(&server.listening()[0]).await;
    // More often than there are slots: replaced values give theirs back.
    for round in 0..100 {
        client.store("BLOB.SET", &[round..round + 20_000], 20_000).await;
    }
    let exposed = client.expose(&[0..20_000], |_| GUARD, Access::RemoteWrite);
    assert_eq!(client.ask("BLOB.GET key", remote(&exposed)).await, "*2", "length and checksum");
    let found = exposed.into_iter().flat_map(|exposed| exposed.withdraw().to_vec());
    assert!(found.eq((99..20_099).map(pattern)));
}
