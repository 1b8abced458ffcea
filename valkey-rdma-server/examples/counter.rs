//! A server of one's own, over RDMA and TCP: `VISIT name` counts. Try `cargo run --example counter` and, elsewhere,
//! `valkey-cli -p 6380 VISIT lobby`; with an RDMA address as argument also `valkey-cli --rdma -h ADDRESS -p 6380 VISIT lobby`.
use std::collections::HashMap;
use std::sync::Mutex;

use valkey_rdma_server::{Command, DeviceKind, Handler, Peer, Reply, Server, TransportConfig};

#[derive(Default)]
struct Visits(Mutex<HashMap<Vec<u8>, i64>>);

impl Handler for Visits {
    type Session = (); // nothing to remember of a single connection
    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Reply {
        match (command.is("VISIT"), command.args()) {
            (true, [name]) => {
                let mut visits = self.0.lock().expect("nobody panics here");
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
    let mut server = Server::builder(Visits::default()).tcp("127.0.0.1:6380".parse()?);
    if let Some(address) = std::env::args().nth(1) {
        server =
            server.rdma(DeviceKind::Verbs, format!("{address}:6380").parse()?, &TransportConfig::default());
    }
    let server = server.start().await?;
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    Ok(())
}
