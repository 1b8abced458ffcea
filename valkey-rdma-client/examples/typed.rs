//! Arguments and replies of Rust types, own types included.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::collections::BTreeMap;

use valkey_rdma_client::{Client, Command, ToArg, cmd};
use valkey_rdma_mock::MockServer;

/// An argument of our own: the key of a user.
struct User(u64);

impl ToArg for User {
    fn add_to(&self, command: &mut Command) {
        command.push(format!("user:{}", self.0));
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mock = MockServer::start().await;
    let url = std::env::args().nth(1).unwrap_or_else(|| mock.url().to_owned());
    let client = Client::connect(url).await?;

    let () = client.query(["FLUSHDB"]).await?; // any reply but an error
    let added: u32 = client.query(cmd!["HSET", User(17), "name", "Ada", "age", 36]).await?;
    println!("fields: {added}");
    let user: BTreeMap<String, String> = client.query(cmd!["HGETALL", User(17)]).await?;
    println!("user: {user:?}");
    let () = client.query(cmd!["HSET", User(17), "age", 36.5]).await?;
    let age: f64 = client.query(cmd!["HGET", User(17), "age"]).await?;
    println!("age: {age}");

    let fields = ["name", "town"]; // members of a slice are one argument each
    let values: Vec<Option<String>> = client.query(cmd!["HMGET", User(17), fields]).await?;
    println!("values: {values:?}");
    let error =
        client.query::<i64>(cmd!["HGET", User(17), "name"]).await.expect_err("a name cannot be a number");
    println!("error: {error}");
    Ok(())
}
