//! `--direct`: GET and SET as direct transfers of this project's client, as a source of shared connections.
//!
//! The tasks of a connection share memory that its client has registered. A value that was read is checked where it arrived. A value to be
//! stored is copied there first, unless the same one was stored from there before: so with one key, nothing is copied but once.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use valkey_rdma_client::{
    Client, Command, DirectMemory, DirectSlice, Endpoint, Error, NotDirect, Placed, Transport, Value, Way,
};
use valkey_rdma_transport::Stats;
use valkey_rdma_transport::sync::lock;

use super::dial::{DialError, Target, dial_caller};
use super::job::Verify;
use super::library::{Connection, Failure, Source};
use super::link_info::LinkInfo;
use super::ours::{failure, link_info, outcome};

/// The client's direct transfers, of values up to a length.
#[derive(Clone, Copy)]
pub(super) struct Transfers {
    /// In bytes, at least 1.
    pub(super) longest: usize,
    /// How replies are checked.
    pub(super) verify: Verify,
}

/// A client, and the memory of its transfers.
#[derive(Clone)]
pub(super) struct Transferring {
    client: Client,
    transfers: Transfers,
    rooms: Arc<Mutex<Vec<Room>>>,
}

/// Memory for one value.
struct Room {
    memory: DirectMemory,
    /// What it holds, if it was stored from there. Held, so that no other value has its address.
    holds: Bytes,
}

impl Source for Transfers {
    type Connection = Transferring;

    fn called(&self) -> &'static str {
        "direct transfers"
    }

    fn way(&self) -> &'static str {
        "direct"
    }

    fn refuses(&self, endpoint: &Endpoint) -> Option<String> {
        if endpoint.tls().is_some() {
            return Some("--direct transfers plain bytes, and the server's URL asks for TLS".to_owned());
        }
        (!matches!(endpoint.transport(), Transport::Rdma | Transport::Emulated))
            .then(|| format!("--direct needs RDMA, but the server is reached over {}", endpoint.transport()))
    }

    /// Also reads a key that does not exist, to know whether values go directly.
    async fn dial(&self, target: &Target) -> Result<Transferring, DialError> {
        let client = dial_caller(target).await?;
        let all = Transferring { client, transfers: *self, rooms: Arc::default() };
        match all.read(PROBE).await {
            Ok(Placed { way: Way::Direct, .. }) => Ok(all),
            Ok(placed) => Err(DialError::other(target, &format!("--direct is not possible: {}", placed.way))),
            Err(error) => Err(DialError::of(target, &error)),
        }
    }

    fn link_info(&self, connection: &Transferring) -> LinkInfo {
        link_info(&connection.client)
    }

    fn stats(&self, connection: &Transferring) -> Vec<Stats> {
        connection.client.connections().into_iter().filter_map(|connection| connection.stats).collect()
    }
}

impl Transferring {
    async fn read(&self, key: &[u8]) -> Result<Placed, Error> {
        let (room, mut slice) = self.room(self.transfers.longest);
        if self.transfers.verify == Verify::Full {
            // The right bytes could be there from before, and pass for those of a server that writes nothing.
            slice.fill(0);
        }
        let placed = self.client.get_direct(key, [slice]).await;
        self.free(room, Bytes::new());
        placed
    }

    async fn store(&self, key: &[u8], value: Bytes) -> Result<Placed, Error> {
        let (room, mut slice) = self.room(value.len());
        if (room.holds.as_ptr(), room.holds.len()) != (value.as_ptr(), value.len()) {
            slice.copy_from_slice(&value);
        }
        let placed = self.client.set_direct(key, [slice]).await;
        self.free(room, value);
        placed
    }

    /// Takes free memory. A reply may still be read in what was given back last.
    fn room(&self, len: usize) -> (Room, DirectSlice) {
        let mut rooms = lock(&self.rooms);
        let free = |(at, room): (usize, &Room)| Some((at, room.memory.take(0..len).ok()?));
        if let Some((at, slice)) = rooms.iter().enumerate().rev().find_map(free) {
            return (rooms.remove(at), slice);
        }
        let memory =
            DirectMemory::allocate(self.transfers.longest).expect("values are far shorter than 4 GiB");
        let slice = memory.take(0..len).expect("no value is longer than the longest");
        (Room { memory, holds: Bytes::new() }, slice)
    }

    fn free(&self, room: Room, holds: Bytes) {
        lock(&self.rooms).push(Room { holds, ..room });
    }

    /// Carries a command out: over the stream, if it is one that prepares a test.
    async fn perform(self, words: Vec<Bytes>) -> Result<Value, Failure> {
        let (placed, is_read) = match &words[..] {
            [name, key] if name[..] == *b"GET" => (self.read(key).await, true),
            [name, key, value] if name[..] == *b"SET" => (self.store(key, value.clone()).await, false),
            _ => return outcome(self.client.command(Command::from_args(words)).await),
        };
        match placed {
            Ok(Placed { way: Way::Stream(reason), .. }) => Err(not_direct(&reason)),
            Ok(Placed { len: Some(len), mut slices, .. }) if is_read => {
                let arrived = slices.pop().map(|slice| slice.freeze().slice(..len));
                Ok(Value::Bulk(arrived.unwrap_or_default()))
            }
            Ok(Placed { len: None, .. }) => Ok(Value::Nil),
            Ok(_) => Ok(Value::Simple("OK".into())),
            Err(Error::Server(error)) => Ok(Value::Error(error)),
            Err(error) => Err(failure(&error)),
        }
    }
}

/// Figures of the stream could pass for those of direct transfers.
#[cold]
fn not_direct(reason: &NotDirect) -> Failure {
    Failure::Refused(format!("not a direct transfer (--direct): {reason}"))
}

impl Connection for Transferring {
    type Command = Vec<Bytes>;

    fn command(name: &[u8]) -> Vec<Bytes> {
        vec![Bytes::copy_from_slice(name)]
    }

    fn push(command: &mut Vec<Bytes>, argument: &[u8]) {
        command.push(Bytes::copy_from_slice(argument));
    }

    fn push_shared(command: &mut Vec<Bytes>, argument: Bytes) {
        command.push(argument);
    }

    async fn call(&mut self, command: Vec<Bytes>) -> Result<Value, Failure> {
        self.clone().perform(command).await
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Vec<Bytes>> + Send,
        mut each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        let mut calls: FuturesOrdered<_> = commands.map(|command| self.clone().perform(command)).collect();
        while let Some(outcome) = calls.next().await {
            each(outcome);
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

/// No test has such a key.
const PROBE: &[u8] = b"valkey-rdma-benchmark:nothing";
