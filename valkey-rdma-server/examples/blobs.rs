//! A server that keeps values in registered memory: it moves them to and from memory of its clients without a copy on either side.
//! `BLOB.SET key len rkey addr len [...]` and `BLOB.GET key rkey addr len [...]`, with values of up to 1 MiB.
//! Run `cargo run --example blobs -- rdma://10.0.0.7:6380`.
use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use crc32c::crc32c;
use valkey_rdma_server::{Command, DirectMemory, Handler, Peer, RemoteRanges, Reply, Server};

pub(crate) struct Blobs {
    /// Registered once with each connection, therefore one memory for all values.
    memory: DirectMemory,
    /// Each with its CRC-32C, for clients that check it.
    values: Mutex<HashMap<Bytes, (Bytes, u32)>>,
}

impl Blobs {
    pub(crate) fn new() -> Self {
        let memory = DirectMemory::allocate(SLOTS * SLOT).expect("less than 4 GiB");
        Self { memory, values: Mutex::default() }
    }

    async fn run(&self, peer: &mut Peer, command: &Command) -> Result<Reply, Reply> {
        let key = command.keep(0).ok_or_else(|| command.wrong_arity())?;
        let mut direct =
            peer.direct().ok_or(Reply::error("NODIRECT only for clients with direct transfers"))?;
        if command.is("BLOB.GET") {
            let ranges = RemoteRanges::parse(&command.args()[1..])?;
            // Held until it is sent. A SET meanwhile uses another slot.
            let value = self.values.lock().expect("no code panics with the lock").get(&key).cloned();
            let Some((value, crc)) = value else { return Ok(Reply::Null) };
            direct.write_to(&ranges, value.clone()).await?;
            return Ok(Reply::Array(vec![Reply::from(value.len() as i64), Reply::Integer(crc.into())]));
        }
        let len = usize::try_from(command.int(1)?).ok().filter(|len| *len <= SLOT);
        let len = len.ok_or(Reply::error("ERR a value has at most 1 MiB"))?;
        let ranges = RemoteRanges::parse(&command.args()[2..])?;
        // A slot is free when the last reference to its value is dropped.
        let free = (0..SLOTS).find_map(|slot| self.memory.take(slot * SLOT..slot * SLOT + len).ok());
        let value = direct.read_into(&ranges, free.ok_or(Reply::error("OOM all slots are in use"))?).await?;
        let crc = crc32c(&value);
        let value = (value.freeze(), crc);
        self.values.lock().expect("no code panics with the lock").insert(key, value);
        Ok(Reply::OK)
    }
}

impl Handler for Blobs {
    type Session = (); // no state of a single connection
    fn session(&self, _peer: &Peer) {}

    async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("BLOB.GET") || command.is("BLOB.SET") {
            return self.run(peer, &command).await;
        }
        Err(command.unknown())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut server = Server::builder(Blobs::new()).direct(true);
    for url in std::env::args().skip(1) {
        server = server.listen(url);
    }
    let server = server.start().await?;
    server.run_until(tokio::signal::ctrl_c()).await.ok_or("no listener is left")??;
    Ok(())
}

const SLOTS: usize = 64;
const SLOT: usize = 1 << 20;
