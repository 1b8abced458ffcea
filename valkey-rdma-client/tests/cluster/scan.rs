//! SCAN over all nodes.

use std::collections::BTreeSet;

use futures_util::TryStreamExt;

use crate::target::target;

#[tokio::test]
async fn a_scan_returns_every_key_of_every_node() {
    let target = target().await;
    let cluster = target.client().await;
    let keys: BTreeSet<_> = (0..500).map(|number| target.key(&number.to_string())).collect();
    let mut pipeline = cluster.pipeline();
    for key in &keys {
        pipeline.push(valkey_rdma_client::Command::from_args(["SET", key, "x"]));
    }
    assert!(pipeline.send().await.expect("sent").iter().all(Result::is_ok));
    let streamed: Vec<_> =
        cluster.scan().matching(target.key("*")).keys().try_collect().await.expect("all keys");
    let streamed: BTreeSet<_> =
        streamed.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    assert_eq!(streamed, keys);
    let mut scan = cluster.scan().matching(target.key("*")).count(50);
    let mut found = BTreeSet::new();
    while let Some(batch) = scan.next_batch().await.expect("a batch") {
        found.extend(batch.iter().map(|key| String::from_utf8_lossy(key).into_owned()));
    }
    assert_eq!(found, keys);
}
