//! Nodes that fail, and seeds that are of no use.

use std::time::Duration;

use tokio::time::timeout;
use valkey_rdma_client::cluster::{NodeStatus, Route};
use valkey_rdma_client::{
    Backoff, Client, ClusterError, Command, ConnectionEvent, EndpointError, Error, Fate,
};
use valkey_rdma_mock::{DeviceKind, Mock, MockCluster, Server, TransportConfig};
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, advance, client_of, in_flight, mocks, read_again, seeds, unhurried, watchful};

#[tokio::test]
async fn a_replica_that_takes_over_is_found() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful()).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["INCR", &key]).await.expect("counted");
    mocks.kill(0).await;
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move {
            // The first may have been on its way to the dead node.
            match cluster.command(["INCR", &key]).await {
                Err(error) if error.fate() == Fate::MayHaveRun => cluster.command(["INCR", &key]).await,
                other => other,
            }
        }
    });
    // Meanwhile the other shards answer.
    for number in 0..100 {
        for node in 1..3 {
            cluster.command(["SET", &mocks.key_of(node, number % 3), "x"]).await.expect("healthy");
        }
    }
    mocks.fail_over(3);
    let reply = waits.await.expect("no panic").expect("the new primary answers");
    assert_eq!(reply.as_int(), Some(2));
}

/// The node ended its connection soon after it was made, so the next attempt waits for longer than the replica takes.
#[tokio::test]
async fn a_new_primary_is_found_while_the_attempt_to_connect_to_the_old_one_waits() {
    let mocks = mocks().await;
    let wait = Duration::from_secs(24 * 3600);
    let node = watchful().reconnect(Backoff::default().first(wait).max(wait));
    let cluster = client_of(&mocks, &node).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["GET", &key]).await.expect("a reply");
    mocks.kill(0).await;
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["GET", &key]).await }
    });
    // The readings that its failure asks for find nothing new.
    read_again(&cluster, 10).await;
    mocks.fail_over(3);
    waits.await.expect("no panic").expect("the new primary answers");
}

/// They have no keys, and Valkey's own description does not say that they only read.
#[tokio::test]
async fn ping_and_time_are_sent_again_when_their_connection_is_lost() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    for name in ["PING", "TIME"] {
        cluster.command(["GET", &key]).await.expect("connected");
        mocks.freeze(0);
        let sent = tokio::spawn({
            let (cluster, node) = (cluster.clone(), Route::Key(key.clone().into()));
            async move { cluster.cluster().expect("a cluster").command_on(node, [name]).await }
        });
        in_flight(&cluster, 1).await;
        mocks.disconnect(0).await;
        mocks.thaw(0);
        sent.await.expect("no panic").expect(name);
    }
}

#[tokio::test]
async fn a_node_that_refuses_the_login_fails_its_commands_at_once() {
    let mocks = mocks().await;
    let refusal = Reply::Error("WRONGPASS invalid username-password pair or user is disabled.".into());
    mocks.answer(0, "hello", Some(refusal));
    // Commands without a limit: one that waits does not return.
    let config = watchful().command_timeout(None).offline_timeout(None);
    let seeds = seeds(&mocks).split_off(1);
    let cluster = Client::connect_with(seeds, &config).await.expect("the others accept it");
    let refused = timeout(PATIENCE, cluster.command(["GET", &mocks.key_of(0, 0)])).await;
    let error = refused.expect("no hang").expect_err("refused");
    assert!(error.to_string().contains("WRONGPASS"), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
    cluster.command(["GET", &mocks.key_of(1, 0)]).await.expect("accepted");
}

#[tokio::test]
async fn a_node_that_never_answers_delays_only_its_own_commands() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful()).await;
    for node in 0..3 {
        cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("set");
    }
    mocks.freeze(0);
    let stuck = tokio::spawn({
        let (cluster, key) = (cluster.clone(), mocks.key_of(0, 0));
        async move {
            cluster.command(Command::from_args(["INCR", &key]).timeout(Duration::from_millis(500))).await
        }
    });
    for number in 0..100 {
        for node in 1..3 {
            cluster.command(["GET", &mocks.key_of(node, number % 3)]).await.expect("healthy");
        }
    }
    let error = stuck.await.expect("no panic").expect_err("no answer");
    assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
    mocks.thaw(0);
    cluster.command(["GET", &mocks.key_of(0, 0)]).await.expect("answers again");
}

/// The other connection takes all commands, so that none of them finds the one that has ended.
#[tokio::test]
async fn one_of_several_connections_to_a_node_is_replaced() {
    let mocks = mocks().await;
    let config = unhurried().connections(2).silence_limit(Duration::from_millis(20));
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    let id = cluster
        .cluster()
        .expect("a cluster")
        .command_on(Route::Key(key.clone().into()), Command::from_args(["CLIENT", "ID"]))
        .await;
    let id = id.expect("answered").as_int().expect("a number").to_string();
    let (mut events, mut ends) = (cluster.events(), cluster.events());
    let killer = client_of(&mocks, &unhurried()).await;
    let kill = Command::from_args(["CLIENT", "KILL", "ID", &id]);
    killer
        .cluster()
        .expect("a cluster")
        .command_on(Route::Key(key.clone().into()), kill)
        .await
        .expect("killed");
    let of_node = |event: &ConnectionEvent| match event {
        ConnectionEvent::Connected { node: Some(node), .. } => node.to_string() == mocks.announced(0),
        _ => false,
    };
    // Both were connected when listening began, and both are made anew.
    let replaced = async {
        let mut made = 0;
        while made < 4 {
            made += u32::from(of_node(&events.next().await.expect("not closed")));
        }
    };
    let mut replaced = std::pin::pin!(replaced);
    // Nothing is in flight until it has ended.
    while !matches!(ends.next().await.expect("not closed"), ConnectionEvent::Lost { .. }) {}
    loop {
        tokio::select! {
            () = &mut replaced => break,
            got = cluster.command(["GET", &key]) => drop(got.expect("got")),
        }
    }
}

#[tokio::test]
async fn what_may_have_run_is_never_sent_twice_but_reads_are() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful()).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    mocks.freeze(0);
    let all = {
        let (cluster, key) = (cluster.clone(), key.clone());
        tokio::spawn(async move {
            let route = Route::Key(key.clone().into());
            tokio::join!(
                cluster.command(["INCR", &key]),
                cluster.command(["GET", &key]),
                cluster.cluster().expect("a cluster").command_on(route, Command::from_args(["GET", &key])),
            )
        })
    };
    in_flight(&cluster, 3).await;
    mocks.disconnect(0).await;
    mocks.thaw(0);
    let (incr, get, there) = all.await.expect("no panic");
    assert_eq!(incr.expect_err("lost").fate(), Fate::MayHaveRun);
    get.expect("read again");
    there.expect("read again");
}

/// Whatever ends a command in the end, its first try may have run.
#[tokio::test]
async fn what_may_have_run_is_reported_after_later_tries_too() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful()).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    mocks.freeze(0);
    let set = {
        let (cluster, key) = (cluster.clone(), key.clone());
        let command = Command::from_args(["SET", &key, "2"]).idempotent();
        tokio::spawn(async move { cluster.command(command).await })
    };
    in_flight(&cluster, 1).await;
    mocks.move_all_to(0, Some(1));
    mocks.move_all_to(1, Some(0));
    mocks.disconnect(0).await;
    mocks.thaw(0);
    let error = set.await.expect("no panic").expect_err("endless");
    assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
}

/// The other part has run: a retry would run it twice.
#[tokio::test]
async fn a_command_of_which_one_part_was_not_sent_may_have_run() {
    let mocks = mocks().await;
    let node = unhurried().offline_timeout(Duration::from_millis(100));
    let cluster = client_of(&mocks, &node).await;
    let (dead, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    mocks.kill(0).await;
    // The client notices.
    cluster.command(["GET", &dead]).await.expect_err("its node is dead");
    let error = cluster.command(["MSET", &dead, "1", &other, "new"]).await.expect_err("one part fails");
    assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
    let value = cluster.command(["GET", &other]).await.expect("its node lives");
    assert_eq!(value.as_str(), Some("new"));
}

/// The other part has run, and the answer of one node must not hide that.
#[tokio::test]
async fn a_command_of_which_one_part_was_refused_ran_in_part() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let (full, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    for command in
        [&["MSET", &full, "1", &other, "new"][..], &["DEL", &full, &other], &["UNLINK", &full, &other]]
    {
        mocks.answer_keyed_next(0, [Reply::error("OOM command not allowed")]);
        let error = cluster.command(command).await.expect_err("one part fails");
        let Error::Cluster(ClusterError::Partial { failed: 1, parts: 2, first }) = &error else {
            panic!("{error:?}")
        };
        assert!(first.server().is_some_and(|error| error.code == "OOM"), "{error}");
        assert_eq!(error.fate(), Fate::Answered, "{error}");
        #[cfg(feature = "redis")]
        {
            let theirs = redis::RedisError::from(error);
            assert_eq!(theirs.code(), Some("OOM"));
            assert!(theirs.to_string().contains("1 of the command's 2 parts failed"), "{theirs}");
        }
    }
    // Nothing was written: the error of the node is enough.
    mocks.answer_keyed_next(0, [Reply::error("OOM command not allowed")]);
    let error = cluster.command(["MGET", &full, &other]).await.expect_err("one part fails");
    assert!(error.server().is_some_and(|error| error.code == "OOM"), "{error}");
}

/// FLUSHALL on the others would have run already, each time that it is repeated.
#[tokio::test]
async fn a_command_for_all_primaries_waits_for_a_successor_and_for_a_node_that_loads() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful().refresh_interval(None)).await;
    cluster.command(["DBSIZE"]).await.expect("all are connected");
    mocks.fail_over(3);
    cluster.command(["FLUSHALL"]).await.expect("the new primary is found");
    let named = Command::from_args(["GET", &mocks.key_of(1, 0)]);
    let error = cluster
        .cluster()
        .expect("a cluster")
        .command_on(Route::AllPrimaries, named)
        .await
        .expect_err("others do not have the key");
    let Error::Cluster(ClusterError::Partial { failed: 2, parts: 3, first }) = &error else {
        panic!("{error:?}")
    };
    assert!(first.server().is_some_and(|error| error.code == "MOVED"), "{error}");
    assert_eq!((mocks.calls(1, "flushall"), mocks.calls(2, "flushall")), (1, 1));
    mocks.answer_next(1, "dbsize", [Reply::error("LOADING wait")]);
    cluster.command(["DBSIZE"]).await.expect("it has loaded");
    mocks.kill(2).await;
    let read = tokio::spawn({
        let (cluster, key) = (cluster.clone(), mocks.key_of(2, 0));
        async move { cluster.command(["GET", &key]).await }
    });
    // The read has found the connection lost, so that INFO is not sent on it.
    let is_lost =
        |node: &NodeStatus| node.address.to_string() == mocks.announced(2) && node.transport.is_none();
    while !cluster.cluster().expect("a cluster").status().nodes.iter().any(is_lost) {
        tokio::task::yield_now().await;
    }
    let infos = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.command(["INFO"]).await }
    });
    mocks.fail_over(5);
    let infos = infos.await.expect("no panic").expect("the successor answers");
    read.await.expect("no panic").expect("read from the successor");
    let names: Vec<_> =
        infos.as_map().expect("by node").iter().filter_map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&&*mocks.announced(5)), "{names:?}");
}

#[tokio::test]
async fn a_lost_connection_is_replaced_on_demand() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(1, 0);
    for _ in 0..5 {
        cluster.command(["GET", &key]).await.expect("connected again");
        mocks.disconnect(1).await;
    }
}

#[tokio::test]
async fn one_seed_that_answers_is_enough() {
    let mocks = mocks().await;
    mocks.kill(1).await;
    mocks.fail_over(4);
    let cluster = client_of(&mocks, &unhurried()).await;
    assert!(cluster.cluster().expect("a cluster").status().is_complete);
    cluster.command(["SET", &mocks.key_of(0, 0), "x"]).await.expect("set");
}

#[tokio::test]
async fn seeds_that_are_of_no_use_say_why() {
    let none: [&str; 0] = [];
    let error = Client::connect(none).await.expect_err("no seeds");
    assert!(matches!(error, Error::Endpoint(EndpointError::NoSeeds)), "{error:?}");

    let any = "127.0.0.1:0".parse().expect("an address");
    let single = Server::builder(Mock::new()).rdma(DeviceKind::Emulated, any, &TransportConfig::default());
    let single = single.start().await.expect("a free port");
    let url = single.urls().next().expect("as built").to_string();
    let error = Client::connect([url.as_str()]).await.expect_err("a single server");
    assert!(matches!(error, Error::Cluster(ClusterError::NotACluster { .. })), "{error:?}");

    let other = url.replace("emulated", "valkey");
    let error = Client::connect([url, other]).await.expect_err("two schemes");
    assert!(matches!(error, Error::Endpoint(EndpointError::MixedSeeds { .. })), "{error:?}");

    let dead = ["emulated://127.0.0.1:1?timeout=200ms", "emulated://127.0.0.1:2?timeout=200ms"];
    let error = Client::connect(dead).await.expect_err("dead seeds");
    assert!(matches!(error, Error::Cluster(ClusterError::Unreachable { tried: 2, .. })), "{error:?}");
}

#[tokio::test]
async fn garbage_instead_of_a_map_is_an_error_and_never_replaces_a_map() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &watchful()).await;
    let garbage = Reply::Array(vec![Reply::Array(vec![Reply::Integer(0), Reply::Integer(99_999)])]);
    for node in 0..mocks.len() {
        mocks.answer(node, "cluster|slots", Some(garbage.clone()));
    }
    let error = Client::connect(mocks.urls()).await.expect_err("garbage");
    assert!(matches!(error, Error::Cluster(ClusterError::BadMap { .. })), "{error:?}");
    // A client that has a map goes on, led by MOVED alone.
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.move_slots(slot..=slot, 1);
    cluster.command(["SET", &key, "x"]).await.expect("followed");
    cluster.command(["GET", &mocks.key_of(2, 0)]).await.expect("as before");
}

/// A node that was reset, or has not met the others, knows no slots.
#[tokio::test]
async fn a_map_without_slots_counts_only_if_nothing_better_is_known() {
    let mocks = mocks().await;
    let forget = |nodes: std::ops::Range<usize>| {
        for node in nodes {
            mocks.answer(node, "cluster|slots", Some(Reply::Array(vec![])));
        }
    };
    // Those that are asked first.
    forget(0..3);
    let config = watchful().refresh_interval(Duration::from_millis(20));
    let cluster = client_of(&mocks, &config).await;
    assert!(cluster.cluster().expect("a cluster").status().is_complete);
    forget(3..6);
    let before = cluster.cluster().expect("a cluster").status().counters.refreshes;
    while cluster.cluster().expect("a cluster").status().counters.refreshes < before + 3 {
        tokio::task::yield_now().await;
    }
    assert!(cluster.cluster().expect("a cluster").status().is_complete);
    cluster.command(["GET", &mocks.key_of(0, 0)]).await.expect("its node is known");
    // All nodes of a new cluster are like that.
    let cluster = client_of(&mocks, &watchful()).await;
    assert!(!cluster.cluster().expect("a cluster").status().is_complete);
}

#[tokio::test]
async fn a_slot_without_a_node_is_an_error_within_the_limit() {
    let mocks = mocks().await;
    let slot = MockCluster::slot("lonely");
    mocks.unassign(slot..=slot);
    let hurried = watchful().command_timeout(Duration::from_millis(300));
    let cluster = client_of(&mocks, &hurried).await;
    assert!(!cluster.cluster().expect("a cluster").status().is_complete);
    let error = cluster.command(Command::from_args(["GET", "lonely"])).await.expect_err("no node");
    assert!(matches!(error, Error::Cluster(ClusterError::Uncovered { .. })), "{error:?}");
}

/// Slots are given to no node yet.
#[tokio::test]
async fn commands_without_keys_name_what_a_new_cluster_lacks() {
    let mocks = mocks().await;
    mocks.unassign(0..=16_383);
    let hurried = watchful().command_timeout(Duration::from_millis(300));
    let cluster = client_of(&mocks, &hurried).await;
    for name in ["TIME", "DBSIZE"] {
        let error = cluster.command([name]).await.expect_err("no primary");
        assert!(matches!(error, Error::Cluster(ClusterError::Uncovered { slot: None })), "{error:?}");
    }
}

/// The time limit of the command is shorter than that of an outage.
#[tokio::test]
async fn the_reason_is_told_though_the_time_is_up() {
    let mocks = mocks().await;
    let node = watchful().command_timeout(Duration::from_secs(1));
    let cluster = client_of(&mocks, &node).await;
    mocks.kill(0).await;
    let key = mocks.key_of(0, 0);
    // The first meets the lost connection, the second none.
    cluster.command(["INCR", &key]).await.expect_err("no node");
    let error = cluster.command(["INCR", &key]).await.expect_err("no node");
    assert!(matches!(error, Error::Connect(_)), "{error:?}");
}

/// A node that was reached shows that the network is back, or the machines are.
#[tokio::test]
async fn nodes_that_were_lost_together_come_back_together() {
    let mocks = mocks().await;
    let never = Duration::from_secs(1_000_000);
    let node = watchful().reconnect(Backoff::default().first(never).max(never));
    let cluster = client_of(&mocks, &node).await;
    for node in 0..3 {
        cluster.command(["SET", &mocks.key_of(node, 0), "x"]).await.expect("set");
    }
    // They have lived for so long that the first attempt does not wait.
    advance(Duration::from_secs(1), 3).await;
    mocks.kill(0).await;
    mocks.kill(1).await;
    let waits: Vec<_> = (0..2)
        .map(|node| {
            let (cluster, key) = (cluster.clone(), mocks.key_of(node, 0));
            tokio::spawn(async move { cluster.command(["GET", &key]).await })
        })
        .collect();
    let failed = || {
        cluster
            .cluster()
            .expect("a cluster")
            .status()
            .nodes
            .iter()
            .filter(|node| node.error.is_some())
            .count()
    };
    while failed() < 2 {
        tokio::task::yield_now().await;
    }
    for node in 0..2 {
        mocks.restart(node).await.expect("its ports are free");
    }
    mocks.disconnect(2).await;
    cluster.command(["GET", &mocks.key_of(2, 0)]).await.expect("connected again");
    for waiting in waits {
        waiting.await.expect("no panic").expect("the node is back");
    }
}

#[tokio::test]
async fn a_first_node_that_does_not_answer_is_told_of_as_a_single_server_is() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    for scheme in ["emulated", "valkey"] {
        let url = |cluster: &str| format!("{scheme}{cluster}://{address}?timeout=300ms");
        let single = Client::connect(url("")).await.expect_err("the port is silent");
        let cluster = Client::connect(url("+cluster")).await.expect_err("the port is silent");
        assert!(matches!(cluster, Error::Connect(_)), "{cluster:?}");
        assert_eq!(cluster.to_string(), single.to_string());
    }
}
