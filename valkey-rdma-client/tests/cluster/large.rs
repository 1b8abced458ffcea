//! Large values and blocking commands, on dedicated connections.

use std::time::Duration;

use valkey_rdma_client::cluster::{NodeAddress, Route};
use valkey_rdma_client::{Client, ClusterError, Command, Config, DirectMemory, Error, Fate, Way};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, advance, client_of, mocks, target, unhurried};

#[tokio::test]
async fn large_values_go_to_the_node_of_their_key() {
    let target = target().await;
    let cluster = target.client().await;
    for tag in ["a", "b", "c", "d"] {
        let key = target.key(&format!("{{{tag}}}film"));
        let mut film =
            cluster.stream_argument(Command::from_args(["SET", &key]), 3 << 20).await.expect("begun");
        for piece in 0..3 {
            film.write(&vec![piece; 1 << 20]).await.expect("written");
        }
        assert!(film.finish().await.expect("set").is_ok());
        let mut buffer = vec![9; 4 << 20];
        assert_eq!(cluster.get_into(&key, &mut buffer).await.expect("read"), Some(3 << 20));
        assert_eq!((buffer[0], buffer[(1 << 20) + 1], buffer[(3 << 20) - 1]), (0, 1, 2));
        assert_eq!(cluster.get_into(target.key("missing"), &mut buffer).await.expect("read"), None);
    }
}

#[tokio::test]
async fn a_blocking_command_waits_on_the_node_of_its_key() {
    let target = target().await;
    let cluster = target.client().await;
    let key = target.key("jobs");
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.blocking_command(["BLPOP", &key, "20"]).await }
    });
    cluster.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let job: Option<(String, String)> =
        waits.await.expect("no panic").expect("popped").convert().expect("a job");
    assert_eq!(job, Some((key, "job".to_owned())));
    let error = cluster.blocking_command(["BLPOP", "a", "b", "1"]).await.expect_err("two slots");
    assert!(matches!(error, Error::Cluster(ClusterError::CrossSlot { .. })), "{error:?}");
}

/// The number that a node gave to a connection.
async fn id(cluster: &Client, key: &str) -> i64 {
    let route = Route::Key(key.to_owned().into());
    let id =
        cluster.cluster().expect("a cluster").command_on(route, Command::from_args(["CLIENT", "ID"])).await;
    id.expect("answered").as_int().expect("a number")
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    #[tokio::test]
    async fn a_large_value_follows_its_slot() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let slot = MockCluster::slot(&key);
        cluster.command(["SET", &key, "short"]).await.expect("set");
        mocks.begin_migration(slot..=slot, 1);
        mocks.move_keys(slot, 10);
        let mut buffer = [0; 16];
        assert_eq!(cluster.get_into(&key, &mut buffer).await.expect("asked for"), Some(5));
        let mut writer = cluster.stream_argument(Command::from_args(["SET", &key]), 4).await.expect("begun");
        writer.write(b"more").await.expect("written");
        assert!(writer.finish().await.expect("set where it is").is_ok());
        mocks.finish_migration(slot..=slot);
        assert_eq!(cluster.get_into(&key, &mut buffer).await.expect("moved"), Some(4));
        assert_eq!(&buffer[..4], b"more");
    }

    #[tokio::test]
    async fn a_direct_transfer_follows_its_slot_with_its_slices() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let slot = MockCluster::slot(&key);
        let memory = DirectMemory::allocate(16).expect("a length");
        let mut slices = vec![memory.take(0..8).expect("free"), memory.take(8..16).expect("free")];
        slices[0].fill(1);
        slices[1].fill(2);
        slices = cluster.set_direct(&key, slices).await.expect("set").slices;
        mocks.begin_migration(slot..=slot, 1);
        mocks.move_keys(slot, 10);
        for expected in [1, 3] {
            slices.iter_mut().for_each(|slice| slice.fill(0));
            let placed = cluster.get_direct(&key, slices).await.expect("asked for, or moved");
            let is_direct = matches!(placed.way, Way::Direct);
            assert_eq!(is_direct, cluster.info().tls.is_none(), "{}", placed.way);
            assert_eq!((placed.len, placed.slices[0][0], placed.slices[1][7]), (Some(16), expected, 2));
            slices = placed.slices;
            slices[0].fill(3);
            slices = cluster.set_direct(&key, slices).await.expect("set where it is").slices;
            mocks.finish_migration(slot..=slot);
        }
        let counters = cluster.cluster().expect("a cluster").status().counters;
        assert!(counters.ask > 0 && counters.moved > 0, "{counters:?}");
    }

    #[tokio::test]
    async fn a_user_who_may_not_ask_for_the_key_writes_it() {
        let mocks = mocks().await;
        for node in 0..mocks.len() {
            mocks.answer(node, "exists", Some(Reply::error("NOPERM User app has no permissions")));
        }
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let command = Command::from_args(["SET", &key]);
        let mut writer = cluster.stream_argument(command.clone(), 4).await.expect("begun");
        writer.write(b"more").await.expect("written");
        assert!(writer.finish().await.expect("set").is_ok());
        mocks.answer(0, "exists", Some(Reply::error("ERR broken")));
        cluster.stream_argument(command, 4).await.expect_err("another refusal");
    }

    #[tokio::test]
    async fn the_node_of_the_key_is_asked_wherever_the_key_is_in_the_command() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let (script, key) = (mocks.key_of(1, 0), mocks.key_of(0, 0));
        let command = Command::from_args(["EVAL", &script, "1", &key]);
        let mut writer = cluster.stream_argument(command, 4).await.expect("begun");
        writer.write(b"more").await.expect("written");
        let error = writer.finish().await.expect_err("the mock has no Lua");
        assert!(error.server().is_some_and(|error| error.code == "ERR"), "{error}");
        let calls = |command: &str| [0, 1, 2].map(|node| mocks.calls(node, command));
        assert_eq!((calls("exists"), calls("eval")), ([1, 0, 0], [1, 0, 0]));
    }

    #[tokio::test]
    async fn a_dedicated_connection_stays_with_its_node() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(1, 0);
        let node = cluster.cluster().expect("a cluster").node_of(&key).expect("served");
        assert_eq!(node.to_string(), mocks.announced(1));
        for route in [Route::Key(key.clone().into()), Route::Slot(MockCluster::slot(&key)), Route::Node(node)]
        {
            let mut connection =
                cluster.cluster().expect("a cluster").dedicated(route).await.expect("connected");
            connection.command(["SET", &key, "x"]).await.expect("served here");
            let error = connection.command(["GET", &mocks.key_of(2, 0)]).await.expect_err("served elsewhere");
            assert!(matches!(&error, Error::Server(error) if error.code == "MOVED"), "{error:?}");
        }
        assert!(cluster.cluster().expect("a cluster").dedicated(Route::Any).await.is_ok());
        for route in [Route::AllNodes, Route::Node(NodeAddress::new("nowhere", 1))] {
            let error =
                cluster.cluster().expect("a cluster").dedicated(route).await.expect_err("not one node");
            assert!(matches!(error, Error::Cluster(_)), "{error:?}");
        }
    }

    #[tokio::test]
    async fn a_large_value_is_read_from_the_successor_of_a_dead_node() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let mut buffer = [0; 16];
        cluster.command(["SET", &key, "short"]).await.expect("set");
        assert_eq!(cluster.get_into(&key, &mut buffer).await.expect("read"), Some(5));
        mocks.fail_over(3);
        mocks.kill(0).await;
        // The shared connection may not know yet that it is lost.
        assert_eq!(cluster.get_into(&key, &mut buffer).await.expect("read"), Some(5));
    }

    #[tokio::test]
    async fn the_shared_connection_survives_the_end_of_a_dedicated_one() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let shared = id(&cluster, &key).await;
        let route = || Route::Key(key.clone().into());
        let mut latest = cluster.cluster().expect("a cluster").dedicated(route()).await.expect("connected");
        let latest: i64 = latest.query(["CLIENT", "ID"]).await.expect("answered");
        let blocked = tokio::spawn({
            let (cluster, key) = (cluster.clone(), key.clone());
            async move { cluster.blocking_command(["BLPOP", &key, "0"]).await }
        });
        while mocks.calls(0, "blpop") < 1 {
            tokio::task::yield_now().await;
        }
        // It has one of the next numbers.
        for number in 1..10 {
            let kill = Command::from_args(["CLIENT", "KILL", "ID", &(latest + number).to_string()]);
            cluster.cluster().expect("a cluster").command_on(route(), kill).await.expect("a count");
        }
        let error = blocked.await.expect("no panic").expect_err("its connection is killed");
        assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
        assert_eq!(id(&cluster, &key).await, shared);
    }

    #[tokio::test]
    async fn the_time_limit_of_a_blocking_command_covers_the_wait_for_its_node() {
        let mocks = mocks().await;
        let config = unhurried().offline_timeout(None);
        let cluster = client_of(&mocks, &config).await;
        mocks.kill(0).await;
        let command =
            Command::from_args(["BLPOP", &mocks.key_of(0, 0), "0"]).timeout(Duration::from_millis(100));
        cluster.blocking_command(command).await.expect_err("its node is dead");
    }

    /// The wait for the connection was over long ago.
    #[tokio::test]
    async fn a_blocking_read_that_waited_long_is_sent_again_after_its_connection() {
        let mocks = mocks().await;
        let limit = Duration::from_secs(10);
        let node = Config::default().command_timeout(None).offline_timeout(limit);
        // Only node 0 is connected.
        let seed = format!("{}?timeout={}s", mocks.url(0), PATIENCE.as_secs());
        let config = node;
        let cluster = Client::connect_with([seed], &config).await.expect("connected");
        let key = mocks.key_of(1, 0);
        let waits = tokio::spawn({
            let (cluster, key) = (cluster.clone(), key.clone());
            async move { cluster.blocking_command(["XREAD", "BLOCK", "0", "STREAMS", &key, "0"]).await }
        });
        while mocks.calls(1, "xread") < 1 {
            tokio::task::yield_now().await;
        }
        advance(limit + Duration::from_secs(1), 1).await;
        mocks.disconnect(1).await;
        while mocks.calls(1, "xread") < 2 && !waits.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!waits.is_finished(), "{:?}", waits.await);
        waits.abort();
    }

    /// Another try would begin at the end of the stream there, behind what came meanwhile.
    #[tokio::test]
    async fn a_read_from_the_end_of_a_stream_finds_its_node_and_is_sent_once() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        let slot = MockCluster::slot(&key);
        let read = || {
            let (cluster, key) = (cluster.clone(), key.clone());
            tokio::spawn(async move {
                cluster.blocking_command(["XREAD", "BLOCK", "0", "STREAMS", &key, "$"]).await
            })
        };
        let reaches = async |reads: &tokio::task::JoinHandle<_>, node: usize| {
            while mocks.calls(node, "xread") < 1 && !reads.is_finished() {
                tokio::task::yield_now().await;
            }
        };
        cluster.command(["GET", &key]).await.expect("its node is known");
        mocks.move_slots(slot..=slot, 1);
        let reads = read();
        reaches(&reads, 1).await;
        mocks.move_slots(slot..=slot, 2);
        let error = reads.await.expect("no panic").expect_err("its slot has moved");
        assert!(error.server().is_some_and(|error| error.code == "MOVED"), "{error:?}");
        let reads = read();
        reaches(&reads, 2).await;
        mocks.disconnect(2).await;
        let error = reads.await.expect("no panic").expect_err("its connection is lost");
        assert_eq!(error.fate(), Fate::MayHaveRun, "{error:?}");
        assert_eq!([0, 1, 2].map(|node| mocks.calls(node, "xread")), [0, 1, 1]);
    }

    /// It has not blocked there.
    #[tokio::test]
    async fn a_read_from_the_end_of_a_stream_waits_for_a_node_that_is_not_ready() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let key = mocks.key_of(0, 0);
        mocks.answer_next(0, "xread", [Reply::error("LOADING wait"), Reply::error("MASTERDOWN wait")]);
        let reads = tokio::spawn({
            let (cluster, key) = (cluster.clone(), key.clone());
            async move { cluster.blocking_command(["XREAD", "BLOCK", "0", "STREAMS", &key, "$"]).await }
        });
        while mocks.calls(0, "xread") < 3 && !reads.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!reads.is_finished(), "{:?}", reads.await);
        reads.abort();
    }
}
