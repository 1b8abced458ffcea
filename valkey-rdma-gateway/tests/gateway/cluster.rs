//! One endpoint for a whole cluster: routing, state, and what local clients see.

mod away;
mod logins;
mod moving;
mod scans;
mod subscriptions;
mod transactions;

use valkey_rdma_gateway::{Gateway, Limits};
use valkey_rdma_mock::{Mock, MockCluster};
use valkey_rdma_server::Reply;

use crate::support::{Running, cluster_config, encode, mock_with, start, text};

/// Three primaries, nodes 0 to 2, their replicas, nodes 3 to 5, and a gateway in front of them.
pub(super) async fn cluster() -> (MockCluster, Running) {
    let mocks = MockCluster::builder(3).replicas(1).start().await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), Limits::default())).await;
    (mocks, gateway)
}

/// The slot of a key, moved from its primary to another.
fn move_slot(mocks: &MockCluster, key: &str) {
    let slot = MockCluster::slot(key);
    mocks.move_slots(slot..=slot, (mocks.node_of(key) + 1) % 3);
}

#[tokio::test]
async fn commands_reach_the_nodes_of_their_keys() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let keys: Vec<_> = (0..3).map(|node| mocks.key_of(node, 0)).collect();
    for (node, key) in keys.iter().enumerate() {
        assert_eq!(client.say(&format!("SET {key} {node}")).await, "OK");
        assert_eq!(client.say(&format!("GET {key}")).await, node.to_string());
        assert_eq!(mocks.calls(node, "set"), 1);
    }
    let [a, b, c] = [&keys[0], &keys[1], &keys[2]];
    assert_eq!(client.say(&format!("MGET {c} none {a} {b}")).await, "[2 (nil) 0 1]");
    assert_eq!(client.say("DBSIZE").await, ":3");
    assert_eq!(client.say(&format!("MSET {a} 7 {b} 8")).await, "OK");
    assert_eq!(client.say(&format!("DEL {a} {b} {c} none")).await, ":3");
    assert_eq!(client.say("PING").await, "PONG");
    let crossed = client.say(&format!("SUNION {a} {b}")).await;
    assert!(crossed.starts_with("-CROSSSLOT") && crossed.contains("hash tag"), "{crossed}");
    assert_eq!(client.say(&format!("LPUSH {a} x")).await, ":1");
    assert!(client.say(&format!("INCR {a}")).await.starts_with("-WRONGTYPE"));
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order_and_sees_its_own_writes() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let keys: Vec<_> = (0..90).map(|number| mocks.key_of(number % 3, number)).collect();
    let mut pipeline = Vec::new();
    for (number, key) in keys.iter().enumerate() {
        let value = number.to_string();
        pipeline.extend(encode(["SET", key, &value]));
        pipeline.extend(encode(["GET", key]));
        pipeline.extend(encode(["ECHO", &value]));
    }
    let all: Vec<_> = ["MGET"].into_iter().chain(keys.iter().map(String::as_str)).collect();
    pipeline.extend(encode(&all));
    pipeline.extend(encode(["DBSIZE"]));
    client.send(&pipeline).await;
    for number in 0..90 {
        for expected in ["OK".to_owned(), number.to_string(), number.to_string()] {
            assert_eq!(text(&client.reply().await), expected);
        }
    }
    let values: Vec<_> = (0..90).map(|number| number.to_string()).collect();
    assert_eq!(text(&client.reply().await), format!("[{}]", values.join(" ")));
    assert_eq!(text(&client.reply().await), ":90");
}

#[tokio::test]
async fn local_clients_see_one_server_without_cluster_mode() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let info = client.say("INFO").await;
    assert!(info.contains("cluster_enabled:0") && !info.contains("mode:cluster"), "{info}");
    let refusal = client.say("CLUSTER SLOTS").await;
    assert!(refusal.starts_with("-ERR This instance has cluster support disabled"), "{refusal}");
    assert_eq!(client.say("SELECT 0").await, "OK");
    assert!(client.say("SELECT 1").await.starts_with("-ERR the gateway of a cluster has database 0 only"));
    let connects = gateway.info("gateway_connects").await;
    for database in 1..6 {
        assert!(client.say(&format!("SELECT {database}")).await.starts_with("-ERR the gateway of a cluster"));
    }
    assert_eq!(gateway.info("gateway_connects").await, connects, "a number needs no connections");
    assert_eq!(client.say("GET k").await, "(nil)", "the database has not changed");
    assert_eq!(client.say("CLIENT SETNAME me").await, "OK");
    assert_eq!(client.say("CLIENT GETNAME").await, "me");
    assert!(client.say("CLIENT LIST").await.contains(" name=me "));
    let mut other = gateway.tcp_client().await;
    let hello = text(&other.hello3(" SETNAME other").await);
    assert!(hello.contains("mode=standalone") && hello.contains("proto=:3"), "{hello}");
    assert_eq!(other.say("HSET h f v").await, ":1");
    assert_eq!(other.say("HGETALL h").await, "{f=v}");
    assert_eq!(client.say("HGETALL h").await, "[f v]", "RESP2 has its own connections");
    assert_eq!(client.say("RESET").await, "RESET");
}

#[tokio::test]
async fn clients_of_the_gateway_of_a_cluster_can_be_killed() {
    let (_mocks, gateway) = cluster().await;
    let (mut client, mut other) = (gateway.client().await, gateway.client().await);
    let id = other.say("CLIENT ID").await;
    let id = id.trim_start_matches(':');
    assert_eq!(client.say(&format!("CLIENT UNBLOCK {id}")).await, ":0", "it does not block");
    assert_eq!(client.say(&format!("CLIENT KILL ID {id}")).await, ":1");
    assert_eq!(client.say(&format!("CLIENT KILL ID {id}")).await, ":0");
}

#[tokio::test]
async fn each_local_client_logs_in_for_all_nodes() {
    let (mocks, gateway) = cluster().await;
    assert_eq!(gateway.client().await.say("CONFIG SET requirepass pw").await, "OK");
    let gateway = start(&cluster_config(mocks.urls(), Limits::default())).await;
    let mut client = gateway.client().await;
    assert!(client.say("GET k").await.starts_with("-NOAUTH"));
    assert!(client.say("AUTH wrong").await.starts_with("-WRONGPASS"));
    assert!(client.say("GET k").await.starts_with("-NOAUTH"));
    assert_eq!(client.say("AUTH pw").await, "OK");
    for node in 0..3 {
        assert_eq!(client.say(&format!("INCR {}", mocks.key_of(node, 0))).await, ":1");
    }
    let mut other = gateway.client().await;
    assert!(other.say("PING").await.starts_with("-NOAUTH"), "another client's login is not its own");
    assert!(text(&other.hello3(" AUTH default pw").await).contains("proto=:3"));
    assert_eq!(other.say(&format!("INCR {}", mocks.key_of(1, 0))).await, ":2");
    let with_login = |url: String| url.replace("://", "://:pw@");
    let urls = mocks.urls().into_iter().map(with_login).collect();
    let gateway = start(&cluster_config(urls, Limits::default())).await;
    assert_eq!(gateway.client().await.say(&format!("INCR {}", mocks.key_of(1, 0))).await, ":3");
}

#[tokio::test]
async fn the_transport_of_each_node_is_shown() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for node in 0..3 {
        client.say(&format!("SET {} x", mocks.key_of(node, 0))).await;
    }
    let info = client.say("INFO gateway").await;
    for node in 0..3 {
        let line = info.lines().find(|line| line.contains(&format!(",node={},", mocks.announced(node))));
        let line = line.unwrap_or_else(|| panic!("node {node} in {info}"));
        assert!(line.contains(",primary,slots=546") && line.contains(",transport=emulated,"), "{line}");
    }
    assert!(info.contains("gateway_cluster_0:user=- db=0 resp2,complete=1,"), "{info}");
}

#[tokio::test]
async fn what_a_cluster_cannot_do_is_refused_with_the_reason() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for line in [
        "CLIENT TRACKING ON",
        "CLIENT NO-EVICT on",
        "CLIENT REPLY OFF",
        "CLIENT CACHING yes",
        "MONITOR",
        "WAIT 1 0",
        "SYNC",
        "SHUTDOWN",
        "DEBUG SLEEP 0",
        "SCRIPT DEBUG YES",
    ] {
        let reply = client.say(line).await;
        let name = line.split(' ').next().unwrap();
        assert!(
            reply.starts_with(&format!("-ERR the gateway of a cluster refuses {name}")),
            "{line}: {reply}"
        );
    }
    assert_eq!(client.say("CLIENT REPLY ON").await, "OK");
    // What stands beside a refusal in a pipeline runs.
    let key = mocks.key_of(1, 0);
    client
        .send(
            [encode(["SET", &key, "v"]), encode(["CLIENT", "CACHING", "NO"]), encode(["GET", &key])].concat(),
        )
        .await;
    assert_eq!(text(&client.reply().await), "OK");
    assert!(text(&client.reply().await).starts_with("-ERR the gateway"));
    assert_eq!(text(&client.reply().await), "v");
}

#[tokio::test]
async fn a_transaction_of_one_slot_runs_as_a_whole() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for node in 0..3 {
        let key = mocks.key_of(node, 0);
        let lines =
            [vec!["MULTI"], vec!["INCR", &key], vec!["GET", &key], vec!["LPUSH", &key, "x"], vec!["EXEC"]];
        client.send(lines.iter().map(encode).collect::<Vec<_>>().concat()).await;
        for expected in ["OK", "QUEUED", "QUEUED", "QUEUED"] {
            assert_eq!(text(&client.reply().await), expected);
        }
        let results = text(&client.reply().await);
        assert!(results.starts_with("[:1 1 -WRONGTYPE"), "{results}");
    }
    for (line, expected) in [
        ("MULTI", "OK"),
        ("SET {a}1 x", "QUEUED"),
        ("DISCARD", "OK"),
        ("GET {a}1", "(nil)"),
        ("MULTI", "OK"),
        ("EXEC", "[]"),
        ("EXEC", "-ERR EXEC without MULTI"),
    ] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn a_transaction_over_slots_is_refused_and_nothing_of_it_runs() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let (one, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    assert_eq!(client.say("MULTI").await, "OK");
    assert_eq!(client.say(&format!("SET {one} x")).await, "QUEUED");
    let refusal = client.say(&format!("SET {other} x")).await;
    assert!(refusal.starts_with("-CROSSSLOT") && refusal.contains("hash tag"), "{refusal}");
    assert!(client.say("EXEC").await.starts_with("-EXECABORT"));
    assert_eq!(client.say(&format!("MGET {one} {other}")).await, "[(nil) (nil)]");
    for line in ["SUBSCRIBE c", "MGET a b", "DBSIZE", "CLIENT ID"] {
        assert_eq!(client.say("MULTI").await, "OK");
        assert!(client.say(line).await.starts_with('-'), "{line}");
        assert!(client.say("EXEC").await.starts_with("-EXECABORT"), "{line}");
    }
}

#[tokio::test]
async fn a_blocked_client_gets_what_it_waits_for() {
    let (mocks, gateway) = cluster().await;
    let mut pusher = gateway.client().await;
    for node in 0..3 {
        let mut blocked = gateway.client().await;
        let list = mocks.key_of(node, 0);
        blocked.command(&format!("BLPOP {list} 0")).await;
        blocked.command("PING").await;
        gateway.until("gateway_connections", |count| count == 1).await;
        assert_eq!(pusher.say(&format!("RPUSH {list} item")).await, ":1");
        assert_eq!(text(&blocked.reply().await), format!("[{list} item]"));
        assert_eq!(text(&blocked.reply().await), "PONG");
    }
    let mut blocked = gateway.client().await;
    blocked.command("BLPOP none 0.01").await;
    blocked.expect_bytes(b"*-1\r\n").await;
    let reply = blocked.say(&format!("BLPOP {} {} 1", mocks.key_of(0, 0), mocks.key_of(1, 0))).await;
    assert!(reply.starts_with("-CROSSSLOT"), "{reply}");
}

#[tokio::test]
async fn a_client_that_leaves_while_it_blocks_takes_nothing() {
    let (mocks, gateway) = cluster().await;
    let mut other = gateway.client().await;
    let list = mocks.key_of(2, 0);
    assert_eq!(other.say(&format!("LLEN {list}")).await, ":0");
    let before = mocks.connections(2).await;
    let mut blocked = gateway.client().await;
    blocked.command(&format!("BLPOP {list} 0")).await;
    while mocks.calls(2, "blpop") == 0 {
        tokio::task::yield_now().await;
    }
    drop(blocked);
    while mocks.connections(2).await > before {
        tokio::task::yield_now().await;
    }
    assert_eq!(other.say(&format!("RPUSH {list} item")).await, ":1");
    assert_eq!(other.say(&format!("LLEN {list}")).await, ":1");
    gateway.until("gateway_connections", |count| count == 0).await;
}

#[tokio::test]
async fn a_scan_finds_the_keys_of_all_nodes_on_any_connection() {
    let (mocks, gateway) = cluster().await;
    let mut writer = gateway.client().await;
    let keys: Vec<_> = (0..300).map(|number| format!("scan:{number}")).collect();
    for key in &keys {
        writer.say(&format!("SET {key} x")).await;
    }
    writer.say("SET another x").await;
    let (mut found, mut cursor, mut steps) = (Vec::new(), "0".to_owned(), 0);
    loop {
        let mut client = gateway.client().await;
        let reply = client.call(&format!("SCAN {cursor} MATCH scan:* COUNT 20")).await;
        let [next, keys] = reply.as_slice().unwrap() else { panic!("{reply:?}") };
        found.extend(keys.as_slice().unwrap().iter().map(text));
        let before = std::mem::replace(&mut cursor, text(next));
        steps += 1;
        if steps == 5 {
            mocks.move_slots(0..=2000, 2);
            let again = client.say(&format!("SCAN {before}")).await;
            assert!(!again.starts_with('-'), "{again}");
        }
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    found.dedup();
    let mut expected = keys;
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(writer.say("SCAN x").await, "-ERR invalid cursor");
    assert_eq!(writer.say("SCAN 0 MATCH").await, "-ERR syntax error");
}

fn limits(change: impl FnOnce(&mut Limits)) -> Limits {
    let mut limits = Limits::default();
    change(&mut limits);
    limits
}

#[tokio::test]
async fn without_a_cluster_commands_fail_with_the_reason() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = start(&cluster_config(vec![url], limits(|limits| limits.offline_ms = 100))).await;
    let mut client = gateway.client().await;
    let reply = client.say("GET k").await;
    assert!(reply.starts_with("-NOUPSTREAM the command was not sent: "), "{reply}");
    // The client's next connection would not be better.
    assert!(reply.contains("is not part of a cluster") && reply.contains(": leave out --cluster"), "{reply}");
    for (line, expected) in
        [("MULTI", "OK"), ("SET k v", "QUEUED"), ("EXEC", "-NOUPSTREAM"), ("SUBSCRIBE c", "-NOUPSTREAM")]
    {
        let reply = client.say(line).await;
        assert!(reply.starts_with(expected), "{line}: {reply}");
    }
}

#[tokio::test]
async fn a_configuration_with_different_nodes_is_refused() {
    let urls = vec!["valkey://127.0.0.1:1".to_owned(), "valkey://:secret@127.0.0.1:2".to_owned()];
    let config = cluster_config(urls, Limits::default());
    let error = Gateway::start(&config, &Default::default()).await.err().expect("refused").to_string();
    assert!(error.contains("the same for all servers") && !error.contains("secret"), "{error}");
}

/// What the gateway sends of its own is useful, and no more.
#[tokio::test]
async fn a_user_who_may_run_little_reaches_the_nodes() {
    let (mocks, gateway) = cluster().await;
    for node in 0..mocks.len() {
        for command in
            ["client|setname", "client|setinfo", "client|id", "cluster|info", "cluster|myid", "ping"]
        {
            let refusal = format!("NOPERM User app has no permissions to run the '{command}' command");
            mocks.answer(node, command, Some(Reply::error(refusal)));
        }
    }
    let mut client = gateway.client().await;
    for protocol in [2, 3] {
        if protocol == 3 {
            client.hello3("").await;
        }
        for node in 0..3 {
            let key = mocks.key_of(node, protocol);
            assert_eq!(client.say(&format!("SET {key} v")).await, "OK", "RESP{protocol}");
        }
    }
    for node in 0..mocks.len() {
        mocks.answer(node, "cluster|slots", Some(Reply::error("NOPERM no map for 'cluster|slots'")));
    }
    let gateway = start(&cluster_config(mocks.urls(), Limits::default())).await;
    let reply = gateway.client().await.say("GET k").await;
    assert!(reply.starts_with("-NOPERM") && reply.contains("cluster|slots"), "{reply}");
}
