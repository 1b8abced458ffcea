//! [`ScanPosition`]: how far a scan within one key has come, and on which server.

use bytes::Bytes;

use super::options::ScanOptions;
use crate::client::ClientId;
use crate::resp::Command;

/// How far HSCAN, SSCAN or ZSCAN has come.
#[derive(Clone, Debug)]
pub struct ScanPosition {
    name: &'static str,
    key: Bytes,
    options: ScanOptions,
    cursor: Bytes,
    /// The client of the server that returned the cursor, if there are several.
    server: Option<ClientId>,
    /// How often it began anew.
    restarts: u32,
}

impl ScanPosition {
    pub(super) fn new(name: &'static str, key: Bytes) -> Self {
        Self { name, key, options: ScanOptions::default(), cursor: START.clone(), server: None, restarts: 0 }
    }

    pub(super) fn options(&mut self) -> &mut ScanOptions {
        &mut self.options
    }

    /// Takes the cursor for the next batch. Returns `false` at the end.
    pub(super) fn advance(&mut self, cursor: Bytes) -> bool {
        self.cursor = cursor;
        self.cursor != START
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The command for the next batch.
    pub(crate) fn command(&self) -> Command {
        self.command_at(&self.cursor)
    }

    /// The command for the next batch from this server. A cursor is valid on the server that returned it only, so another
    /// server begins anew, and so does one that was restarted. The client of a node does not reconnect, so its server is
    /// the same.
    pub(crate) fn command_for(&self, server: &ClientId) -> Command {
        self.command_at(if self.server.as_ref() == Some(server) { &self.cursor } else { &START })
    }

    /// This server has answered. Servers that only redirect do not count.
    pub(crate) fn answered_by(&mut self, server: &ClientId) {
        if self.server.as_ref() != Some(server) {
            self.restarts += u32::from(self.server.is_some());
            self.server = Some(server.clone());
            self.cursor = START.clone();
        }
    }

    /// How often the scan has begun anew, if it may not do so once more on this server.
    pub(crate) fn restarted_too_often(&self, server: &ClientId) -> Option<u32> {
        let anew = self.server.as_ref().is_some_and(|known| known != server);
        (anew && self.restarts >= MOST_RESTARTS).then_some(self.restarts)
    }

    fn command_at(&self, cursor: &Bytes) -> Command {
        self.options.add_to(Command::new(self.name).arg(&self.key).arg(cursor))
    }
}

/// A connection that lives shorter than a scan takes must not keep it from ending for ever.
pub(crate) const MOST_RESTARTS: u32 = 8;

static START: Bytes = Bytes::from_static(b"0");
