//! A server of our own, which any client can reach. With URLs to listen on as arguments it serves until Ctrl-C.

#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use valkey_rdma_client::Client;
use valkey_rdma_server::{Command, Reply, Server, handler_fn};

static VISITS: Mutex<Option<HashMap<Bytes, i64>>> = Mutex::new(None);

/// `VISIT name [count]` counts visitors. The server answers HELLO, PING, CLIENT and the like.
fn visit(command: &Command) -> Result<Reply, Reply> {
    if !command.is("VISIT") {
        return Err(command.unknown());
    }
    let name = command.keep(0).ok_or_else(|| command.wrong_arity())?;
    let count = if command.args().len() > 1 { command.int(1)? } else { 1 };
    let mut visits = VISITS.lock().map_err(|_| Reply::error("ERR try later"))?;
    let total = visits.get_or_insert_default().entry(name).or_default();
    *total += count;
    Ok(Reply::from(*total))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let server = Server::builder(handler_fn(|command| async move { visit(&command) }));
    if !urls.is_empty() {
        let server = urls.iter().fold(server, |server, url| server.listen(url)).start().await?;
        server.run_until(tokio::signal::ctrl_c()).await.ok_or("no listener is left")??;
        return Ok(());
    }
    let server = server.listen("emulated://127.0.0.1:0").start().await?;
    let client = Client::connect(server.urls().next().ok_or("no URL")?).await?;
    println!("visits: {}", client.query::<i64>(["VISIT", "lobby"]).await?);
    println!("visits: {}", client.query::<i64>(["VISIT", "lobby", "4"]).await?);
    for wrong in [vec!["VISIT"], vec!["VISIT", "lobby", "x"], vec!["LEAVE"]] {
        println!("{}", client.command(wrong).await.expect_err("refused"));
    }
    server.shutdown().await;
    Ok(())
}
