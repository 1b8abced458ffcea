//! redis-rs's typed commands and pipelines on this client (cargo feature `redis`).

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use redis::AsyncCommands;
use valkey_rdma_client::Client;
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let mut client = Client::connect(url).await?;

    let () = client.hset("user:1", "name", "Ada").await?;
    let name: String = client.hget("user:1", "name").await?;
    println!("name: {name}");
    let (visits, fields): (i64, usize) =
        redis::pipe().atomic().incr("visits", 2).hlen("user:1").query_async(&mut client).await?;
    println!("visits: {visits}, fields: {fields}");
    Ok(())
}
