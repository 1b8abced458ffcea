//! [`ScanPosition`]: how far a scan within one key has come.

use bytes::Bytes;

use super::cursor::Cursor;
use super::options::ScanOptions;
use crate::client::ClientId;
use crate::resp::Command;

/// How far HSCAN, SSCAN or ZSCAN has come.
#[derive(Clone, Debug)]
pub struct ScanPosition {
    name: &'static str,
    key: Bytes,
    options: ScanOptions,
    pub(crate) cursor: Cursor,
}

impl ScanPosition {
    pub(super) fn new(name: &'static str, key: Bytes) -> Self {
        Self { name, key, options: ScanOptions::default(), cursor: Cursor::default() }
    }

    pub(super) fn options(&mut self) -> &mut ScanOptions {
        &mut self.options
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The command for the next batch.
    pub(crate) fn command(&self) -> Command {
        self.command_at(self.cursor.get())
    }

    /// The command for the next batch from this server.
    pub(crate) fn command_for(&self, server: &ClientId) -> Command {
        self.command_at(self.cursor.on(server))
    }

    fn command_at(&self, cursor: &[u8]) -> Command {
        self.options.add_to(Command::new(self.name).arg(&self.key).arg(cursor))
    }
}
