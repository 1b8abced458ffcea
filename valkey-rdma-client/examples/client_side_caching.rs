//! Values are kept here until the server reports that they changed.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Cache, Client, Config};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let writer = Client::connect(&url).await?;
    writer.command(["SET", "price", "10"]).await?;

    let cache = Cache::connect(&url, &Config::default(), 1000).await?;
    let mut changes = cache.invalidations();
    for _ in 0..3 {
        println!("price: {:?}", cache.get("price").await?);
    }
    let stats = cache.stats();
    println!("asked the server {} times, answered here {} times", stats.misses, stats.hits);

    writer.command(["SET", "price", "12"]).await?;
    println!("{:?}", changes.next().await);
    println!("price: {:?}", cache.get("price").await?);
    Ok(())
}
