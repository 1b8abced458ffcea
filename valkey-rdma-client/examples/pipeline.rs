//! Commands sent together: one write, one wait.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, cmd};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    let pipeline = client
        .pipeline()
        .command(["SET", "name", "Ada"])
        .command(["STRLEN", "name"])
        .command(["GET", "name"]);
    let (ok, length, name): (String, usize, String) = pipeline.query().await?;
    println!("{ok}, {length} bytes, {name}");

    // In a loop, and with one reply at a time: an error says nothing about the other commands.
    let mut pipeline = client.pipeline();
    for number in 1..=3 {
        pipeline.push(cmd!["INCRBY", "sum", number]);
    }
    pipeline.push(["INCR", "name"]);
    for reply in pipeline.send().await? {
        match reply {
            Ok(value) => println!("sum: {:?}", value.as_int()),
            Err(error) => println!("refused: {error}"),
        }
    }
    Ok(())
}
