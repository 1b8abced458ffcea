//! Pipelines across nodes.

use std::time::Duration;

use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Client, Command, Config, Error, Fate};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::{Reply, Value};

use crate::target::{PATIENCE, client_of, mocks, target, unhurried};

#[tokio::test]
async fn replies_of_several_nodes_come_in_the_order_of_the_commands() {
    let target = target().await;
    let cluster = target.client().await;
    let mut pipeline = cluster.pipeline();
    for number in 0..300 {
        let key = target.key(&(number % 100).to_string());
        pipeline.push(Command::from_args(["INCRBY", &key, &number.to_string()]));
    }
    let replies = pipeline.send().await.expect("sent");
    assert_eq!(replies.len(), 300);
    for (number, reply) in replies.into_iter().enumerate() {
        let value: usize = reply.expect("a number").convert().expect("a number");
        // Each key is incremented three times, in order.
        let expected = match number {
            0..100 => number,
            100..200 => number + (number - 100),
            _ => number + (number - 100) + (number - 200),
        };
        assert_eq!(value, expected, "command {number}");
    }
}

#[tokio::test]
async fn each_command_of_a_pipeline_has_its_own_error() {
    let target = target().await;
    let cluster = target.client().await;
    let key = target.key("text");
    let replies = cluster
        .pipeline()
        .command(["SET", &key, "x"])
        .command(["INCR", &key])
        .command(["SUNION", "a", "b"])
        .command(["MGET", "a", "b", &key])
        .command(["DBSIZE"])
        .send()
        .await
        .expect("sent");
    let fates: Vec<_> = replies.iter().map(|reply| reply.as_ref().err().map(Error::fate)).collect();
    assert_eq!(fates, [None, Some(Fate::Answered), Some(Fate::NotSent), None, None]);
    let pipeline = cluster.pipeline().command(["GET", &key]).command(["SUNION", "a", "b"]);
    let error = pipeline.query::<()>().await.expect_err("keys of two slots");
    assert!(error.to_string().starts_with("command 1, SUNION: "), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
}

#[tokio::test]
async fn a_transaction_in_a_pipeline_is_refused() {
    let target = target().await;
    let cluster = target.client().await;
    let outcome = cluster.pipeline().command(["MULTI"]).command(["GET", "a"]).command(["EXEC"]).send().await;
    let error = outcome.expect_err("refused");
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
    assert!(error.to_string().contains("Client::transaction"), "{error}");
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    #[tokio::test]
    async fn commands_without_keys_keep_their_order_beside_a_key() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(1, 0);
        let mut pipeline = cluster.pipeline().keyless_beside(&key);
        for number in 0..20 {
            pipeline.push(["ECHO".to_owned(), number.to_string()]);
            pipeline.push(["INCR", &key]);
        }
        for (at, reply) in pipeline.send().await.expect("sent").into_iter().enumerate() {
            let number = i64::try_from(at / 2).expect("small");
            match reply.expect("a reply") {
                Value::Int(count) => assert_eq!(count, number + 1),
                echo => assert_eq!(echo.as_str(), Some(&*number.to_string())),
            }
        }
        assert_eq!((mocks.calls(1, "echo"), mocks.calls_everywhere("echo")), (20, 20));
    }

    #[tokio::test]
    async fn commands_of_a_pipeline_that_concern_several_nodes_have_its_time_limit() {
        let mocks = mocks().await;
        let node = Config::default().command_timeout(Duration::from_millis(50));
        let cluster = client_of(&mocks, &node.silence_limit(None)).await;
        let limit = Duration::from_millis(300);
        mocks.freeze(0);
        let get = Command::from_args(["GET", &mocks.key_of(1, 0)]).timeout(limit);
        let replies = cluster.pipeline().command(get).command(["DBSIZE"]).send().await.expect("sent");
        let Err(Error::TimedOut(late)) = &replies[1] else { panic!("{replies:?}") };
        assert_eq!(late.limit(), limit);
    }

    /// Not one by one: a pipeline whose slots have all moved costs a second round, not one per command.
    #[tokio::test]
    async fn commands_whose_slots_have_moved_are_sent_again_together() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        for node in 0..3 {
            cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("connected");
        }
        let batches = || -> u64 {
            let nodes = cluster.cluster().expect("a cluster").status().nodes;
            nodes
                .iter()
                .flat_map(|node| &node.connections)
                .map(|connection| connection.counters.batches)
                .sum()
        };
        let keys: Vec<_> = (0..300).map(|number| mocks.key_of(0, number)).collect();
        for slots in mocks.slots_of(0) {
            mocks.move_slots(slots, 1);
        }
        let before = batches();
        let mut pipeline = cluster.pipeline();
        for key in &keys {
            pipeline.push(Command::from_args(["SET", key, "y"]));
        }
        let replies = pipeline.send().await.expect("sent");
        assert!(replies.iter().all(|reply| reply.as_ref().is_ok_and(Value::is_ok)), "{replies:?}");
        // The first round, the second, and readings of the map.
        let sent = batches() - before;
        assert!(sent < 30, "{sent} batches");
    }

    /// Only reads go to replicas, also while neither node has a connection.
    #[tokio::test]
    async fn writes_go_to_the_primary_while_a_read_of_their_slot_waits_for_a_replica() {
        let mocks = MockCluster::builder(4).replicas(1).start().await.expect("free ports");
        let config = unhurried().read_from(ReadFrom::PreferReplica).refresh_interval(None);
        // Nothing of shard 1 is connected.
        let seed = format!("{}?timeout={}s", mocks.url(0), PATIENCE.as_secs());
        let cluster = Client::connect_with([seed], &config).await.expect("connected");
        let key = mocks.key_of(1, 0);
        let replica = mocks.replicas_of(1)[0];
        let pipeline = cluster.pipeline().command(["GET", &key]).command(["SET", &key, "1"]);
        for reply in pipeline.send().await.expect("sent") {
            reply.expect("answered");
        }
        assert_eq!(
            (mocks.calls(1, "set"), mocks.calls(replica, "set"), mocks.calls(replica, "get")),
            (1, 0, 1)
        );
    }

    #[tokio::test]
    async fn a_server_is_asked_once_about_a_command_of_a_module_so_that_it_keeps_its_order() {
        let mocks = mocks().await;
        let flags = Reply::Array(vec![Reply::simple("write")]);
        let (first, step) = (Reply::Integer(1), Reply::Integer(1));
        let fields = vec![Reply::bulk("x.set"), Reply::Integer(-2), flags, first.clone(), first, step];
        for node in 0..mocks.len() {
            mocks.answer(node, "command|info", Some(Reply::Array(vec![Reply::Array(fields.clone())])));
        }
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let mut pipeline = cluster.pipeline();
        for number in 0..6 {
            pipeline.push(["X.SET", &key, &number.to_string()]);
        }
        // The mock says that it does not have it.
        for reply in pipeline.send().await.expect("sent") {
            assert_eq!(reply.expect_err("no module").fate(), Fate::Answered);
        }
        assert_eq!(mocks.calls_everywhere("command|info"), 1);
    }
}
