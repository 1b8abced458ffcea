//! Nodes that are connected and leave commands unanswered.

use std::time::Duration;

use valkey_rdma_client::cluster::{ReadFrom, Route};
use valkey_rdma_client::{Command, Config, ConnectionEvent, Error, Fate, LostCause};
use valkey_rdma_mock::MockCluster;

use crate::target::{advance, client_of, in_flight, mocks, read_again, unhurried, watchful};

/// No time limit ends these commands: only the new map does, which no command reports.
#[tokio::test]
async fn commands_leave_a_frozen_node_when_a_replica_has_taken_over() {
    for failed in [false, true] {
        leave_a_frozen_node(failed).await;
    }
}

/// `failed`: the map leaves the node out, as real ones do soon.
async fn leave_a_frozen_node(failed: bool) {
    let mocks = mocks().await;
    let node = unhurried().keepalive_timeout(None);
    let config = node.refresh_interval(None).silence_limit(Duration::from_millis(50));
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    mocks.freeze(0);
    let both = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { tokio::join!(cluster.command(["INCR", &key]), cluster.command(["GET", &key])) }
    });
    in_flight(&cluster, 2).await;
    mocks.mark_failed(0, failed);
    mocks.fail_over(3);
    let (incr, get) = both.await.expect("no panic");
    assert_eq!(incr.expect_err("not answered").fate(), Fate::MayHaveRun);
    get.expect("read from the new primary");
    // Readings of the map may have met it too.
    assert!(cluster.cluster().expect("a cluster").status().counters.given_up >= 1);
}

/// The map leaves the node out before the watch looks again.
#[tokio::test]
async fn commands_leave_a_frozen_node_that_a_map_leaves_out_at_once() {
    let mocks = mocks().await;
    let limit = Duration::from_secs(600);
    let node = Config::default().command_timeout(None).keepalive_timeout(None).offline_timeout(None);
    let config = node.refresh_interval(None).silence_limit(limit);
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    let get = || {
        let (cluster, key) = (cluster.clone(), key.clone());
        tokio::spawn(async move { cluster.command(["GET", &key]).await })
    };
    cluster.command(["SET", &key, "1"]).await.expect("set");
    // The watch sees a command in flight, whose answer comes before the node loses its slots.
    mocks.freeze(0);
    let first = get();
    in_flight(&cluster, 1).await;
    advance(limit / 2, 1).await;
    mocks.thaw(0);
    first.await.expect("no panic").expect("read");
    mocks.freeze(0);
    let waits = get();
    in_flight(&cluster, 1).await;
    mocks.mark_failed(0, true);
    mocks.fail_over(3);
    // Another slot moves, so that a command makes the client read the map.
    let other = mocks.key_of(1, 0);
    let slot = MockCluster::slot(&other);
    mocks.move_slots(slot..=slot, 2);
    cluster.command(["SET", &other, "x"]).await.expect("followed");
    while cluster
        .cluster()
        .expect("a cluster")
        .status()
        .nodes
        .iter()
        .any(|node| node.address.to_string() == mocks.announced(0))
    {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The watch meets the node at one look and gives it up at a later one.
    advance(limit, 10).await;
    waits.await.expect("no panic").expect("read from the new primary");
    assert_eq!(cluster.cluster().expect("a cluster").status().counters.given_up, 1);
}

/// A primary that answers late is not given up.
#[tokio::test]
async fn a_slow_node_keeps_its_commands() {
    let mocks = mocks().await;
    let config =
        unhurried().min_refresh_interval(Duration::from_millis(1)).silence_limit(Duration::from_millis(1));
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    mocks.freeze(0);
    let before = cluster.cluster().expect("a cluster").status().counters.refreshes;
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["INCR", &key]).await }
    });
    while cluster.cluster().expect("a cluster").status().counters.refreshes < before + 3 {
        tokio::task::yield_now().await;
    }
    mocks.thaw(0);
    let reply = waits.await.expect("no panic").expect("answered");
    assert_eq!(
        (reply.as_int(), cluster.cluster().expect("a cluster").status().counters.given_up),
        (Some(2), 0)
    );
}

/// The questions of a reading of the map have no shorter limit than a new connection has.
#[tokio::test]
async fn a_slow_node_keeps_its_connection_while_the_map_is_read() {
    let mocks = MockCluster::start(2).await.expect("free ports");
    let interval = Duration::from_millis(1);
    let config = unhurried().refresh_interval(interval).min_refresh_interval(interval);
    let cluster = client_of(&mocks, &config.command_timeout(Duration::from_millis(20))).await;
    let key = mocks.key_of(0, 0);
    let answers = async || while cluster.command(["GET", &key]).await.is_err() {};
    answers().await;
    let connects = mocks.calls(0, "hello");
    mocks.freeze(0);
    let refreshes = || cluster.cluster().expect("a cluster").status().counters.refreshes;
    let enough = refreshes() + 4;
    while refreshes() < enough {
        tokio::task::yield_now().await;
    }
    mocks.thaw(0);
    answers().await;
    assert_eq!(mocks.calls(0, "hello"), connects);
}

/// A replica that answers late is not given up: it has no slots that it could lose.
#[tokio::test]
async fn a_slow_replica_keeps_its_reads() {
    let mocks = mocks().await;
    let config = unhurried()
        .read_from(ReadFrom::PreferReplica)
        .refresh_interval(Some(Duration::from_millis(1)))
        .min_refresh_interval(Duration::from_millis(1))
        .silence_limit(Duration::from_millis(1));
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    cluster.command(["GET", &key]).await.expect("the replica is connected");
    mocks.freeze(3);
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["GET", &key]).await }
    });
    let is_in_flight = || {
        let nodes = cluster.cluster().expect("a cluster").status().nodes;
        nodes.iter().flat_map(|node| &node.connections).any(|connection| connection.counters.in_flight > 0)
    };
    // Refreshes may meet the frozen node too, and wait for it.
    let mut seen = 0;
    let mut last = cluster.cluster().expect("a cluster").status().counters.refreshes;
    while seen < 20 {
        tokio::task::yield_now().await;
        let refreshes = cluster.cluster().expect("a cluster").status().counters.refreshes;
        seen += u32::from(refreshes != last && is_in_flight());
        last = refreshes;
    }
    mocks.thaw(3);
    let reply = waits.await.expect("no panic").expect("answered");
    assert_eq!(
        (reply.as_str(), cluster.cluster().expect("a cluster").status().counters.given_up),
        (Some("1"), 0)
    );
}

/// Its connection stays, and so do the commands that wait for it. The others go elsewhere, and people see which node it is.
#[tokio::test]
async fn a_silent_replica_is_named_and_passed_over_and_left_when_the_map_leaves_it_out() {
    let mocks = mocks().await;
    let node = unhurried().keepalive_timeout(None);
    let limit = Duration::from_millis(50);
    let config = node.read_from(ReadFrom::PreferReplica).silence_limit(limit);
    let cluster = client_of(&mocks, &config.min_refresh_interval(limit)).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    cluster.command(["GET", &key]).await.expect("the replica is connected");
    let mut events = cluster.events();
    mocks.freeze(3);
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.command(["GET", &key]).await }
    });
    let silent = loop {
        if let ConnectionEvent::Silent { node, silent_for } = events.next().await.expect("not closed") {
            assert!(silent_for >= limit);
            break node.to_string();
        }
    };
    assert_eq!(silent, mocks.announced(3));
    let status = cluster.cluster().expect("a cluster").status();
    let line = status.nodes.iter().find(|node| node.silent_for.is_some()).expect("it is silent").to_string();
    assert!(
        line.starts_with(&silent) && line.contains(", no reply for ") && line.contains(" in flight"),
        "{line}"
    );
    for _ in 0..10 {
        cluster.command(["GET", &key]).await.expect("the primary answers");
    }
    assert!(!waits.is_finished());
    mocks.mark_failed(3, true);
    waits.await.expect("no panic").expect("read from the primary");
    assert_eq!(cluster.cluster().expect("a cluster").status().counters.given_up, 1);
}

#[tokio::test]
async fn commands_that_any_primary_may_run_leave_out_a_silent_one() {
    let mocks = mocks().await;
    let node = unhurried().keepalive_timeout(None);
    let client = client_of(&mocks, &node.silence_limit(Duration::from_millis(500))).await;
    client.command(["DBSIZE"]).await.expect("all primaries are connected");
    let mut events = client.events();
    let key = mocks.key_of(0, 0);
    mocks.freeze(0);
    let waits = tokio::spawn({
        let (client, key) = (client.clone(), key.clone());
        async move { client.command(["GET", &key]).await }
    });
    let is_silent = |event: ConnectionEvent| match event {
        ConnectionEvent::Silent { node, .. } => node.to_string() == mocks.announced(0),
        _ => false,
    };
    while !is_silent(events.next().await.expect("not closed")) {}
    let cluster = client.cluster().expect("a cluster");
    for _ in 0..20 {
        client.command(["TIME"]).await.expect("another answers");
        cluster.command_on(cluster.route_beside(&key), ["TIME"]).await.expect("another answers");
        let pipeline = client.pipeline().keyless_beside(&key).command(["TIME"]).command(["ECHO", "x"]);
        pipeline.query::<()>().await.expect("another answers");
    }
    assert!(!waits.is_finished() && mocks.calls(0, "time") == 0);
    mocks.thaw(0);
    waits.await.expect("no panic").expect("read");
}

/// Nothing else is in flight, and no time limit ends these calls.
#[tokio::test]
async fn calls_on_a_dedicated_connection_leave_a_frozen_node_when_a_replica_has_taken_over() {
    for failed in [false, true] {
        let mocks = mocks().await;
        let node = unhurried().keepalive_timeout(None);
        let limit = Duration::from_millis(50);
        let config = node.refresh_interval(None).silence_limit(limit);
        let cluster = client_of(&mocks, &config).await;
        let key = mocks.key_of(0, 0);
        let dedicated = async || {
            let nodes = cluster.cluster().expect("a cluster");
            nodes.dedicated(Route::Key(key.clone().into())).await.expect("connected")
        };
        let (mut writes, mut reads) = (dedicated().await, dedicated().await);
        writes.command(["SET", &key, "1"]).await.expect("set");
        mocks.freeze(0);
        mocks.mark_failed(0, failed);
        mocks.fail_over(3);
        let keys = [&key];
        let (write, read) =
            tokio::join!(writes.command(["INCR", &key]), reads.get_each(&keys, None, |_, _| None));
        for error in [write.expect_err("not answered"), read.expect_err("not answered")] {
            assert_eq!(error.fate(), Fate::MayHaveRun);
            assert!(
                matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Silent { .. })),
                "{error}"
            );
        }
        // Of the new primary.
        dedicated().await.command(["GET", &key]).await.expect("it answers");
    }
}

/// As above, for the calls that take a connection of their own from the client.
#[tokio::test]
async fn calls_beside_the_shared_connection_leave_a_frozen_node_when_a_replica_has_taken_over() {
    let mocks = mocks().await;
    let node = unhurried().keepalive_timeout(None);
    let limit = Duration::from_millis(50);
    let config = node.refresh_interval(None).silence_limit(limit);
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "1"]).await.expect("set");
    let set = || Command::new("SET").arg(&key);
    let writer = cluster.stream_argument(set(), 0).await.expect("begun");
    let watch = cluster.watch([&key]).await.expect("watched");
    mocks.freeze(0);
    mocks.fail_over(3);
    let mut buffer = [0];
    let transaction = watch.transaction().command(["INCR", &key]);
    let list = format!("{{{key}}}:list");
    let pops = tokio::spawn({
        let (cluster, list) = (cluster.clone(), list.clone());
        async move { cluster.blocking_query::<(String, String)>(["BLPOP", &list, "0"]).await }
    });
    let (got, read, watched, ran, written) = tokio::join!(
        cluster.get_into(&key, &mut buffer),
        cluster.stream_reply(Command::new("GET").arg(&key)),
        cluster.watch([&key]),
        transaction.execute(),
        writer.finish(),
    );
    assert_eq!((got.expect("of the new primary"), buffer), (Some(1), *b"1"));
    assert_eq!(read.expect("of the new primary").expect("it exists").len(), 1);
    watched.expect("by the new primary");
    // Its connection was not made yet.
    cluster.command(["RPUSH", &list, "job"]).await.expect("pushed");
    assert_eq!(pops.await.expect("no panic").expect("popped").1, "job");
    let lost = [ran.map(drop), written.map(drop)];
    for error in lost.map(|ended| ended.expect_err("not answered")) {
        assert_eq!(error.fate(), Fate::MayHaveRun, "{error}");
        assert!(
            matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Silent { .. })),
            "{error}"
        );
    }
}

/// It gets its first slot, and the map does not have it yet.
#[tokio::test]
async fn a_blocking_command_stays_with_a_slow_node_that_ask_has_named() {
    let mocks = mocks().await;
    let limit = Duration::from_millis(20);
    let node = watchful().keepalive_timeout(None).refresh_interval(limit);
    let config = node.silence_limit(limit);
    mocks.move_slots(0..=16383, 0);
    let cluster = client_of(&mocks, &config).await;
    // A node of the map has said its id: connections are checked from then on.
    read_again(&cluster, 2).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.begin_migration(slot..=slot, 1);
    let pops = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.blocking_query::<(String, String)>(["BLPOP", &key, "0"]).await }
    });
    while mocks.calls(1, "blpop") == 0 {
        tokio::task::yield_now().await;
    }
    mocks.freeze(1);
    advance(limit, 100).await;
    assert!(!pops.is_finished());
    mocks.thaw(1);
    mocks.finish_migration(slot..=slot);
    cluster.command(["RPUSH", &key, "job"]).await.expect("pushed");
    assert_eq!(pops.await.expect("no panic").expect("popped").1, "job");
}
