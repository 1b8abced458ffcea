//! [`Store`]: a handler with values to set, read, count and delete.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use valkey_rdma_server::{Command, Handler, Peer, Reply};

/// `SET key value`, `GET key`, `DEL key` and `INCR key`, as in Valkey, on a key space of its own.
#[derive(Default)]
pub(crate) struct Store(Mutex<HashMap<Bytes, Bytes>>);

impl Handler for Store {
    type Session = ();

    fn session(&self, _peer: &Peer) {}

    async fn call(&self, _peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
        let key = command.keep(0).ok_or_else(|| command.wrong_arity())?;
        let mut values = self.0.lock().unwrap();
        if command.is("SET") {
            let value = command.keep(1).ok_or_else(|| command.wrong_arity())?;
            values.insert(key, value);
            return Ok(Reply::OK);
        }
        if command.is("GET") {
            return Ok(values.get(&key).map_or(Reply::Null, |value| Reply::Bulk(value.clone())));
        }
        if command.is("DEL") {
            return Ok(Reply::Integer(values.remove(&key).is_some().into()));
        }
        if command.is("INCR") {
            let count =
                values.get(&key).map_or(0, |count| str::from_utf8(count).unwrap().parse().unwrap()) + 1;
            values.insert(key, count.to_string().into());
            return Ok(Reply::Integer(count));
        }
        Err(command.unknown())
    }
}
