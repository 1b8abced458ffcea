//! [`Cursor`]: how far a scan has come on one of several servers.

use std::mem;

use bytes::Bytes;

use crate::command::Command;
use crate::error::{ClusterError, Error};
use crate::server::{Server, ServerId};
use valkey_rdma_resp::Value;

/// A cursor is valid on the server that returned it only: another server begins anew, and so does one that was restarted. After a reconnect it
/// may be either.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// `None` at the beginning.
    at: Option<Bytes>,
    /// The server that returned the cursor.
    server: Option<ServerId>,
    /// How often the scan began anew.
    restarts: u32,
}

impl Cursor {
    /// Asks one server for the batch at the cursor, or for the first one after a reconnect. The caller takes the cursor of the reply.
    pub(crate) async fn ask(
        &mut self,
        server: &Server,
        command_at: impl Fn(&[u8]) -> Command,
    ) -> Result<Value, Error> {
        loop {
            let id = server.id();
            let command = command_at(self.on(&id));
            self.check_restarts(&id, &command, server.peer())?;
            let reply = server.call(command).await?;
            // After a reconnect, another server may have received the cursor of this one.
            if server.id() == id {
                self.answered_by(id);
                return Ok(reply);
            }
        }
    }

    /// The cursor for the next batch.
    pub(crate) fn get(&self) -> &[u8] {
        self.at.as_deref().unwrap_or(START)
    }

    /// The cursor for the next batch from this server.
    pub(crate) fn on(&self, server: &ServerId) -> &[u8] {
        if self.server.as_ref() == Some(server) { self.get() } else { START }
    }

    /// Takes the cursor for the next batch. Returns `false` at the end.
    pub(crate) fn advance(&mut self, cursor: Bytes) -> bool {
        self.at.insert(cursor) != START
    }

    /// This server has answered. Servers that only redirect do not count.
    pub(crate) fn answered_by(&mut self, server: ServerId) {
        if self.server.as_ref() != Some(&server) {
            self.restarts += u32::from(self.server.is_some());
            self.server = Some(server);
            self.at = None;
        }
    }

    /// Fails if the scan would begin anew on this server, and has done so too often. After the error, it may do so again.
    pub(crate) fn check_restarts(
        &mut self,
        server: &ServerId,
        command: &Command,
        address: impl ToString,
    ) -> Result<(), Error> {
        if self.restarts < MOST_RESTARTS || self.server.as_ref().is_none_or(|known| known == server) {
            return Ok(());
        }
        let (command, address, count) = (command.name(), address.to_string(), mem::take(&mut self.restarts));
        Err(ClusterError::ScanRestarted { command, address, count }.into())
    }
}

/// A connection that lives shorter than a scan takes must not keep it from ending for ever.
const MOST_RESTARTS: u32 = 8;

const START: &[u8] = b"0";
