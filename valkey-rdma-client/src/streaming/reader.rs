//! [`ValueReader`]: a reply read piece by piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use valkey_rdma_resp::{RespError, UnexpectedReply};

use super::refused;
use crate::command::CRLF;
use crate::dedicated::Dedicated;
use crate::error::{Error, LostCause};
use crate::link::RawConnection;
use crate::stats::ConnectionInfo;

/// A reply read piece by piece, from [`Client::stream_reply`](crate::Client::stream_reply). Dropping it before its end
/// closes the connection: over TCP at once, over RDMA when the rest was read in the background, or after 15 s of
/// silence or 600 s in all.
#[derive(Debug)]
pub struct ValueReader {
    connection: Dedicated,
    /// For each piece.
    limit: Option<Duration>,
    len: usize,
    /// Bytes not read yet, CRLF included.
    left: usize,
    /// Memory for the next chunks.
    chunks: BytesMut,
}

#[expect(clippy::len_without_is_empty, reason = "of the whole value, not of what is left")]
impl ValueReader {
    /// Reads a string of `len` bytes, which come next.
    pub(super) fn new(connection: Dedicated, limit: Option<Duration>, len: usize) -> Self {
        Self { connection, limit, len, left: len + CRLF, chunks: BytesMut::new() }
    }

    /// Length of the whole value in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left.saturating_sub(CRLF)
    }

    /// The next bytes, at most 1 MiB. None at the end.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        if self.remaining() == 0 {
            self.end().await?;
            return Ok(None);
        }
        let most = self.remaining();
        let chunks = &mut self.chunks;
        let chunk =
            self.connection.with_connection(self.limit, async |raw| next_chunk(raw, chunks, most).await);
        let chunk = chunk.await?;
        self.left -= chunk.len();
        Ok(Some(chunk))
    }

    /// Reads the next bytes into `buffer`: at least one, unless the buffer is empty or the end is reached. After the
    /// last byte, [`finish`](Self::finish) returns the connection to the pool.
    ///
    /// # Errors
    /// [`Error::Lost`] if the connection ended, [`Error::TimedOut`] if nothing came for as long as a command may take.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let most = buffer.len().min(self.remaining());
        if most == 0 {
            return Ok(0);
        }
        let buffer = &mut buffer[..most];
        let read =
            self.connection.with_connection(self.limit, async |raw| read_some(raw, buffer).await).await?;
        self.left -= read;
        Ok(read)
    }

    /// Reads the reply to GET, which nothing was read of yet, into the caller's memory, to its end. Returns its length.
    pub(crate) async fn read_into(mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        let Some(buffer) = buffer.get_mut(..len) else {
            let got = format!("a string of {len} bytes");
            let unexpected = UnexpectedReply::new("a value that fits into the buffer", got);
            return Err(unexpected.in_reply_to("GET").into());
        };
        let mut filled = 0;
        while filled < len {
            filled += self.read(&mut buffer[filled..]).await?;
        }
        self.finish().await?;
        Ok(len)
    }

    /// Ends the reading when [`remaining`](Self::remaining) is 0, so that the connection can be reused. Without it,
    /// dropping the reader closes the connection. [`chunk`](Self::chunk) calls it when it returns `None`.
    ///
    /// # Errors
    /// [`Error::Refused`] if bytes remain: nothing was read then. [`Error::Lost`] if the connection ended.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub async fn finish(&mut self) -> Result<(), Error> {
        if self.remaining() > 0 {
            return Err(refused("a streamed reply", UNREAD));
        }
        self.end().await
    }

    /// Describes the connection.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        self.connection.info()
    }

    /// Reads the CRLF after the value.
    async fn end(&mut self) -> Result<(), Error> {
        while self.left > 0 {
            let mut end = [0; CRLF];
            let missing = &mut end[..self.left];
            let read = self
                .connection
                .with_connection(self.limit, async |raw| read_some(raw, missing).await)
                .await?;
            if missing[..read] != b"\r\n"[CRLF - self.left..][..read] {
                let error = RespError::Unterminated { len: self.len };
                return self
                    .connection
                    .with_connection(None, async |_| Err(LostCause::Protocol(error)))
                    .await;
            }
            self.left -= read;
        }
        self.connection.set_reusable(true);
        Ok(())
    }
}

/// Reads at least one byte: from the decoder if it has any, otherwise from the stream.
pub(super) async fn read_some(raw: &mut RawConnection, buffer: &mut [u8]) -> Result<usize, LostCause> {
    let mut read = raw.decoder.take_into(buffer);
    if read == 0 {
        read = match raw.socket.read(buffer).await {
            Ok(0) => return Err(LostCause::PeerClosed),
            Ok(read) => read,
            Err(error) => return Err(LostCause::Io(error)),
        };
    }
    raw.outstanding.less(read);
    Ok(read)
}

/// The next bytes, at least one: from the decoder if it has any, otherwise from the stream. Chunks share memory, so
/// small ones keep no more of it alive than they have bytes, except the last.
async fn next_chunk(raw: &mut RawConnection, chunks: &mut BytesMut, most: usize) -> Result<Bytes, LostCause> {
    let received = raw.decoder.take_some(most.min(CHUNK));
    if !received.is_empty() {
        raw.outstanding.less(received.len());
        return Ok(received);
    }
    if chunks.capacity() < most.min(MIN_CHUNK) {
        chunks.reserve(most.min(CHUNK));
    }
    match (&mut raw.socket).take(most as u64).read_buf(chunks).await {
        Ok(0) => Err(LostCause::PeerClosed),
        Ok(read) => {
            raw.outstanding.less(read);
            Ok(chunks.split().freeze())
        }
        Err(error) => Err(LostCause::Io(error)),
    }
}

/// The most bytes in one chunk.
const CHUNK: usize = 1024 * 1024;

/// Less room than this is not worth a read.
const MIN_CHUNK: usize = 64 * 1024;

const UNREAD: &str = "bytes of it remain to be read";
