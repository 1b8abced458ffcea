//! Slots that move, and nodes that are not ready.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use valkey_rdma_client::cluster::Route;
use valkey_rdma_client::{Client, ClusterError, Command, Config, Error, Fate};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{PATIENCE, advance, client_of, mocks, unhurried};

/// Commands wait this long for the cluster. Only that ends them: a time limit of their own could end one whose request is
/// on its way, with another error.
fn patient(limit: Duration) -> Config {
    Config::default().command_timeout(None).offline_timeout(limit)
}

async fn count(cluster: &Client, key: &str) -> Result<i64, Error> {
    cluster.query(["INCR", key]).await
}

#[tokio::test]
async fn a_moved_slot_is_followed_and_remembered() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 1);
    let slot = MockCluster::slot(&key);
    mocks.move_slots(slot..=slot, 1);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 2);
    assert_eq!(cluster.cluster().expect("a cluster").status().counters.moved, 1);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 3);
    assert_eq!(cluster.cluster().expect("a cluster").status().counters.moved, 1, "the new owner is known");
}

#[tokio::test]
async fn keys_on_the_move_are_asked_for_at_their_new_node() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 1);
    let slot = MockCluster::slot(&key);
    mocks.begin_migration(slot..=slot, 2);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 2, "still there");
    assert_eq!(mocks.move_keys(slot, 10), 1);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 3, "behind ASKING");
    assert_eq!(
        (
            cluster.cluster().expect("a cluster").status().counters.ask,
            cluster.cluster().expect("a cluster").status().counters.moved
        ),
        (1, 0)
    );
    mocks.finish_migration(slot..=slot);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 4);
}

#[tokio::test]
async fn a_blocking_command_follows_its_key_on_the_move() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.begin_migration(slot..=slot, 1);
    cluster.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let job: Option<(String, String)> = cluster.blocking_query(["BLPOP", &key, "1"]).await.expect("popped");
    assert_eq!(job, Some((key, "job".to_owned())));
}

#[tokio::test]
async fn a_blocking_command_that_waited_long_still_follows_its_slot() {
    let mocks = mocks().await;
    let limit = Duration::from_secs(10);
    // Only node 0 is connected.
    let seed = format!("{}?timeout={}s", mocks.url(0), PATIENCE.as_secs());
    let cluster = Client::connect_with([seed], &patient(limit)).await.expect("connected");
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.answer_keyed_next(0, [Reply::error("TRYAGAIN later")]);
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.blocking_query::<Option<(String, String)>>(["BLPOP", &key, "0"]).await }
    });
    while mocks.calls(0, "blpop") < 2 {
        tokio::task::yield_now().await;
    }
    // It blocks for longer than commands wait for the cluster.
    advance(limit + Duration::from_secs(1), 1).await;
    mocks.move_slots(slot..=slot, 1);
    let other = client_of(&mocks, &unhurried()).await;
    other.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let job = waits.await.expect("no panic").expect("popped on the new node");
    assert_eq!(job, Some((key, "job".to_owned())));
}

#[tokio::test]
async fn the_time_limit_of_a_blocking_command_is_that_of_all_its_tries() {
    let mocks = mocks().await;
    let limit = Duration::from_secs(100);
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    let began = Instant::now();
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.blocking_command(Command::from_args(["BLPOP", &key, "0"]).timeout(limit)).await }
    });
    while mocks.calls(0, "blpop") < 1 {
        tokio::task::yield_now().await;
    }
    advance(limit - Duration::from_secs(1), 1).await;
    mocks.move_slots(slot..=slot, 1);
    while mocks.calls(1, "blpop") < 1 && !waits.is_finished() {
        tokio::task::yield_now().await;
    }
    advance(Duration::from_secs(1), 1).await;
    let error = waits.await.expect("no panic").expect_err("nothing was pushed");
    assert!(matches!(&error, Error::TimedOut(late) if late.limit() == limit), "{error:?}");
    assert!(began.elapsed() < 2 * limit - Duration::from_secs(1), "the second try had the whole limit");
}

/// What it waited for before is over once it runs, also if its node was connected to only then.
#[tokio::test]
async fn a_blocking_command_that_ran_long_waits_for_the_cluster_as_long_as_others() {
    let mocks = mocks().await;
    let limit = Duration::from_secs(10);
    // Only node 0 is connected.
    let seed = format!("{}?timeout={}s", mocks.url(0), PATIENCE.as_secs());
    let cluster = Client::connect_with([seed], &patient(limit)).await.expect("connected");
    let key = mocks.key_of(1, 0);
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.blocking_query::<Option<(String, String)>>(["BLPOP", &key, "0"]).await }
    });
    while mocks.calls(1, "blpop") < 1 {
        tokio::task::yield_now().await;
    }
    advance(limit + Duration::from_secs(1), 1).await;
    mocks.set_down(true);
    while cluster.cluster().expect("a cluster").status().counters.not_ready == 0 {
        tokio::task::yield_now().await;
    }
    mocks.set_down(false);
    let other = client_of(&mocks, &unhurried()).await;
    other.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let job = waits.await.expect("no panic").expect("popped once the cluster is up");
    assert_eq!(job, Some((key, "job".to_owned())));
}

/// Its first try waits for the node to be connected to, and the others do not.
#[tokio::test]
async fn a_pipeline_waits_for_a_cluster_that_is_down_no_longer_than_other_commands() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &patient(Duration::from_secs(1))).await;
    let key = mocks.key_of(0, 0);
    mocks.kill(0).await;
    let pipeline = cluster.pipeline().command(["GET", &key]).send();
    let pipeline = tokio::spawn(timeout(PATIENCE, pipeline));
    mocks.set_down(true);
    mocks.restart(0).await.expect("its port is free");
    let replies = pipeline.await.expect("no panic").expect("an end").expect("sent");
    assert!(replies[0].is_err(), "{replies:?}");
}

#[tokio::test]
async fn watching_a_key_on_the_move_waits_until_its_slot_has_arrived() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.begin_migration(slot..=slot, 1);
    let waits = tokio::spawn({
        let (cluster, key) = (cluster.clone(), key.clone());
        async move { cluster.watch([&key]).await }
    });
    while cluster.cluster().expect("a cluster").status().counters.try_again == 0 && !waits.is_finished() {
        tokio::task::yield_now().await;
    }
    mocks.finish_migration(slot..=slot);
    let watch = waits.await.expect("no panic").expect("watched");
    watch.transaction().command(["SET", &key, "x"]).execute().await.expect("executed on the new node");
}

#[tokio::test]
async fn a_pipeline_follows_its_slots() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let keys: Vec<_> = (0..3).flat_map(|node| (0..5).map(move |number| (node, number))).collect();
    let keys: Vec<_> = keys.into_iter().map(|(node, number)| mocks.key_of(node, number)).collect();
    // The client knows no connection yet, then has an old map.
    for round in 1..=2 {
        let mut pipeline = cluster.pipeline();
        for key in &keys {
            pipeline.push(Command::from_args(["INCR", key]));
        }
        for reply in pipeline.send().await.expect("sent") {
            assert_eq!(reply.expect("counted").as_int(), Some(round));
        }
        let slots: Vec<_> = (0..5).map(|number| MockCluster::slot(mocks.key_of(0, number))).collect();
        for slot in slots {
            mocks.move_slots(slot..=slot, 1);
        }
    }
}

#[tokio::test]
async fn a_transaction_follows_its_slot_and_runs_once() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.move_slots(slot..=slot, 1);
    let results = cluster.transaction().command(["INCR", &key]).command(["INCR", &key]).execute().await;
    let results = results.expect("executed");
    assert_eq!(results.last().cloned().expect("two").expect("counted").as_int(), Some(2));
}

#[tokio::test]
async fn nodes_that_send_a_command_back_and_forth_end_in_an_error() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let node = Config::default().command_timeout(Duration::from_secs(2)).offline_timeout(None);
    let hurried = client_of(&mocks, &node.max_redirects(1000)).await;
    // On a busy machine, connecting alone can take longer than that.
    for node in [0, 1] {
        while hurried.command(["GET", &mocks.key_of(node, 0)]).await.is_err() {}
    }
    mocks.move_all_to(0, Some(1));
    mocks.move_all_to(1, Some(0));
    let key = mocks.key_of(0, 0);
    let error = cluster.command(["INCR", &key]).await.expect_err("endless");
    assert!(matches!(error, Error::Cluster(ClusterError::Redirected { count: 16, .. })), "{error:?}");
    assert_eq!(error.fate(), Fate::NotSent);
    // Other shards do not notice.
    let other = mocks.key_of(2, 0);
    assert_eq!(count(&cluster, &other).await.expect("counted"), 1);

    // Nor does a time limit hide what was wrong.
    let error = hurried.command(["INCR", &key]).await.expect_err("endless");
    assert!(matches!(error, Error::Cluster(ClusterError::Redirected { .. })), "{error:?}");
}

/// A primary that becomes a replica answers so. Nothing was taken from the list.
#[tokio::test]
async fn a_blocking_command_goes_on_at_the_new_primary() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["RPUSH", &key, "job"]).await.expect("pushed");
    let unblocked =
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)";
    mocks.answer_keyed_next(0, [Reply::error(unblocked)]);
    let job: (String, String) = cluster.blocking_query(["BLPOP", &key, "0"]).await.expect("popped");
    assert_eq!(job, (key, "job".to_owned()));
}

#[tokio::test]
async fn a_slot_that_does_not_exist_is_refused_at_once() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let error = cluster
        .cluster()
        .expect("a cluster")
        .command_on(Route::Slot(16_384), Command::new("PING"))
        .await
        .expect_err("no slot");
    assert!(matches!(error, Error::Cluster(ClusterError::Uncovered { slot: Some(16_384) })), "{error:?}");
}

/// A module's command, for example, whose keys no server describes.
#[tokio::test]
async fn a_redirected_command_without_known_keys_goes_to_the_named_node() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    for node in [0, 2] {
        let moved =
            Reply::error(format!("MOVED {} {}", MockCluster::slot(mocks.key_of(1, 0)), mocks.announced(1)));
        mocks.answer(node, "time", Some(moved));
    }
    for time in 1..=30 {
        cluster.command(["TIME"]).await.expect("answered by node 1");
        assert_eq!(mocks.calls(1, "time"), time);
    }
    assert!(cluster.cluster().expect("a cluster").status().counters.moved <= 30, "followed at once");
}

#[tokio::test]
async fn conditions_that_pass_are_waited_out() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    for text in ["TRYAGAIN later", "LOADING wait", "CLUSTERDOWN wait", "READONLY wait"] {
        mocks.answer_keyed_next(0, [Reply::error(text)]);
        cluster.command(["INCR", &key]).await.expect(text);
    }
    assert_eq!(count(&cluster, &key).await.expect("counted"), 5, "each ran once");
}

/// The cluster has lost the address of the node with the slot, or a node sends the command back to itself.
#[tokio::test]
async fn a_redirection_that_leads_nowhere_is_waited_out_and_ends_in_a_slot_without_a_node() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let hurried = client_of(&mocks, &patient(Duration::from_millis(300))).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    // On a busy machine, connecting alone can take longer than that.
    while hurried.command(["GET", &key]).await.is_err() {}
    for address in [":0".to_owned(), mocks.announced(0)] {
        let moved = Reply::error(format!("MOVED {slot} {address}"));
        mocks.answer_keyed_next(0, [moved.clone()]);
        cluster.command(["INCR", &key]).await.expect("it passes");
        mocks.answer_keyed(0, Some(moved));
        // One of them may have to wait for the connection that is renewed.
        let ends = async {
            loop {
                let error = hurried.command(["INCR", &key]).await.expect_err("no node");
                assert_eq!(error.fate(), Fate::NotSent, "{error:?}");
                if let Error::Cluster(ClusterError::Uncovered { slot: Some(lost) }) = error {
                    break lost;
                }
            }
        };
        assert_eq!(timeout(PATIENCE, ends).await.expect("it says which slot"), slot);
    }
    mocks.answer_keyed(0, None);
    assert_eq!(count(&cluster, &key).await.expect("counted"), 3);
}

/// Another one may have its address. Servers that share one say so for ever.
#[tokio::test]
async fn a_node_that_redirects_to_its_own_address_is_connected_to_anew_once() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    count(&cluster, &key).await.expect("counted");
    let (logins, own) = (mocks.calls(0, "hello"), mocks.announced(0));
    for (address, renewed) in [(":0", 0), (&*own, 1), (&*own, 1)] {
        let moved = format!("MOVED {} {address}", MockCluster::slot(&key));
        mocks.answer_keyed_next(0, [Reply::error(moved)]);
        count(&cluster, &key).await.expect("it passes");
        assert_eq!(mocks.calls(0, "hello") - logins, renewed, "{address}");
    }
}

#[tokio::test]
async fn a_cluster_that_stays_down_is_an_error_within_the_limit() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &patient(Duration::from_millis(300))).await;
    mocks.set_down(true);
    let error = cluster.command(["INCR", &mocks.key_of(0, 0)]).await.expect_err("down");
    assert!(error.server().is_some_and(|error| error.code == "CLUSTERDOWN"), "{error}");
    mocks.set_down(false);
    count(&cluster, &mocks.key_of(0, 0)).await.expect("counted");
}
