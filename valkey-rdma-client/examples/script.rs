//! A Lua script: its text is sent once, then only its digest.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use valkey_rdma_client::{Client, Script};
use valkey_rdma_mock::MockServer;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    // The mock has no Lua: these rules stand in for it. A real server runs the script.
    let loaded = mock.on("SCRIPT").with("LOAD").reply("8d0d4c1a");
    mock.on("EVALSHA").reply(5).times(1);
    mock.on("EVALSHA").reply(12);
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;
    client.command(["DEL", "counter"]).await?;

    let text = format!("return redis.call('{}', KEYS[1], ARGV[1])", "INCRBY");
    let add = Script::new(text);
    for amount in [5, 7] {
        let sum: i64 = add.query(&client, ["counter"], [amount]).await?;
        println!("counter: {sum}");
    }
    println!("the mock loaded it {} times", loaded.matched());
    Ok(())
}
