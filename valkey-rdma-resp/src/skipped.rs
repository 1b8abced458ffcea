//! [`Skipped`]: a part of a reply that is not returned, and what stands in its place.

use bytes::{Buf, BytesMut};

use crate::frame_scanner::{FrameScanner, Scanned};
use crate::reply_error::ProtocolError;
use crate::server_error::ServerError;
use crate::value::Value;

/// Passes over a part of a reply that is well formed, but beyond a limit. A script of one caller can return such a reply, and the
/// replies to others follow it on the same connection.
#[derive(Debug)]
pub(crate) struct Skipped {
    scanner: FrameScanner,
    /// The error that stands in its place.
    error: &'static str,
}

impl Skipped {
    pub(crate) fn new(error: &'static str) -> Self {
        Self { scanner: FrameScanner::default(), error }
    }

    /// Passes over the bytes of that part. Returns what stands in its place once all of it has arrived.
    pub(crate) fn pass(&mut self, buffer: &mut BytesMut) -> Result<Option<Value>, ProtocolError> {
        let Scanned { len, complete } = self.scanner.scan(buffer)?;
        buffer.advance(len);
        Ok(complete.then(|| replacement(self.error)))
    }
}

/// An error in the place of a part of a reply.
pub(crate) fn replacement(error: &str) -> Value {
    Value::Error(ServerError::from_reply(error.as_bytes()))
}
