//! How a program is tested: the server is loading, loses the connection, or holds what the test put there.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use valkey_rdma_client::{Client, Error, ServerErrorKind, cmd};
use valkey_rdma_mock::MockServer;

/// The program under test: the number of visits, with patience for a server that is not ready.
async fn visit(client: &Client, name: &str) -> Result<i64, Error> {
    for _ in 0..5 {
        match client.query(cmd!["HINCRBY", "visits", name, 1]).await {
            Err(Error::Server(error)) if error.kind() == ServerErrorKind::Loading => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other,
        }
    }
    Ok(0)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let client = Client::connect(mock.url()).await?;

    let loading = mock.on("HINCRBY").error("LOADING wait").times(2);
    assert_eq!(visit(&client, "ada").await?, 1);
    println!("tried again {} times", loading.matched());

    mock.on("HINCRBY").with("visits").with("bob").drop_connection().times(1);
    let lost = visit(&client, "bob").await.expect_err("the connection was lost");
    println!("lost, {}", lost.fate());

    let calls = mock.received().iter().filter(|received| received.command.is("HINCRBY")).count();
    println!("the mock received {calls} calls");

    mock.reset();
    mock.set("greeting", "hello");
    println!("greeting: {}", client.query::<String>(["GET", "greeting"]).await?);
    client.command(["APPEND", "greeting", "!"]).await?;
    println!("in the mock: {:?}", mock.get("greeting"));
    Ok(())
}
