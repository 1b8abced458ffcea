//! Large values and blocking commands, on dedicated connections.

use valkey_rdma_client::{ClusterError, Command, Error};
use valkey_rdma_mock::MockCluster;

use crate::target::{client_of, mocks, target};

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
async fn a_large_value_follows_its_slot() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &Default::default()).await;
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
