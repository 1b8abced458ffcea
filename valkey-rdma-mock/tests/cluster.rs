//! The mock cluster, with Valkey's replies to the letter.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use support::{Wire, until};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use valkey_rdma_mock::{DeviceKind, Endpoint, MockCluster, Transports};
use valkey_rdma_server::{Listening, Reply, Transport};

const EMULATED: Transport = Transport::Rdma(DeviceKind::Emulated);

/// Three primaries with a replica each: 0 to 2, then 3 to 5.
async fn with_replicas() -> MockCluster {
    MockCluster::builder(3).replicas(1).start().await.unwrap()
}

async fn wire(cluster: &MockCluster, node: usize) -> Wire {
    wire_of(&cluster.url(node), EMULATED).await
}

async fn wire_of(url: &str, transport: Transport) -> Wire {
    let (scheme, addr) = url.split_once("://").unwrap();
    Wire::connect(&Listening { transport, tls: scheme.ends_with('s'), addr: addr.parse().unwrap() }).await
}

fn slot(key: &str) -> u16 {
    MockCluster::slot(key)
}

fn error(code: &str, cluster: &MockCluster, key: &str, node: usize) -> String {
    format!("-{code} {} {}\r\n", slot(key), cluster.announced(node))
}

#[tokio::test]
async fn a_key_of_another_node_is_redirected_there() {
    let cluster = MockCluster::start(3).await.unwrap();
    let key = cluster.key_of(2, 0);
    let mut wrong = wire(&cluster, 0).await;
    let moved = error("MOVED", &cluster, &key, 2);
    wrong
        .dialogue(&[
            (&format!("SET {key} v"), &moved),
            (&format!("GET {key}"), &moved),
            ("PING", "+PONG\r\n"),
        ])
        .await;
    let mut right = wire(&cluster, 2).await;
    right.dialogue(&[(&format!("SET {key} v"), "+OK\r\n"), (&format!("GET {key}"), "$1\r\nv\r\n")]).await;
    assert_eq!(
        (cluster.calls(0, "set"), cluster.calls(2, "get"), cluster.calls_everywhere("get")),
        (1, 1, 2)
    );
}

#[tokio::test]
async fn slots_are_those_of_valkey() {
    let cluster = MockCluster::start(3).await.unwrap();
    let mut wire = wire(&cluster, 0).await;
    // Replies of Valkey 9.1.2.
    wire.dialogue(&[
        ("CLUSTER KEYSLOT foo", ":12182\r\n"),
        ("CLUSTER KEYSLOT {foo}bar", ":12182\r\n"),
        ("CLUSTER KEYSLOT foo{}{bar}", ":8363\r\n"),
        ("CLUSTER KEYSLOT", "-ERR wrong number of arguments for 'cluster|keyslot' command\r\n"),
        ("CLUSTER COUNTKEYSINSLOT 16384", "-ERR Invalid slot\r\n"),
        ("CLUSTER GETKEYSINSLOT 0 -1", "-ERR Invalid slot or number of keys\r\n"),
        ("CLUSTER NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try CLUSTER HELP.\r\n"),
        ("CLUSTER REPLICAS x", "-ERR Unknown node x\r\n"),
        ("CLUSTER FAILOVER", "-ERR You should send CLUSTER FAILOVER to a replica\r\n"),
        ("CLUSTER SETSLOT 0 NODE x", "-ERR Unknown node x\r\n"),
        ("CLUSTER SETSLOT 16384 STABLE", "-ERR Invalid or out of range slot\r\n"),
        (
            "CLUSTER SETSLOT 0 NONSENSE",
            "-ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP\r\n",
        ),
        ("SELECT 1", "-ERR DB index is out of range\r\n"),
        ("MGET foo bar", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn the_map_names_every_node() {
    let cluster = with_replicas().await;
    let mut wire = wire(&cluster, 0).await;
    wire.send("CLUSTER SLOTS\r\n").await;
    let node = |node: usize| {
        let (host, port) = (cluster.announced(node), cluster.id(node));
        let (host, announced) = host.split_once(':').unwrap();
        format!("*4\r\n$9\r\n{host}\r\n:{announced}\r\n$40\r\n{port}\r\n*0\r\n")
    };
    let range = |first: u16, last: u16, primary: usize| {
        format!("*4\r\n:{first}\r\n:{last}\r\n{}{}", node(primary), node(primary + 3))
    };
    let (a, b, c) = (range(0, 5461, 0), range(5462, 10922, 1), range(10923, 16383, 2));
    wire.expect(format!("*3\r\n{a}{b}{c}")).await;
    wire.send("CLUSTER MYID\r\n").await;
    wire.expect(format!("$40\r\n{}\r\n", cluster.id(0))).await;
}

#[tokio::test]
async fn an_unserved_slot_and_a_cluster_that_is_down_have_different_texts() {
    let cluster = MockCluster::start(2).await.unwrap();
    let key = cluster.key_of(0, 0);
    let mut wire = wire(&cluster, 0).await;
    cluster.set_down(true);
    wire.dialogue(&[(&format!("GET {key}"), "-CLUSTERDOWN The cluster is down\r\n")]).await;
    cluster.set_down(false);
    cluster.unassign(slot(&key)..=slot(&key));
    wire.dialogue(&[(&format!("GET {key}"), "-CLUSTERDOWN Hash slot not served\r\n")]).await;
}

#[tokio::test]
async fn while_a_slot_moves_each_key_is_where_it_is() {
    let cluster = MockCluster::start(2).await.unwrap();
    let tag = cluster.key_of(0, 0);
    let (one, two) = (format!("{{{tag}}}1"), format!("{{{tag}}}2"));
    let (mut source, mut target) = (wire(&cluster, 0).await, wire(&cluster, 1).await);
    source.dialogue(&[(&format!("SET {one} a"), "+OK\r\n")]).await;
    cluster.begin_migration(slot(&tag)..=slot(&tag), 1);

    let ask = error("ASK", &cluster, &tag, 1);
    let moved = error("MOVED", &cluster, &tag, 0);
    let tryagain = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
    source
        .dialogue(&[
            (&format!("GET {one}"), "$1\r\na\r\n"),
            (&format!("GET {two}"), &ask),
            (&format!("MGET {one} {two}"), tryagain),
        ])
        .await;
    target
        .dialogue(&[
            (&format!("SET {two} b"), &moved),
            ("ASKING", "+OK\r\n"),
            (&format!("SET {two} b"), "+OK\r\n"),
            // The permission was for one command.
            (&format!("GET {two}"), &moved),
            ("ASKING", "+OK\r\n"),
            (&format!("MGET {one} {two}"), tryagain),
        ])
        .await;
    assert_eq!(cluster.move_keys(slot(&tag), 10), 1);
    source.dialogue(&[(&format!("GET {one}"), &ask)]).await;
    target
        .dialogue(&[("ASKING", "+OK\r\n"), (&format!("MGET {one} {two}"), "*2\r\n$1\r\na\r\n$1\r\nb\r\n")])
        .await;

    cluster.finish_migration(slot(&tag)..=slot(&tag));
    source.dialogue(&[(&format!("GET {one}"), &error("MOVED", &cluster, &tag, 1))]).await;
    target.dialogue(&[(&format!("MGET {one} {two}"), "*2\r\n$1\r\na\r\n$1\r\nb\r\n")]).await;
}

#[tokio::test]
async fn a_transaction_goes_by_the_slot_of_its_commands() {
    let cluster = MockCluster::start(2).await.unwrap();
    let (here, there) = (cluster.key_of(0, 0), cluster.key_of(1, 0));
    let mut wire = wire(&cluster, 0).await;
    wire.dialogue(&[
        ("MULTI", "+OK\r\n"),
        (&format!("SET {here} 1"), "+QUEUED\r\n"),
        (&format!("SET {there} 1"), &error("MOVED", &cluster, &there, 1)),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("MULTI", "+OK\r\n"),
        (&format!("SET {here} 1"), "+QUEUED\r\n"),
        (&format!("SET {} 1", cluster.key_of(0, 1)), "+QUEUED\r\n"),
        ("EXEC", "-CROSSSLOT Keys in request don't hash to the same slot\r\n"),
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
    ])
    .await;
}

#[tokio::test]
async fn a_replica_answers_reads_of_those_who_ask_for_it_and_takes_over() {
    let cluster = with_replicas().await;
    let key = cluster.key_of(1, 0);
    let (mut primary, mut replica) = (wire(&cluster, 1).await, wire(&cluster, 4).await);
    let moved = error("MOVED", &cluster, &key, 1);
    let (get, set) = (format!("GET {key}"), format!("SET {key} v"));
    primary.dialogue(&[(&set, "+OK\r\n")]).await;
    replica
        .dialogue(&[
            (&get, &moved),
            ("READONLY", "+OK\r\n"),
            (&get, "$1\r\nv\r\n"),
            (&set, &moved),
            ("FLUSHALL", "-READONLY You can't write against a read only replica.\r\n"),
            ("READWRITE", "+OK\r\n"),
            (&get, &moved),
        ])
        .await;
    cluster.fail_over(4);
    replica.dialogue(&[(&set, "+OK\r\n")]).await;
    primary.dialogue(&[(&set, &error("MOVED", &cluster, &key, 4))]).await;
    assert_eq!((cluster.primary_of(1), cluster.replicas_of(4)), (4, vec![1]));
    primary.send("ROLE\r\n").await;
    assert_eq!(primary.line().await, "*5");
    assert_eq!(primary.line().await, "$5");
    assert_eq!(primary.line().await, "slave");
}

#[tokio::test]
async fn messages_reach_subscribers_of_all_nodes_and_shard_messages_those_of_the_shard() {
    let cluster = with_replicas().await;
    let channel = cluster.key_of(0, 0);
    let (mut first, mut second) = (wire(&cluster, 0).await, wire(&cluster, 1).await);
    let mut replica = wire(&cluster, 3).await;
    let len = channel.len();
    second.dialogue(&[("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")]).await;
    first.dialogue(&[("PUBLISH c m", ":0\r\n")]).await;
    second.expect("*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n").await;

    let subscribed = format!("*3\r\n$10\r\nssubscribe\r\n${len}\r\n{channel}\r\n:1\r\n");
    replica.dialogue(&[(&format!("SSUBSCRIBE {channel}"), &subscribed)]).await;
    let mut wrong = wire(&cluster, 1).await;
    wrong.dialogue(&[(&format!("SPUBLISH {channel} m"), &error("MOVED", &cluster, &channel, 0))]).await;
    first.dialogue(&[(&format!("SPUBLISH {channel} m"), ":0\r\n")]).await;
    replica.expect(format!("*3\r\n$8\r\nsmessage\r\n${len}\r\n{channel}\r\n$1\r\nm\r\n")).await;

    // A failover within the shard keeps the subscription; a move to another shard ends it.
    cluster.fail_over(3);
    replica.dialogue(&[("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")]).await;
    cluster.move_slots(slot(&channel)..=slot(&channel), 2);
    replica.expect(format!("*3\r\n$12\r\nsunsubscribe\r\n${len}\r\n{channel}\r\n:0\r\n")).await;
}

#[tokio::test]
async fn a_command_that_waits_for_a_key_is_redirected_when_its_slot_moves() {
    let cluster = MockCluster::start(2).await.unwrap();
    let key = cluster.key_of(0, 0);
    let mut wire = wire(&cluster, 0).await;
    wire.send(format!("BLPOP {key} 0\r\n")).await;
    until("the command waits", async || cluster.calls(0, "blpop") == 1).await;
    cluster.move_slots(slot(&key)..=slot(&key), 1);
    wire.expect(error("MOVED", &cluster, &key, 1)).await;
}

#[tokio::test]
async fn slots_also_move_by_command() {
    let cluster = MockCluster::start(2).await.unwrap();
    let key = cluster.key_of(0, 0);
    let (mut source, mut target) = (wire(&cluster, 0).await, wire(&cluster, 1).await);
    let (slot, to) = (slot(&key), cluster.id(1));
    let give = format!("CLUSTER SETSLOT {slot} NODE {to}");
    let still = format!(
        "-ERR Can't assign hashslot {slot} to a different node while I still hold keys for this hash slot.\r\n"
    );
    target.dialogue(&[(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", cluster.id(0)), "+OK\r\n")]).await;
    source
        .dialogue(&[
            (&format!("CLUSTER SETSLOT {slot} MIGRATING {to}"), "+OK\r\n"),
            (&format!("GET {key}"), &error("ASK", &cluster, &key, 1)),
            (&format!("CLUSTER SETSLOT {slot} STABLE"), "+OK\r\n"),
            (&format!("SET {key} v"), "+OK\r\n"),
            (&format!("CLUSTER COUNTKEYSINSLOT {slot}"), ":1\r\n"),
            (&give, &still),
            (&format!("DEL {key}"), ":1\r\n"),
            (&give, "+OK\r\n"),
            (&format!("GET {key}"), &error("MOVED", &cluster, &key, 1)),
        ])
        .await;
    target.dialogue(&[(&format!("GET {key}"), "$-1\r\n")]).await;
}

#[tokio::test]
async fn a_killed_node_is_gone_and_comes_back_with_its_data() {
    let cluster = MockCluster::start(2).await.unwrap();
    let key = cluster.key_of(1, 0);
    let (mut killed, mut other) = (wire(&cluster, 1).await, wire(&cluster, 0).await);
    killed.dialogue(&[(&format!("SET {key} v"), "+OK\r\n")]).await;
    cluster.kill(1).await;
    killed.rest_or_reset().await;
    other.dialogue(&[(&format!("GET {key}"), &error("MOVED", &cluster, &key, 1))]).await;
    cluster.restart(1).await.unwrap();
    wire(&cluster, 1).await.dialogue(&[(&format!("GET {key}"), "$1\r\nv\r\n")]).await;
}

/// Its clients go on trying: another program there would answer them.
#[tokio::test]
async fn the_ports_of_a_killed_node_are_refused_and_given_to_nobody() {
    let cluster =
        MockCluster::builder(1).transports(Transports::Both(DeviceKind::Emulated)).start().await.unwrap();
    let addr = |url: String| url.split_once("://").unwrap().1.parse::<SocketAddr>().unwrap();
    let ports = [addr(cluster.tcp_url(0).unwrap()), addr(cluster.url(0))];
    cluster.kill(0).await;
    for port in ports {
        let connected = TcpStream::connect(port).await;
        assert_eq!(connected.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{port}");
        // As the system chooses free ports: without SO_REUSEADDR.
        let taken = TcpSocket::new_v4().unwrap().bind(port);
        assert_eq!(taken.unwrap_err().kind(), ErrorKind::AddrInUse, "{port}");
    }
    cluster.restart(0).await.unwrap();
    wire(&cluster, 0).await.dialogue(&[("PING", "+PONG\r\n")]).await;
}

#[tokio::test]
async fn a_frozen_node_accepts_and_answers_later() {
    let cluster = MockCluster::start(2).await.unwrap();
    cluster.freeze(0);
    let mut frozen = wire(&cluster, 0).await;
    frozen.send("PING\r\n").await;
    wire(&cluster, 1).await.dialogue(&[("PING", "+PONG\r\n")]).await;
    assert_eq!(cluster.calls(0, "ping"), 0);
    cluster.thaw(0);
    frozen.expect("+PONG\r\n").await;
}

#[tokio::test]
async fn a_frozen_node_says_nothing_that_was_asked_before_either() {
    let cluster = MockCluster::start(2).await.unwrap();
    let key = cluster.key_of(0, 0);
    let mut waits = wire(&cluster, 0).await;
    waits.send(format!("BLPOP {key} 0\r\n")).await;
    let mut listens = wire(&cluster, 0).await;
    listens.dialogue(&[("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n")]).await;
    until("the first waits", async || cluster.calls(0, "blpop") == 1).await;
    cluster.freeze(0);
    wire(&cluster, 1).await.dialogue(&[("PUBLISH news late", ":0\r\n")]).await;
    // This ends the wait.
    cluster.move_slots(slot(&key)..=slot(&key), 1);
    for wire in [&mut waits, &mut listens] {
        assert!(timeout(Duration::from_millis(100), wire.line()).await.is_err(), "it is frozen");
    }
    cluster.thaw(0);
    waits.expect(error("MOVED", &cluster, &key, 1)).await;
    listens.expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\nlate\r\n").await;
}

#[tokio::test]
async fn a_shutdown_answers_what_every_node_has_received() {
    let cluster = MockCluster::start(2).await.unwrap();
    let mut wires = [wire(&cluster, 0).await, wire(&cluster, 1).await];
    for wire in &mut wires {
        wire.send("DEBUG SLEEP 0.1\r\nPING\r\n").await;
    }
    for node in 0..2 {
        until("it sleeps", async || cluster.calls(node, "debug|sleep") + cluster.calls(node, "debug") == 1)
            .await;
    }
    cluster.shutdown().await;
    for wire in &mut wires {
        wire.expect("+OK\r\n+PONG\r\n").await;
        wire.expect_end().await;
    }
}

#[tokio::test]
async fn tcp_outlives_the_rdma_listener() {
    let cluster =
        MockCluster::builder(1).transports(Transports::Both(DeviceKind::Emulated)).start().await.unwrap();
    let mut tcp = wire_of(&cluster.tcp_url(0).unwrap(), Transport::Tcp).await;
    let mut rdma = wire(&cluster, 0).await;
    rdma.dialogue(&[("PING", "+PONG\r\n")]).await;
    cluster.close_rdma(0).await;
    rdma.rest_or_reset().await;
    tcp.dialogue(&[("PING", "+PONG\r\n")]).await;
    cluster.open_rdma(0).await.unwrap();
    wire(&cluster, 0).await.dialogue(&[("PING", "+PONG\r\n")]).await;
    tcp.send("INFO server\r\n").await;
    let mut listeners = Vec::new();
    while listeners.len() < 2 {
        let line = tcp.line().await;
        listeners.extend(line.starts_with("listener").then_some(line));
    }
    let over_tcp = if cluster.url(0).starts_with("emulateds") { "tls" } else { "tcp" };
    let port: u16 = cluster.announced(0).rsplit_once(':').unwrap().1.parse().unwrap();
    assert_eq!(
        listeners,
        [
            format!("listener0:name={over_tcp},bind=127.0.0.1,port={port}"),
            format!("listener1:name=rdma,bind=127.0.0.1,port={}", port + 1)
        ]
    );
}

#[tokio::test]
async fn nodes_lie_as_they_are_asked_to() {
    let cluster = MockCluster::start(2).await.unwrap();
    let (key, other) = (cluster.key_of(1, 0), cluster.key_of(0, 0));
    let (mut first, mut second) = (wire(&cluster, 0).await, wire(&cluster, 1).await);
    let (get, at) = (format!("GET {key}"), slot(&key));

    cluster.announce_port(1, 0);
    first.dialogue(&[(&get, &format!("-MOVED {at} 127.0.0.1:0\r\n"))]).await;
    cluster.announce_endpoint(1, Endpoint::Unknown);
    first.dialogue(&[(&get, &format!("-MOVED {at} :0\r\n"))]).await;
    cluster.announce_endpoint(1, Endpoint::NoHostname);
    first.dialogue(&[(&get, &format!("-MOVED {at} ?:0\r\n"))]).await;

    cluster.move_all_to(0, Some(1));
    cluster.move_all_to(1, Some(0));
    second.dialogue(&[(&get, &error("MOVED", &cluster, &key, 0))]).await;
    cluster.move_all_to(1, None);

    cluster.freeze_view(1);
    cluster.move_slots(slot(&other)..=slot(&other), 1);
    second.dialogue(&[(&format!("GET {other}"), &error("MOVED", &cluster, &other, 0))]).await;
    cluster.follow(1);
    second.dialogue(&[(&format!("GET {other}"), "$-1\r\n")]).await;

    cluster.answer(1, "cluster|slots", Some(Reply::simple("garbage")));
    cluster.answer_keyed_next(1, [Reply::error("LOADING Valkey is loading the dataset in memory")]);
    second
        .dialogue(&[
            ("CLUSTER SLOTS", "+garbage\r\n"),
            (&get, "-LOADING Valkey is loading the dataset in memory\r\n"),
            (&get, "$-1\r\n"),
        ])
        .await;
}
