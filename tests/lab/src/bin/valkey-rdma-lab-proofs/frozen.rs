//! A real server whose process is frozen while a client is connected. Its kernel goes on taking connect requests, and a
//! request cannot be withdrawn without crashing the server, so the client has to keep each one.

use std::path::Path;
use std::time::Duration;

use valkey_rdma_client::{Backoff, Client, Config};
use valkey_rdma_lab::valkey;
use valkey_rdma_testkit::{Child, Signal, describe};

use crate::census::Census;
use crate::outcome::{LIMIT, Outcome, bounded, ensure};
use crate::peers;

/// The most connects to one address that a client keeps outstanding.
const OUTSTANDING: u64 = 3;
/// Commands that fail once that many are outstanding. Several attempts to reconnect fail between two of them.
const FAILURES: u64 = 10;
const PORT: &str = "6390";

pub(crate) async fn prove() -> Outcome {
    // Once for what stays from first use.
    let server = start()?;
    connect().await?.close().await;
    stop(server)?;
    let before = Census::settled().await?;
    let server = start()?;
    let client = connect().await?;
    let connected = Census::settled().await?;

    server.signal(Signal::STOP);
    let reconnecting = async {
        while client.is_connected() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    bounded("the loss of the connection", reconnecting).await?;
    // The server's half of the lost connection stays as long as it is frozen.
    let qps = "rxe0 qp";
    let (mut failed, mut peak, lost) = (0, before.clone(), before.count(qps) + 1);
    while failed < FAILURES {
        let reply = bounded("the end of a command", client.command(["PING"])).await?;
        ensure(reply.is_err(), "a frozen server has replied")?;
        let now = Census::take().await?;
        let outstanding = now.count(qps).saturating_sub(lost);
        ensure(outstanding <= OUTSTANDING, format!("{outstanding} connects, {OUTSTANDING} are allowed"))?;
        for kind in ["descriptors", "pinned memory, KiB"] {
            let each = connected.count(kind) - before.count(kind);
            let (count, most) = (now.count(kind), before.count(kind) + OUTSTANDING * each);
            ensure(count <= most, format!("{kind}: {count}, {most} are allowed"))?;
        }
        if outstanding == OUTSTANDING {
            (failed, peak) = (failed + 1, now);
        }
    }

    server.signal(Signal::CONT);
    let back = async {
        while client.command(["PING"]).await.is_err() {}
        client.close().await;
    };
    bounded("the client's return", back).await?;
    drop(client);
    // 9.1.2 keeps a completion queue and a protection domain of each connection until it ends (spec/peers.md).
    stop(server)?;
    let after = before.objects_returned().await?;
    println!(
        "   {FAILURES} commands failed beside {OUTSTANDING} outstanding connects; then the server went on"
    );
    println!("{}", before.beside(&[("connected", &connected), ("frozen", &peak), ("after", &after)]));
    Ok(())
}

fn start() -> Outcome<Child> {
    let lab = std::env::var("VALKEY_RDMA_LAB_DIR")?;
    let folder = Path::new(&lab).join("valkey/9.1");
    let server = Child::start(&mut valkey::server(&folder, &peers::lab().ip().to_string(), PORT))?;
    server.line_with(valkey::READY, LIMIT)?;
    Ok(server)
}

/// Ends the server in order.
fn stop(mut server: Child) -> Outcome {
    server.signal(Signal::TERM);
    let status = server.wait(LIMIT)?;
    ensure(status.success(), format!("the server {}:\n{}", describe(status), server.tail()))
}

/// A client that notices losses, gives up attempts and commands, and tries again as early as it may.
async fn connect() -> Outcome<Client> {
    let second = Duration::from_secs(1);
    let config = Config::default()
        .keepalive_timeout(second)
        .offline_timeout(second)
        .reconnect(Backoff::default().max(second / 10));
    let url = format!("rdma://{}:{PORT}?timeout=2s", peers::lab().ip());
    let client = bounded("a client", Client::connect_with(url.as_str(), &config)).await??;
    bounded("a reply", client.command(["PING"])).await??;
    Ok(client)
}
