//! [`ScanOptions`], and what the replies to SCAN, HSCAN, SSCAN and ZSCAN have in common.

use bytes::Bytes;
use futures_core::Stream;
use futures_util::stream::{self, TryStreamExt};
use valkey_rdma_resp::{FromValue, UnexpectedReply, Value};

use crate::command::{Command, ToArg};
use crate::error::Error;

/// What follows the cursor.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScanOptions(Vec<Command>);

impl ScanOptions {
    pub(crate) fn add(&mut self, name: &str, value: impl ToArg) {
        self.0.push(Command::new(name).arg(value));
    }

    pub(crate) fn add_flag(&mut self, name: &str) {
        self.0.push(Command::new(name));
    }

    /// Adds the options to a command that ends with its cursor.
    pub(crate) fn add_to(&self, command: Command) -> Command {
        self.0.iter().fold(command, Command::followed_by)
    }
}

/// Cursor and items of a reply.
pub(crate) fn batch<T: FromValue>(reply: Value) -> Result<(Bytes, Vec<T>), Error> {
    let (cursor, items): (Bytes, Vec<T>) = reply.convert()?;
    if !cursor.iter().all(u8::is_ascii_digit) {
        return Err(UnexpectedReply::new("a cursor", Value::Bulk(cursor).describe()).into());
    }
    Ok((cursor, items))
}

/// The items of batches, one by one.
pub(crate) fn one_by_one<T: Send + 'static>(
    batches: impl Stream<Item = Result<Vec<T>, Error>> + Send + 'static,
) -> impl Stream<Item = Result<T, Error>> + Send + Unpin + 'static {
    Box::pin(batches.map_ok(|batch| stream::iter(batch.into_iter().map(Ok))).try_flatten())
}
