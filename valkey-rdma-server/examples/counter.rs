//! A server with one command over TCP and RDMA: `VISIT name` counts. Run `cargo run --example counter` and, elsewhere,
//! `valkey-cli -p 6380 VISIT lobby`. With an RDMA address as argument: `valkey-cli --rdma -h ADDRESS -p 6380 VISIT lobby`.
use std::collections::HashMap;
use std::sync::Mutex;

use valkey_rdma_server::{Command, DeviceKind, Handler, Peer, Reply, Server, TransportConfig};

#[derive(Default)]
pub(crate) struct Visits(Mutex<HashMap<Vec<u8>, i64>>);

impl Handler for Visits {
    type Session = (); // no state of a single connection
    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Reply {
        match (command.is("VISIT"), command.args()) {
            (true, [name]) => {
                let mut visits = self.0.lock().expect("no code panics while it holds the lock");
                let count = visits.entry(name.to_vec()).or_default();
                *count += 1;
                Reply::Integer(*count)
            }
            _ => Reply::error("ERR try VISIT name"),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = Server::builder(Visits::default());
    if let Some(address) = std::env::args().nth(1) {
        server =
            server.rdma(DeviceKind::Verbs, format!("{address}:6380").parse()?, &TransportConfig::default());
    }
    let server = server.tcp("127.0.0.1:6380".parse()?).start().await?;
    tokio::select! {
        signal = tokio::signal::ctrl_c() => signal?,
        () = server.wait() => return Err("no listener is left".into()),
    }
    server.shutdown().await;
    Ok(())
}
