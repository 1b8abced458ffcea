//! What local clients see when slots move and nodes fail.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::net::UnixStream;
use valkey_rdma_gateway::Activation;
use valkey_rdma_mock::MockCluster;
use valkey_rdma_server::Reply;

use super::{cluster, limits, move_slot};
use crate::support::{Client, PATIENCE, cluster_config, encode, start, text};

#[tokio::test]
async fn watched_keys_guard_a_transaction_also_when_their_slot_moves() {
    let (mocks, gateway) = cluster().await;
    let (mut client, mut other) = (gateway.client().await, gateway.client().await);
    for (change, expected) in
        [("", "[OK]"), ("SET {u}k other", "(nil)"), ("move", "(nil)"), ("SET {v}k other", "[OK]")]
    {
        assert_eq!(client.say("WATCH {u}k").await, "OK");
        assert_eq!(client.say("WATCH {u}l").await, "OK");
        client.say("GET {v}k").await;
        match change {
            "" => {}
            "move" => move_slot(&mocks, "{u}k"),
            line => assert_eq!(other.say(line).await, "OK"),
        }
        assert_eq!(client.say("MULTI").await, "OK");
        assert_eq!(client.say("SET {u}k mine").await, "QUEUED");
        assert_eq!(client.say("EXEC").await, expected, "{change}");
    }
    assert_eq!(client.say("WATCH {u}k").await, "OK");
    assert!(client.say("WATCH {v}k").await.starts_with("-CROSSSLOT"));
    assert_eq!(client.say("UNWATCH").await, "OK");
    gateway.until("gateway_connections", |count| count == 0).await;
}

#[tokio::test]
async fn redirections_are_followed_and_never_shown() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let key = mocks.key_of(0, 0);
    assert_eq!(client.say(&format!("SET {key} 1")).await, "OK");
    let slot = MockCluster::slot(&key);
    mocks.begin_migration(slot..=slot, 1);
    mocks.move_keys(slot, 10);
    assert_eq!(client.say(&format!("INCR {key}")).await, ":2", "ASK");
    mocks.finish_migration(slot..=slot);
    assert_eq!(client.say(&format!("INCR {key}")).await, ":3", "MOVED");
    move_slot(&mocks, &key);
    let pipeline = encode(["INCR", &key]).repeat(3);
    client.send(&pipeline).await;
    for expected in [":4", ":5", ":6"] {
        assert_eq!(text(&client.reply().await), expected);
    }
    move_slot(&mocks, &key);
    assert_eq!(client.say("MULTI").await, "OK");
    assert_eq!(client.say(&format!("INCR {key}")).await, "QUEUED");
    assert_eq!(client.say("EXEC").await, "[:7]");
}

/// One server passes it on too.
#[tokio::test]
async fn a_redirection_that_a_script_or_a_module_returns_is_its_answer() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let key = mocks.key_of(0, 0);
    let answer = format!("MOVED {} 127.0.0.1:1", MockCluster::slot(&key));
    for (name, line) in [("eval", format!("EVAL script 1 {key}")), ("blob.get", format!("BLOB.GET {key}"))] {
        mocks.answer(0, name, Some(Reply::error(answer.clone())));
        assert_eq!(client.say(&line).await, format!("-{answer}"), "{name}");
        assert_eq!(client.say(&format!("GET {key}")).await, "(nil)", "the client is not closed");
    }
}

/// The reply to a command. `None` if the client was closed.
async fn ask(client: &mut Client, line: &str) -> Option<String> {
    client.stream_send(&encode(line.split(' '))).await?;
    client.try_reply().await.map(|reply| text(&reply))
}

/// Counts up on keys of all slots, one command in flight, and checks that each reply is the next number of its key: a reply of another
/// client or key would not be. If the client is closed, the command may have run once: the number is read again.
async fn count_up(path: PathBuf, number: usize, stop: Arc<AtomicBool>) -> u64 {
    let connect = async || Client::new(UnixStream::connect(&path).await.unwrap());
    let mut client = connect().await;
    let mut counts = [0_i64; 16];
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        for (at, count) in counts.iter_mut().enumerate() {
            let key = format!("count:{number}:{at}");
            let step = number as i64 + 1;
            if let Some(reply) = ask(&mut client, &format!("INCRBY {key} {step}")).await {
                *count += step;
                assert_eq!(reply, format!(":{count}"), "{key}");
                done += 1;
                continue;
            }
            let now = loop {
                client = connect().await;
                if let Some(now) = ask(&mut client, &format!("GET {key}")).await {
                    break now;
                }
            };
            let now = if now == "(nil)" { 0 } else { now.parse::<i64>().unwrap() };
            assert!(now == *count || now == *count + step, "{key}: {now} after {count}");
            *count = now;
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_reply_is_wrong_while_slots_move_and_nodes_fail() {
    let (mocks, gateway) = cluster().await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(tokio::spawn(count_up(gateway.unix.clone(), number, stop.clone())));
    }
    let more = async |commands: u64| {
        let now = gateway.info("gateway_commands_shared").await;
        gateway.until("gateway_commands_shared", |count| count > now + commands).await;
    };
    more(500).await;
    for first in (0..16_384).step_by(1024) {
        mocks.begin_migration(first..=first + 200, (usize::from(first) / 1024) % 3);
        more(100).await;
        mocks.finish_migration(first..=first + 200);
    }
    more(500).await;
    mocks.kill(1).await;
    gateway.until("gateway_connect_failures", |count| count >= 1).await;
    mocks.fail_over(4);
    more(500).await;
    mocks.fail_over(5);
    more(500).await;
    mocks.disconnect(0).await;
    more(500).await;
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    for task in tasks {
        done += tokio::time::timeout(PATIENCE, task).await.expect("no client hangs").expect("no wrong reply");
    }
    assert!(done > 2000, "{done} commands");
    gateway.until("gateway_connects", |count| count > 3).await;
    gateway.until("gateway_connections_lost", |count| count >= 2).await;
}

/// The node has no replica.
#[tokio::test]
async fn a_client_whose_node_is_lost_is_closed_and_others_go_on() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), limits(|limits| limits.offline_ms = 300))).await;
    let (lost, there) = (mocks.key_of(1, 0), mocks.key_of(0, 0));
    let mut other = gateway.client().await;
    assert_eq!(other.say(&format!("SET {there} v")).await, "OK");
    assert_eq!(other.say(&format!("GET {lost}")).await, "(nil)");
    let (mut blocked, before) = (gateway.client().await, mocks.connections(1).await);
    blocked.command(&format!("BLPOP {lost} 0")).await;
    while mocks.connections(1).await == before {
        tokio::task::yield_now().await;
    }
    mocks.kill(1).await;
    blocked.expect_end().await;
    for line in [format!("INCR {lost}"), format!("GET {lost}"), format!("MSET {there} v {lost} v")] {
        let mut client = gateway.client().await;
        client.command(&line).await;
        client.expect_end().await;
    }
    assert_eq!(other.say(&format!("GET {there}")).await, "v");
}

#[tokio::test]
async fn a_changed_offline_ms_holds_for_clients_that_there_are() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut config = cluster_config(mocks.urls(), limits(|limits| limits.offline_ms = 86_400_000));
    let mut running = start(&config).await;
    let mut client = running.client().await;
    assert_eq!(client.say("DBSIZE").await, ":0", "all nodes are connected");
    let connects = running.info("gateway_connects").await;
    config.limits.offline_ms = 100;
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert_eq!(client.say("PING").await, "PONG");
    running.until("gateway_connects", |count| count > connects).await;
    mocks.kill(1).await;
    client.command(&format!("GET {}", mocks.key_of(1, 0))).await;
    client.expect_end().await;
}

#[tokio::test]
async fn connections_serve_until_there_are_others_with_a_changed_offline_ms() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut config = cluster_config(mocks.urls(), limits(|limits| limits.offline_ms = 20_000));
    let mut running = start(&config).await;
    let mut client = running.client().await;
    assert_eq!(client.say("DBSIZE").await, ":0", "all nodes are connected");
    for node in 0..3 {
        mocks.answer(node, "cluster|slots", Some(Reply::error("NOPERM no map for 'cluster|slots'")));
    }
    config.limits.offline_ms = 10_000;
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert_eq!(client.say("GET k").await, "(nil)");
    running.until("gateway_logins_refused", |count| count == 1).await;
    assert_eq!(client.say("GET k").await, "(nil)");
}
