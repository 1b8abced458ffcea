//! A server with one command: `VISIT name` counts. Run `cargo run --example counter` and, elsewhere, `valkey-cli -p 6380 VISIT lobby`.
//! With other URLs to listen on as arguments, such as rdma://10.0.0.7:6380: `valkey-cli --rdma -h 10.0.0.7 -p 6380 VISIT lobby`.
use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use valkey_rdma_server::{Command, Handler, Peer, Reply, Server};

#[derive(Default)]
pub(crate) struct Visits(Mutex<HashMap<Bytes, i64>>);

impl Handler for Visits {
    type Session = (); // no state of a single connection
    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        if !command.is("VISIT") {
            return Err(Reply::error("ERR try VISIT name"));
        }
        let [_name] = command.exactly()?;
        let name = command.keep(0).ok_or_else(|| command.wrong_arity())?;
        let mut visits = self.0.lock().expect("no code panics while it holds the lock");
        let count = visits.entry(name).or_default();
        *count += 1;
        Ok(Reply::from(*count))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = Server::builder(Visits::default()).listen("valkey://127.0.0.1:6380");
    for url in std::env::args().skip(1) {
        server = server.listen(url);
    }
    let server = server.start().await?;
    server.run_until(tokio::signal::ctrl_c()).await.ok_or("no listener is left")??;
    Ok(())
}
