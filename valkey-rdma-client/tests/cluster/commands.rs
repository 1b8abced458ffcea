//! Commands with keys in one slot, in several and in none.

use std::time::Duration;

use valkey_rdma_client::cluster::{NodeAddress, Route};
use valkey_rdma_client::{ClusterError, Command, Error, Fate, Value};

use crate::target::target;

#[tokio::test]
async fn every_key_is_found_again_whatever_its_slot() {
    let target = target().await;
    let cluster = target.client().await;
    for number in 0..200 {
        let key = target.key(&number.to_string());
        cluster.command(["SET", &key, &number.to_string()]).await.expect("set");
    }
    for number in 0..200 {
        let value: i64 = cluster
            .command(["GET", &target.key(&number.to_string())])
            .await
            .expect("got")
            .convert()
            .expect("a number");
        assert_eq!(value, number);
    }
    let status = cluster.cluster().expect("a cluster").status();
    assert!(status.is_complete, "{status}");
    assert!(status.nodes.iter().filter(|node| node.transport.is_some()).count() >= 3, "{status}");
    cluster.close().await;
    let error = cluster.command(["GET", "x"]).await.expect_err("closed");
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
}

#[tokio::test]
async fn commands_with_many_keys_are_split_and_joined_in_order() {
    let target = target().await;
    let cluster = target.client().await;
    let keys: Vec<_> = (0..50).map(|number| target.key(&number.to_string())).collect();
    let pairs = keys.iter().enumerate().flat_map(|(number, key)| [key.clone(), number.to_string()]);
    let set = std::iter::once("MSET".to_owned()).chain(pairs);
    assert!(cluster.command(set).await.expect("set").is_ok());

    let with_keys =
        |name: &str| std::iter::once(name.to_owned()).chain(keys.iter().cloned()).collect::<Vec<_>>();
    let mut mget = with_keys("MGET");
    mget.insert(7, target.key("missing"));
    let values: Vec<Option<usize>> = cluster.command(mget).await.expect("got").convert().expect("numbers");
    let expected: Vec<_> = (0..6).map(Some).chain([None]).chain((6..50).map(Some)).collect();
    assert_eq!(values, expected);
    for (name, count) in [("EXISTS", 50), ("TOUCH", 50), ("UNLINK", 50), ("DEL", 0)] {
        let counted: i64 = cluster.command(with_keys(name)).await.expect(name).convert().expect("a number");
        assert_eq!(counted, count, "{name}");
    }
}

#[tokio::test]
async fn keys_of_different_slots_are_refused_where_a_command_cannot_be_split() {
    let target = target().await;
    let cluster = target.client().await;
    let error = cluster.command(["SUNION", "a", "b"]).await.expect_err("two slots");
    assert!(matches!(error, Error::Cluster(ClusterError::CrossSlot { .. })), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
    cluster.command(["SUNION", "{a}1", "{a}2"]).await.expect("one slot");
}

/// One server answers so, and sets nothing.
#[tokio::test]
async fn a_malformed_command_with_keys_of_several_slots_runs_nowhere() {
    let target = target().await;
    let cluster = target.client().await;
    let (first, second) = (target.key("{a}"), target.key("{b}"));
    for line in [
        &["MSET", &first, "1", &second][..],
        &["MSETEX", "2", &first, "1", &second],
        &["MSETEX", "+2", &first, "1", &second, "2"],
        &["MSETEX", "02", &first, "1", &second, "2"],
    ] {
        let error = cluster.command(line).await.expect_err("malformed");
        assert!(error.server().is_some(), "{line:?}: {error:?}");
    }
    let values: Vec<Option<String>> = cluster.query(["MGET", &first, &second]).await.expect("read");
    assert_eq!(values, [None, None]);
}

#[tokio::test]
async fn commands_without_keys_reach_the_nodes_they_concern() {
    let target = target().await;
    let cluster = target.client().await;
    for number in 0..30 {
        cluster.command(["SET", &target.key(&number.to_string()), "x"]).await.expect("set");
    }
    let size: i64 = cluster.command(["DBSIZE"]).await.expect("sizes").convert().expect("a number");
    assert!(size >= 30, "{size}");
    let pattern = target.key("*");
    let keys: Vec<String> =
        cluster.command(["KEYS", &pattern]).await.expect("keys").convert().expect("a list");
    assert_eq!(keys.len(), 30);
    assert_eq!(cluster.command(["PING"]).await.expect("pong").as_str(), Some("PONG"));
    let error = cluster.command(["SHUTDOWN"]).await.expect_err("which node?");
    assert!(matches!(error, Error::Cluster(ClusterError::NoRoute { .. })), "{error:?}");
}

#[tokio::test]
async fn a_caller_can_name_the_nodes() {
    let target = target().await;
    let cluster = target.client().await;
    let primaries =
        cluster.cluster().expect("a cluster").status().nodes.into_iter().filter(|node| node.is_primary);
    for node in primaries {
        let pong = cluster
            .cluster()
            .expect("a cluster")
            .command_on(Route::Node(node.address), Command::new("PING"))
            .await;
        assert_eq!(pong.expect("pong").as_str(), Some("PONG"));
    }
    let echo = Command::from_args(["ECHO", "x"]);
    let all = cluster
        .cluster()
        .expect("a cluster")
        .command_on(Route::AllPrimaries, echo.clone())
        .await
        .expect("echoes");
    assert_eq!(all.as_map().map(<[(Value, Value)]>::len), Some(3), "{all:?}");
    let stranger = Route::Node(NodeAddress::new("192.0.2.1", 1));
    let error =
        cluster.cluster().expect("a cluster").command_on(stranger, echo).await.expect_err("no such node");
    assert!(matches!(error, Error::Cluster(ClusterError::UnknownNode { .. })), "{error:?}");
}

#[tokio::test]
async fn an_error_reply_is_the_answer() {
    let target = target().await;
    let cluster = target.client().await;
    let key = target.key("text");
    cluster.command(["SET", &key, "x"]).await.expect("set");
    let error = cluster.command(["INCR", &key]).await.expect_err("no number");
    assert_eq!(error.fate(), Fate::Answered, "{error}");
    let error = cluster.command(["NOSUCHCOMMAND", &key]).await.expect_err("unknown");
    assert!(error.server().is_some_and(|error| error.message.contains("unknown command")), "{error}");
}

#[test]
fn every_future_can_be_spawned() {
    fn is_send<T: Send>(_: impl FnOnce(valkey_rdma_client::Client) -> T) {}
    is_send(|cluster| async move { cluster.command(["GET", "a"]).await });
    is_send(|cluster| async move { cluster.pipeline().command(["GET", "a"]).send().await });
    is_send(|cluster| async move { cluster.transaction().command(["GET", "a"]).execute().await });
    is_send(|cluster| async move {
        cluster.cluster().expect("a cluster").command_on(Route::Any, Command::new("PING")).await
    });
    is_send(|cluster| async move { cluster.scan().next_batch().await });
    is_send(|cluster| async move { cluster.close().await });
}

#[tokio::test]
async fn what_has_no_time_left_is_not_sent() {
    let target = target().await;
    let cluster = target.client().await;
    let key = target.key("n");
    let late = || Command::new("INCR").arg(&key).timeout(Duration::ZERO);
    let pipeline = cluster.pipeline().command(late()).command(late());
    let everywhere = Command::new("DBSIZE").timeout(Duration::ZERO);
    let mut outcomes: Vec<_> = pipeline.send().await.expect("each has its own").into_iter().collect();
    outcomes.push(cluster.command(late()).await);
    outcomes.push(cluster.cluster().expect("a cluster").command_on(Route::Any, late()).await);
    outcomes.push(cluster.command(everywhere).await);
    outcomes
        .push(cluster.blocking_command(Command::new("BLPOP").arg(&key).arg(0).timeout(Duration::ZERO)).await);
    outcomes.push(cluster.transaction().command(late()).execute().await.map(|_| Value::Nil));
    for outcome in outcomes {
        let error = outcome.expect_err("too late");
        assert!(matches!(error, Error::TimedOut(_)) && error.fate() == Fate::NotSent, "{error:?}");
    }
    assert_eq!(cluster.query::<i64>(["INCR", &key]).await.expect("counted"), 1);
}

mod mocks_only {
    use valkey_rdma_mock::MockCluster;

    use super::*;
    use crate::target::{client_of, mocks, unhurried};

    /// A node that is gone, and a slot that has none.
    #[tokio::test]
    async fn commands_that_any_primary_may_run_go_to_one_that_answers() {
        let mocks = mocks().await;
        let (dead, lonely) = (mocks.key_of(1, 0), mocks.key_of(2, 0));
        let slot = MockCluster::slot(&lonely);
        mocks.unassign(slot..=slot);
        let client = client_of(&mocks, &unhurried().offline_timeout(Duration::from_millis(300))).await;
        // On a busy machine, connecting alone can take longer than that.
        while client.command(["DBSIZE"]).await.is_err() {}
        mocks.kill(1).await;
        // The first ones meet the lost connection.
        while !matches!(client.command(["GET", &dead]).await, Err(Error::Connect(_))) {}
        let cluster = client.cluster().expect("a cluster");
        for _ in 0..12 {
            for key in [&dead, &lonely] {
                cluster.command_on(cluster.route_beside(key), ["TIME"]).await.expect("another answers");
                let pipeline = client.pipeline().keyless_beside(key).command(["TIME"]).command(["ECHO", "x"]);
                pipeline.query::<()>().await.expect("another answers");
            }
            client.transaction().command(["TIME"]).execute().await.expect("another answers");
        }
    }
}
