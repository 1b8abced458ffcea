//! A value is set and read. With a URL as argument on that server, else on a mock: `cargo run --example get_set -- rdma://10.0.0.7`.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, cmd};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());

    let client = Client::connect(url).await?;
    println!("connected over {}", client.info().transport);

    client.command(cmd!["SET", "greeting", "hello", "EX", 60]).await?;
    let greeting: String = client.query(["GET", "greeting"]).await?;
    println!("greeting: {greeting}");

    let none: Option<String> = client.query(["GET", "no such key"]).await?;
    println!("no such key: {none:?}");
    client.close().await;
    Ok(())
}
