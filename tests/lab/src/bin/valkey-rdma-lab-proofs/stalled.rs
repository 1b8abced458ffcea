//! A server that never registers its next receive window, although its keepalives go on.

use std::process::Command;
use std::time::Duration;

use valkey_rdma_client::{Client, Config, Error};
use valkey_rdma_testkit::Child;

use crate::census::Census;
use crate::outcome::{LIMIT, Outcome, bounded, ensure};
use crate::peers;

/// Larger than the server's window of 1 MiB.
const VALUE: usize = 4 << 20;

pub(crate) async fn prove() -> Outcome {
    let program = std::env::current_exe()?.with_file_name("valkey-rdma-mock");
    let mut command = Command::new(program);
    command.args(["--bind", &peers::lab().ip().to_string(), "--port", "0", "--device", "verbs"]);
    let server = Child::start(command.args(["--faults", "register-missing@2.."]))?;
    let url = server.ready(LIMIT)?;
    // Once for what stays from first use.
    for round in 0..2 {
        let before = Census::settled().await?;
        let given_up = give_up(&url).await?;
        let closed = close(&url).await?;
        let after = before.objects_returned().await?;
        if round == 1 {
            println!("   stall_timeout: {given_up}");
            println!("   close:         {closed}");
            println!("{}", before.beside(&[("after", &after)]));
        }
    }
    Ok(())
}

/// The connection ends after `stall_timeout`, and names the reason.
async fn give_up(url: &str) -> Outcome<Error> {
    let config = Config::default().stall_timeout(Duration::from_secs(2)).command_timeout(None).retries(0);
    let client = Client::connect_with(url, &config).await?;
    let error = set(&client).await?;
    ensure(format!("{error:#}").contains("receive window"), format!("an unexpected end: {error:#}"))?;
    client.close().await;
    Ok(error)
}

/// Without a limit on the stall, closing ends the connection, and the command with it.
async fn close(url: &str) -> Outcome<Error> {
    let config = Config::default()
        .stall_timeout(None)
        .command_timeout(None)
        .close_timeout(Duration::from_secs(1))
        .reconnect(None);
    let client = Client::connect_with(url, &config).await?;
    let waiting = client.clone();
    let waiting = tokio::spawn(async move { set(&waiting).await });
    let stalled = async {
        while client.connections()[0].stats.is_none_or(|stats| stats.protocol.bytes_sent < VALUE as u64 / 4) {
            tokio::task::yield_now().await;
        }
    };
    bounded("a full window", stalled).await?;
    bounded("the end of close()", client.close()).await?;
    waiting.await?
}

/// Sends more than fits. Returns the error.
async fn set(client: &Client) -> Outcome<Error> {
    let value = vec![b'v'; VALUE];
    let reply = bounded("the end of SET", client.command([b"SET", b"key", value.as_slice()])).await?;
    reply.err().ok_or_else(|| "a value has passed through a window that is not there".into())
}
