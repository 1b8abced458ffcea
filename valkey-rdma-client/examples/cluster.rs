//! A cluster: commands find their node, and follow slots that move. With URLs as arguments on that cluster, else on a mock.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, cmd};
use valkey_rdma_mock::MockCluster;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockCluster::builder(3).start().await?;
    let given: Vec<String> = std::env::args().skip(1).collect();
    let seeds = if given.is_empty() { mock.urls() } else { given };
    let cluster = Client::connect(seeds).await?;

    let mut pipeline = cluster.pipeline();
    for number in 0..100 {
        pipeline.push(cmd!["SET", format!("key:{number}"), number]);
    }
    let () = pipeline.query().await?;
    let values: Vec<i64> = cluster.query(["MGET", "key:1", "key:2", "key:3"]).await?; // from several nodes
    println!("values: {values:?}");
    println!("keys on all nodes: {}", cluster.query::<usize>(["DBSIZE"]).await?);

    mock.begin_migration(0..=5000, 1);
    mock.finish_migration(0..=5000);
    let (one, two): (i64, i64) =
        cluster.pipeline().command(["INCR", "key:1"]).command(["INCR", "key:2"]).query().await?;
    println!("after slots have moved: {one}, {two}");
    let nodes = cluster.cluster().map_or(1, |cluster| cluster.status().nodes.len());
    println!("nodes: {nodes}");
    Ok(())
}
