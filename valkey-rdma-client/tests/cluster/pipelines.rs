//! Pipelines across nodes.

use valkey_rdma_client::{Command, Error, Fate};
use valkey_rdma_resp::Value;

use crate::target::{client_of, mocks, target, unhurried};

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
        let value: usize = reply.expect("a number").try_into().expect("a number");
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
}

#[tokio::test]
async fn a_transaction_in_a_pipeline_is_refused() {
    let target = target().await;
    let cluster = target.client().await;
    let outcome = cluster.pipeline().command(["MULTI"]).command(["GET", "a"]).command(["EXEC"]).send().await;
    let error = outcome.expect_err("refused");
    assert!(matches!(error, Error::Refused(_)), "{error:?}");
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
        let nodes = cluster.status().nodes;
        nodes.iter().flat_map(|node| &node.connections).map(|connection| connection.counters.batches).sum()
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
