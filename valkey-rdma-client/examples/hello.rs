//! Connects to a URL, says what the connection runs on, stores a value and reads it back.
//!
//! ```text
//! cargo run -p valkey-rdma-client --example hello -- rdma://10.0.0.7:6379
//! cargo run -p valkey-rdma-client --no-default-features --example hello -- valkey://127.0.0.1
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::process::ExitCode;

use valkey_rdma_client::{Client, Error};

#[tokio::main]
async fn main() -> ExitCode {
    let url = std::env::args().nth(1).unwrap_or_else(|| "valkey://127.0.0.1:6379".to_owned());
    match hello(&url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn hello(url: &str) -> Result<(), Error> {
    let client = Client::connect(url).await?;
    println!("connected: {}", client.info());

    client.command(["SET", "greeting", "hello"]).await?;
    let greeting = client.command(["GET", "greeting"]).await?;
    println!("greeting: {}", greeting.as_str().unwrap_or("not text"));

    let replies =
        client.pipeline().command(["INCR", "visits"]).command(["STRLEN", "greeting"]).send().await?;
    for reply in replies {
        println!("pipelined: {:?}", reply?);
    }

    client.close().await;
    Ok(())
}
