//! Commands that run all or none; and the same, unless another client changes a key first.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{AbortedTransaction, Client, Error, cmd};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    client.command(cmd!["MSET", "account:1", 100, "account:2", 0, "stock", 7]).await?;
    let transfer = client.transaction().command(cmd!["DECRBY", "account:1", 10]).command(cmd![
        "INCRBY",
        "account:2",
        10
    ]);
    let (first, second): (i64, i64) = transfer.query().await?;
    println!("accounts: {first} and {second}");

    let mut tries = 0;
    loop {
        tries += 1;
        let mut watch = client.watch(["stock"]).await?;
        let stock: i64 = watch.query(["GET", "stock"]).await?;
        if tries == 1 {
            client.command(cmd!["SET", "stock", 20]).await?; // another client is faster
        }
        match watch.transaction().command(cmd!["SET", "stock", stock / 2]).query().await {
            Err(Error::Aborted(AbortedTransaction::Watched)) => println!("the stock changed, again"),
            other => break other?,
        }
    }
    println!("stock: {}", client.query::<i64>(["GET", "stock"]).await?);
    Ok(())
}
