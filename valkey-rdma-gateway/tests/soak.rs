//! Many clients of all kinds, that come and go, in front of a server that is killed and restarted: no reply reaches the wrong client, none
//! is missing, and memory does not grow.
//!
//! Small under `cargo test`. `VALKEY_RDMA_GATEWAY_SOAK_SECONDS=600 VALKEY_RDMA_GATEWAY_SOAK_CLIENTS=500` is the long form.

#![cfg(feature = "emulated")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "gateway/support.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_resp::Value;

use support::{Client, PATIENCE, Running, config, encode, start, text};

/// What happened, over all clients.
#[derive(Default)]
struct Counts {
    right: AtomicU64,
    full: AtomicU64,
    closed: AtomicU64,
}

/// What a client does in one round.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain,
    Pipeline,
    Transaction,
    Blocking,
    Subscriber,
    Large,
    Leaver,
}

const KINDS: [Kind; 7] = [
    Kind::Plain,
    Kind::Pipeline,
    Kind::Transaction,
    Kind::Blocking,
    Kind::Subscriber,
    Kind::Large,
    Kind::Leaver,
];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

async fn serve(addr: SocketAddr) -> Server {
    loop {
        // The port may be in use for a moment after its last server.
        match Server::builder(Mock::new()).tcp(addr).start().await {
            Ok(server) => return server,
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Resident memory of this process, in KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A reply to this client's command: its own value, nothing if the server has forgotten it, or an error if there are too many
/// connections.
fn check(value: &Value, own: &str, counts: &Counts) {
    let said = text(value);
    if said.starts_with("-NOUPSTREAM ") && said.contains("raise limits.upstreams") {
        counts.full.fetch_add(1, Ordering::Relaxed);
        return;
    }
    assert!(!said.starts_with('-'), "{own}: {said}");
    let foreign = said.split("client:").skip(1).any(|rest| !rest.starts_with(&own["client:".len()..]));
    assert!(!foreign, "{own} got {}", &said[..said.len().min(200)]);
    counts.right.fetch_add(1, Ordering::Relaxed);
}

/// Sends a command and returns its reply. `None` if the connection was closed.
async fn call(client: &mut Client, line: &str) -> Option<Value> {
    client.stream_send(&encode(line.split(' '))).await?;
    client.try_reply().await
}

/// One round of a client. `None` if its connection was closed.
async fn round(client: &mut Client, kind: Kind, own: &str, counts: &Counts) -> Option<()> {
    match kind {
        Kind::Plain => {
            check(&call(client, &format!("SET {own} {own}")).await?, own, counts);
            check(&call(client, &format!("GET {own}")).await?, own, counts);
        }
        Kind::Pipeline | Kind::Leaver => {
            let depth = fastrand::usize(1..200);
            let command = encode(["ECHO", own]);
            client.stream_send(&command.repeat(depth)).await?;
            if matches!(kind, Kind::Leaver) {
                // Gone with replies in flight.
                return None;
            }
            for _ in 0..depth {
                check(&client.try_reply().await?, own, counts);
            }
        }
        Kind::Transaction => {
            for line in [
                format!("WATCH {own}"),
                "MULTI".to_owned(),
                format!("ECHO {own}"),
                format!("SET {own} {own}"),
            ] {
                check(&call(client, &line).await?, own, counts);
            }
            let reply = call(client, "EXEC").await?;
            let aborted =
                text(&reply).starts_with("-ERR EXEC without MULTI") || text(&reply).starts_with("-EXECABORT");
            if !aborted {
                check(&reply, own, counts);
            }
        }
        Kind::Blocking => {
            check(&call(client, &format!("RPUSH list:{own} {own}")).await?, own, counts);
            check(&call(client, &format!("BLPOP list:{own} 0.05")).await?, own, counts);
        }
        Kind::Subscriber => {
            check(&call(client, &format!("SUBSCRIBE channel:{own}")).await?, own, counts);
            check(&call(client, &format!("UNSUBSCRIBE channel:{own}")).await?, own, counts);
        }
        Kind::Large => {
            let value = own.repeat(200_000 / own.len());
            client.stream_send(&encode(["SET", own, &value])).await?;
            check(&client.try_reply().await?, own, counts);
            client.stream_send(&encode(["GET", own])).await?;
            check(&client.try_reply().await?, own, counts);
        }
    }
    Some(())
}

async fn client(gateway: Arc<Running>, number: u64, end: Instant, counts: Arc<Counts>) {
    let own = format!("client:{number}.");
    while Instant::now() < end {
        let mut client = Client::new(UnixStream::connect(&gateway.unix).await.unwrap());
        for _ in 0..fastrand::u32(1..30) {
            let kind = fastrand::choice(KINDS).unwrap();
            let done = timeout(PATIENCE, round(&mut client, kind, &own, &counts)).await;
            let done = done.unwrap_or_else(|_| panic!("{own} hangs in {kind:?}"));
            if done.is_none() {
                counts.closed.fetch_add(1, Ordering::Relaxed);
                break;
            }
            if Instant::now() >= end {
                break;
            }
        }
    }
}

#[tokio::test]
async fn no_reply_reaches_the_wrong_client() {
    let seconds = setting("VALKEY_RDMA_GATEWAY_SOAK_SECONDS", 5);
    let clients = setting("VALKEY_RDMA_GATEWAY_SOAK_CLIENTS", 40);
    let mut server = serve("127.0.0.1:0".parse().unwrap()).await;
    let addr = server.listening()[0].addr;
    let config = config(&format!("valkey://{addr}"), Share::Auto, Limits::default());
    let gateway = Arc::new(start(&config).await);
    let counts = Arc::new(Counts::default());
    let end = Instant::now() + Duration::from_secs(seconds);
    let tasks: Vec<_> = (0..clients)
        .map(|number| tokio::spawn(client(gateway.clone(), number, end, counts.clone())))
        .collect();
    const KILLS: u32 = 5;
    let mut memory = Vec::new();
    for _ in 0..KILLS {
        sleep(Duration::from_secs(seconds) / (KILLS + 1)).await;
        memory.push(resident());
        drop(server);
        server = serve(addr).await;
    }
    for task in tasks {
        task.await.expect("no client failed");
    }
    memory.push(resident());
    let [right, full, closed] =
        [&counts.right, &counts.full, &counts.closed].map(|count| count.load(Ordering::Relaxed));
    println!(
        "{right} right replies, {full} without a connection, {closed} connections closed; resident KiB: {memory:?}"
    );
    assert!(right > 100 * clients, "{right}");
    assert!(*memory.last().unwrap() < 2 * memory[0] + 50_000, "memory grows: {memory:?}");
    gateway.until("gateway_clients", |count| count == 1).await;
    gateway.until("gateway_unread_bytes", |count| count < 10_000).await;
}
