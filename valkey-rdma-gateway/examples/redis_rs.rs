//! redis-rs, unmodified, through a Unix socket of the gateway: `cargo run --example redis_rs -- SOCKET`.

use std::error::Error;
use std::time::Duration;

use redis::{AsyncCommands, AsyncConnectionConfig, Client, Value, pipe};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: redis_rs SOCKET")?;
    exchange(&socket).await
}

/// Commands of each kind: shared, pipelined, in a transaction, blocking, large.
pub(crate) async fn exchange(socket: &str) -> Result<(), Box<dyn Error>> {
    // Its defaults are half a second for a reply and one for a connection, which a busy machine can take.
    let limit = Some(Duration::from_secs(60));
    let patient = AsyncConnectionConfig::new().set_response_timeout(limit).set_connection_timeout(limit);
    for protocol in ["resp2", "resp3"] {
        let client = Client::open(format!("redis+unix://{socket}?protocol={protocol}"))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let _: () = connection.del(&["rs:k", "rs:n", "rs:h", "rs:list"]).await?;
        let _: () = connection.set("rs:k", "v").await?;
        same(connection.get::<_, String>("rs:k").await?, "v".to_owned())?;
        let _: () = connection.hset_multiple("rs:h", &[("a", 1), ("b", 2)]).await?;
        let fields: std::collections::BTreeMap<String, u32> = connection.hgetall("rs:h").await?;
        same(fields.into_iter().collect(), vec![("a".to_owned(), 1), ("b".to_owned(), 2)])?;
        let mut many = pipe();
        (0..100).for_each(|number| _ = many.cmd("ECHO").arg(number));
        same(many.query_async::<Vec<u32>>(&mut connection).await?, (0..100).collect())?;
        let mut transaction = pipe();
        transaction.atomic().incr("rs:n", 1).incr("rs:n", 1);
        same(transaction.query_async::<Vec<u32>>(&mut connection).await?, vec![1, 2])?;
        let _: () = connection.rpush("rs:list", "item").await?;
        let popped: Vec<String> = connection.blpop("rs:list", 5.0).await?;
        same(popped, vec!["rs:list".to_owned(), "item".to_owned()])?;
        let large = vec![b'x'; 3 << 20];
        let _: () = connection.set("rs:k", &large[..]).await?;
        same(connection.get::<_, Value>("rs:k").await?, Value::BulkString(large))?;
    }
    Ok(())
}

fn same<T: PartialEq>(found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err("the reply is another one than expected".to_owned()) }
}
