//! `BLOB.GET`, `BLOB.SET` and `BLOB.INFO`: over the stream, and with memory of the client (spec, area D).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use support::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_mock::faults::Faults;
use valkey_rdma_mock::{Address, Command, DeviceKind, Mock, MockServer, Reply, Server, TransportConfig};
use valkey_rdma_server::{Handler, Peer};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{
    DirectMemory, Exposed, FeatureSet, Listener, Monitor, RemoteRange, Stream, device,
};

/// A client that has agreed on direct transfers.
struct Client {
    stream: Stream,
    memory: DirectMemory,
}

impl Client {
    async fn of(mock: &MockServer) -> Self {
        Self::at(mock.url().split_once("://").unwrap().1.parse().unwrap()).await
    }

    async fn at(addr: SocketAddr) -> Self {
        let config = TransportConfig::default().requires(FeatureSet::DIRECT);
        let stream = Stream::connect(DeviceKind::Emulated, addr, &config).await.unwrap();
        Self { stream, memory: DirectMemory::allocate(1 << 20).unwrap() }
    }

    fn expose(&self, range: std::ops::Range<usize>, bytes: &[u8], access: Access) -> Exposed {
        let mut slice = self.memory.take(range).unwrap();
        slice.fill(0);
        slice[..bytes.len()].copy_from_slice(bytes);
        self.stream.expose(slice, access).unwrap()
    }

    /// Sends a command, `@` standing for the range, and expects this reply.
    async fn ask(&mut self, command: &str, range: RemoteRange, expected: &str) {
        let RemoteRange { addr, rkey, len } = range;
        let command = command.replace('@', &format!("{rkey} {addr} {len}")) + "\r\n";
        self.stream.write_all(command.as_bytes()).await.unwrap();
        let mut reply = vec![0; expected.len()];
        within("a reply comes", self.stream.read_exact(&mut reply)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{command}");
    }
}

#[tokio::test]
async fn values_move_to_and_from_memory_of_the_client_and_are_ordinary_strings() {
    let mock = MockServer::start().await;
    let mut client = Client::of(&mock).await;
    let value: Vec<u8> = (0..300_000).map(|at| (at * 7 + at / 1000) as u8).collect();
    let exposed = client.expose(0..300_000, &value, Access::RemoteRead);
    client.ask("BLOB.SET key 300000 @", exposed.remote(), "+OK\r\n").await;
    drop(exposed.withdraw());
    assert!(mock.get("key").unwrap() == value);

    mock.set("key", "123456789");
    let exposed = client.expose(0..12, b"", Access::RemoteWrite);
    // Its CRC-32C (RFC 3720).
    client.ask("BLOB.GET key @", exposed.remote(), "*2\r\n:9\r\n:3808858755\r\n").await;
    assert_eq!(exposed.withdraw()[..], *b"123456789\0\0\0");
    client.ask("APPEND key 0", RemoteRange { addr: 0, rkey: 0, len: 0 }, ":10\r\n").await;
    let exposed = client.expose(0..12, b"", Access::RemoteWrite);
    client.ask("BLOB.GET key @", exposed.remote(), "*2\r\n:10\r\n:4091270398\r\n").await;
}

/// A mock, and what its RDMA connection counts.
struct Watched {
    mock: Mock,
    monitor: OnceLock<Monitor>,
}

impl Handler for Watched {
    type Session = <Mock as Handler>::Session;

    fn session(&self, peer: &Peer) -> Self::Session {
        self.monitor.get_or_init(|| peer.rdma().unwrap().clone());
        self.mock.session(peer)
    }

    async fn call(
        &self,
        peer: &mut Peer,
        session: &mut Self::Session,
        command: Command,
    ) -> Result<Reply, Reply> {
        self.mock.call(peer, session, command).await
    }
}

#[tokio::test]
async fn large_values_are_read_and_written_where_the_server_has_them() {
    let watched = Arc::new(Watched { mock: Mock::new(), monitor: OnceLock::new() });
    let address = Address::rdma(DeviceKind::Emulated, support::localhost(), &TransportConfig::default());
    let server = Server::builder(watched.clone()).direct(true).listen(address).start().await.unwrap();
    let mut client = Client::at(server.listening()[0].addr).await;
    let exposed = client.expose(0..20_000, &[7; 20_000], Access::RemoteReadWrite);
    client.ask("BLOB.SET key 20000 @", exposed.remote(), "+OK\r\n").await;
    // Its place is ordinary memory. The first BLOB.GET moves it.
    watched.mock.set("streamed", vec![8; 20_000]);
    for (round, key) in (1..).zip(["key", "streamed", "key", "streamed"]) {
        client.ask(&format!("BLOB.GET {key} @"), exposed.remote(), "*2\r\n:20000\r\n").await;
        let counted = watched.monitor.get().unwrap().stats().device;
        assert_eq!(counted.lent, 20_000 * round, "{key}");
        assert!(counted.copied_in + counted.copied_out < 1000, "commands and replies only");
        let mut rest = [0; 13];
        within("the checksum", client.stream.read_exact(&mut rest)).await.unwrap();
    }
    assert!(exposed.withdraw()[..] == [8; 20_000]);
}

#[tokio::test]
async fn what_cannot_be_transferred_is_refused_and_the_connection_goes_on() {
    let mock = MockServer::start().await;
    mock.set("key", "123456789");
    let mut client = Client::of(&mock).await;
    let exposed = client.expose(0..8, b"", Access::RemoteReadWrite);
    for (command, reply) in [
        ("BLOB.GET key @", "-ERR the value has 9 bytes, and the ranges have 8\r\n"),
        ("BLOB.SET key 9 @", "-ERR the value has 9 bytes, and the ranges have 8\r\n"),
        ("BLOB.SET key -1 @", "-ERR value is out of range, must be positive\r\n"),
        ("BLOB.GET none @", "$-1\r\n"),
        ("BLOB.GET key @ 1", "-ERR syntax error: a range of memory is a key, an address and a length\r\n"),
        ("BLOB.SET key 1 2", "-ERR syntax error: a range of memory is a key, an address and a length\r\n"),
        ("RPUSH list a", ":1\r\n"),
        ("BLOB.GET list @", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"),
        ("MULTI", "+OK\r\n"),
        ("BLOB.GET key @", "+QUEUED\r\n"),
        ("EXEC", "*1\r\n-ERR direct transfers are not possible inside a transaction\r\n"),
        ("BLOB.SET list 8 @", "+OK\r\n"),
    ] {
        client.ask(command, exposed.remote(), reply).await;
    }
    assert_eq!(exposed.withdraw()[..], [0; 8]);
    assert_eq!(mock.get("list").unwrap(), [0; 8][..], "as SET, it replaces values of other types");
}

#[tokio::test]
async fn without_direct_transfers_values_go_over_the_stream() {
    let server = support::mock().await;
    let refused =
        "-NODIRECT this connection has no direct transfers: the client has not asked for them over RDMA\r\n";
    for mut wire in support::wires(&server).await {
        wire.dialogue(&[
            ("BLOB.SET key 123456789", "+OK\r\n"),
            ("BLOB.GET key", "$9\r\n123456789\r\n"),
            ("GET key", "$9\r\n123456789\r\n"),
            (
                "BLOB.INFO key",
                "*6\r\n$3\r\nlen\r\n:9\r\n$3\r\ncrc\r\n:3808858755\r\n$4\r\ntier\r\n$4\r\ndram\r\n",
            ),
            ("BLOB.INFO key LEN", ":9\r\n"),
            ("blob.info key crc", ":3808858755\r\n"),
            ("BLOB.INFO key TIER", "$4\r\ndram\r\n"),
            ("BLOB.INFO key SIZE", "-ERR syntax error\r\n"),
            ("BLOB.INFO none", "$-1\r\n"),
            ("BLOB.GET none", "$-1\r\n"),
            ("BLOB.GET key 1 2 3", refused),
            ("BLOB.SET key 1 1 2 3", refused),
            ("BLOB.SET key", "-ERR wrong number of arguments for 'blob.set' command\r\n"),
            ("COMMAND GETKEYS BLOB.GET key 1 2 3", "*1\r\n$3\r\nkey\r\n"),
        ])
        .await;
    }
}

/// A mock that misbehaves, and its client.
async fn misbehaving(script: &str) -> (Faults, Client, Server) {
    let faults: Faults = script.parse().unwrap();
    let config = TransportConfig::default();
    let options = config.clone().requires(FeatureSet::DIRECT).device_options();
    let honest = device::listen(DeviceKind::Emulated, support::localhost(), &options).await.unwrap();
    let addr = honest.local_addr();
    let mock = Mock::new();
    mock.set("key", vec![7; 1000]);
    let listener = Listener::over(faults.listener(honest), &config);
    let server = Server::builder(mock).direct(true).listener(listener).start().await.unwrap();
    (faults, Client::at(addr).await, server)
}

/// What a client gets that exposes 2000 bytes of memory, and names 100 to 1100 of them: the beginning of the reply, its memory, and how many
/// faults have happened.
async fn transferred(script: &str, command: &str) -> (Option<String>, Vec<u8>, u64) {
    let (faults, mut client, _server) = misbehaving(script).await;
    let exposed = client.expose(0..2000, b"", Access::RemoteReadWrite);
    let RemoteRange { addr, rkey, .. } = exposed.remote();
    let command = command.replace('@', &format!("{rkey} {} 1000", addr + 100)) + "\r\n";
    client.stream.write_all(command.as_bytes()).await.unwrap();
    let mut reply = [0; 4];
    let reply = within("an answer or the end", client.stream.read_exact(&mut reply)).await.map(|_| reply);
    drop(exposed.withdraw());
    let reply = reply.ok().map(|reply| String::from_utf8_lossy(&reply).into_owned());
    (reply, client.memory.take(0..2000).unwrap().to_vec(), faults.happened())
}

#[tokio::test]
async fn faults_change_what_a_server_does_with_memory_of_its_client() {
    let nothing = || vec![0; 2000];
    let filled = |range: std::ops::Range<usize>| {
        let mut memory = nothing();
        memory[range].fill(7);
        memory
    };
    let replied = || Some("*2\r\n".to_owned());
    for (script, reply, memory, happened) in [
        ("transfer-key@9", replied(), filled(100..1100), 0),
        ("transfer-missing", replied(), nothing(), 1),
        ("transfer-half=1", replied(), filled(100..600), 1),
        ("transfer-off=50", replied(), filled(150..1150), 1),
        ("transfer-off=5000", None, nothing(), 1),
        ("transfer-key", None, nothing(), 1),
    ] {
        let found = transferred(script, "BLOB.GET key @").await;
        assert!(found == (reply, memory, happened), "{script}: {:?}, {} happened", found.0, found.2);
    }
    assert_eq!(transferred("transfer-key", "BLOB.SET key 1000 @").await, (None, nothing(), 1));
}

#[tokio::test]
async fn a_late_transfer_is_done_when_the_next_data_comes() {
    let (late, mut client, _server) = misbehaving("transfer-late").await;
    let exposed = client.expose(0..1000, b"", Access::RemoteWrite);
    client.ask("BLOB.GET key @", exposed.remote(), "*2\r\n:1000\r\n").await;
    // The client believes the reply. So its device is not asked for this memory when the server comes back to it.
    let slice = exposed.withdraw();
    assert_eq!((&slice[..], late.happened()), (&[0; 1000][..], 1));
    client.stream.write_all(b"PING\r\n").await.unwrap();
    let mut rest = Vec::new();
    // The client's device refuses the write, which ends the connection.
    drop(within("the end", client.stream.read_to_end(&mut rest)).await);
    assert!(!rest.ends_with(b"PONG\r\n"), "{}", String::from_utf8_lossy(&rest));
    assert_eq!(slice[..], [0; 1000]);
}
