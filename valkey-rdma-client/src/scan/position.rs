//! [`ScanPosition`]: how far a scan within one key has come.

use bytes::Bytes;

use super::cursor::Cursor;
use super::options::ScanOptions;
use crate::command::Command;

/// How far HSCAN, SSCAN or ZSCAN has come.
#[derive(Clone, Debug)]
pub struct ScanPosition {
    name: &'static str,
    key: Bytes,
    options: ScanOptions,
    pub(super) cursor: Cursor,
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

    /// The cursor, and what makes the command for the batch at a cursor.
    pub(crate) fn split(&mut self) -> (&mut Cursor, impl Fn(&[u8]) -> Command) {
        let Self { name, ref key, ref options, ref mut cursor } = *self;
        (cursor, move |at| options.add_to(Command::new(name).arg(key).arg(at)))
    }
}
