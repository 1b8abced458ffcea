//! Large values: read into the caller's memory, or streamed in and out, on a connection of their own. How that ends when
//! a value is not read to its end: [`parting`](crate::parting).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Client;
use crate::command::Command;
use crate::convert::told;
use crate::decoder::{Header, ProtocolError};
use crate::dedicated::Dedicated;
use crate::error::{Error, LostCause, RefusedCommand, UnexpectedReply};
use crate::info::ConnectionInfo;
use crate::parting::Owed;
use crate::value::Value;
use crate::wire::Wire;

/// The most bytes in one chunk of a [`ValueReader`].
const CHUNK: usize = 1024 * 1024;

/// Less room than this is not worth a read.
const MIN_CHUNK: usize = 64 * 1024;

/// The CRLF after a string.
pub(crate) const CRLF: usize = 2;

impl Client {
    /// Gets a value into memory of your own: the bytes are copied once, out of the receive window. Returns its
    /// length; none if there is no such key.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// let mut buffer = vec![0; 32 << 20];
    /// if let Some(len) = client.get_into("kv:17", &mut buffer).await? {
    ///     println!("{} bytes", buffer[..len].len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unexpected`] if the value does not fit; [`Error::Connect`], [`Error::Server`] and [`Error::Lost`] as
    /// for any command.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection it used, as for [`ValueReader`]. What is in the buffer then has no
    /// meaning.
    pub async fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        let Some(mut reader) = self.stream_reply(Command::new("GET").arg(key)).await? else {
            return Ok(None);
        };
        let len = reader.len();
        let Some(buffer) = buffer.get_mut(..len) else {
            let got = format!("a string of {len} bytes");
            return Err(UnexpectedReply { wanted: "a value that fits into the buffer", got }.into());
        };
        let mut filled = 0;
        while filled < len {
            filled += reader.read(&mut buffer[filled..]).await?;
        }
        reader.finish().await?;
        Ok(Some(len))
    }

    /// Sends a command whose reply is one string, such as GET, and hands the string out as it arrives. None if the
    /// reply is nothing.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::Command;
    ///
    /// if let Some(mut value) = client.stream_reply(Command::new("GET").arg("film")).await? {
    ///     while let Some(chunk) = value.chunk().await? {
    ///         println!("{} bytes", chunk.len());
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`command`](Self::command), and [`Error::Unexpected`] if the reply is not a string.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection it used, as for [`ValueReader`].
    pub async fn stream_reply(&self, command: Command) -> Result<Option<ValueReader>, Error> {
        if let Some(refusal) = command.lone_refusal() {
            return Err(refusal.into());
        }
        let limit = self.limit(&command);
        let mut connection = self.pooled().await?;
        let header = connection
            .with_wire(limit, async |wire| {
                wire.outbox.push(&command);
                wire.owed = Owed::Replies(1);
                wire.flush().await?;
                header(wire).await
            })
            .await?;
        match header {
            Header::String(len) => {
                connection.set_reusable(false);
                Ok(Some(ValueReader { connection, limit, len, left: len + CRLF, chunks: BytesMut::new() }))
            }
            Header::Other(Value::Nil) => Ok(None),
            Header::Other(Value::Error(error)) => Err(error.into()),
            Header::Other(other) => {
                Err(UnexpectedReply { wanted: "a bulk string", got: told(&other) }.into())
            }
        }
    }

    /// Sends a command whose last argument, of `len` bytes, you then write piece by piece. It runs when the last byte
    /// is there, and never if the writer is dropped before.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::Command;
    ///
    /// let chunk = vec![7; 1 << 20];
    /// let mut film = client.stream_argument(Command::new("SET").arg("film"), 512 << 20).await?;
    /// for _ in 0..512 {
    ///     film.write(&chunk).await?;
    /// }
    /// film.finish().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`] if no connection could be made; [`Error::Refused`] as for [`command`](Self::command).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection it used; the command does not run.
    pub async fn stream_argument(&self, command: Command, len: usize) -> Result<ValueWriter, Error> {
        if let Some(refusal) = command.lone_refusal() {
            return Err(refusal.into());
        }
        let limit = self.limit(&command);
        let mut connection = self.pooled().await?;
        connection.set_reusable(false);
        let mut writer = ValueWriter { connection, limit, left: len };
        writer
            .with_wire(async |wire| {
                wire.outbox.push_open(&command, len);
                wire.flush().await
            })
            .await?;
        Ok(writer)
    }
}

/// A reply that arrives piece by piece: [`Client::stream_reply`]. Dropping it before its end closes the connection: over
/// TCP at once, over RDMA when the rest was read in the background, or after 60 s.
#[derive(Debug)]
pub struct ValueReader {
    connection: Dedicated,
    /// For each piece.
    limit: Option<Duration>,
    len: usize,
    /// Bytes not read yet, CRLF included.
    left: usize,
    /// Room for the next chunks.
    chunks: BytesMut,
}

#[expect(clippy::len_without_is_empty, reason = "of the whole value, not of what is left")]
impl ValueReader {
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
        let chunk = self.connection.with_wire(self.limit, async |wire| next_chunk(wire, chunks, most).await);
        let chunk = chunk.await?;
        self.left -= chunk.len();
        Ok(Some(chunk))
    }

    /// Reads the next bytes into `buffer`, at least one if there is room and the end is not reached. After the last,
    /// [`finish`](Self::finish) gives the connection back.
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
        let read = self.connection.with_wire(self.limit, async |wire| read_some(wire, buffer).await).await?;
        self.left -= read;
        Ok(read)
    }

    /// Ends the reading, when [`remaining`](Self::remaining) is 0, so that the connection can serve again; without
    /// it, as with bytes that remain, dropping the reader closes the connection. [`chunk`](Self::chunk) does it by
    /// itself when it returns none.
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

    /// What the connection runs on.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        self.connection.info()
    }

    /// Reads what ends the value, after its last byte.
    async fn end(&mut self) -> Result<(), Error> {
        while self.left > 0 {
            let mut end = [0; CRLF];
            let missing = &mut end[..self.left];
            let read =
                self.connection.with_wire(self.limit, async |wire| read_some(wire, missing).await).await?;
            if missing[..read] != b"\r\n"[CRLF - self.left..][..read] {
                let error = ProtocolError::Unterminated { len: self.len };
                return self.connection.with_wire(None, async |_| Err(LostCause::Protocol(error))).await;
            }
            self.left -= read;
        }
        self.connection.set_reusable(true);
        Ok(())
    }
}

/// An argument that is sent piece by piece: [`Client::stream_argument`]. Dropping it before
/// [`finish`](Self::finish) closes the connection, and the command does not run.
#[derive(Debug)]
pub struct ValueWriter {
    connection: Dedicated,
    /// For each piece.
    limit: Option<Duration>,
    left: usize,
}

impl ValueWriter {
    /// Bytes still to be written.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Writes the next bytes. They are copied once, into the send buffer, unless they lie in a
    /// [`BufferPool`](crate::BufferPool); returns when the last ones have been taken.
    ///
    /// # Errors
    /// [`Error::Refused`] if these are more than announced, and none was written. [`Error::Server`] if the server will
    /// not have the argument, [`Error::Lost`] if the connection ended, [`Error::TimedOut`] if the server did not take
    /// these bytes in as long as a command may take. The command does not run in any of these cases.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the command does not run.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(left) = self.left.checked_sub(bytes.len()) else { return Err(refused(ARGUMENT, TOO_LONG)) };
        self.with_wire(async |wire| wire.socket.write_all(bytes).await.map_err(LostCause::Io)).await?;
        self.left = left;
        Ok(())
    }

    /// Ends the argument and waits for the reply.
    ///
    /// # Errors
    /// [`Error::Refused`] if bytes are missing; the command does not run then. Else as [`Client::command`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The command may or may not run.
    pub async fn finish(mut self) -> Result<Value, Error> {
        if self.left > 0 {
            return Err(refused(ARGUMENT, TOO_SHORT));
        }
        let reply = self
            .with_wire(async |wire| {
                wire.outbox.push_end();
                wire.flush().await?;
                wire.receive().await
            })
            .await?;
        self.connection.set_reusable(true);
        match reply {
            Value::Error(error) => Err(error.into()),
            value => Ok(value),
        }
    }
}

impl ValueWriter {
    /// What the connection runs on.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        self.connection.info()
    }

    /// Lends the connection out. A server that takes no more bytes may have said why.
    async fn with_wire<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Wire) -> Result<T, LostCause>,
    ) -> Result<T, Error> {
        let work = async |wire: &mut Wire| match work(wire).await {
            Ok(done) => Ok(Ok(done)),
            Err(cause) => wire.last_words().map(Err).ok_or(cause),
        };
        Ok(self.connection.with_wire(self.limit, work).await??)
    }
}

async fn header(wire: &mut Wire) -> Result<Header, LostCause> {
    loop {
        match wire.decoder.header().map_err(LostCause::Protocol)? {
            Some(Header::Other(Value::Push(_))) => {}
            Some(header) => {
                wire.owed = match header {
                    Header::String(len) => Owed::Bytes(len + CRLF),
                    Header::Other(_) => Owed::NOTHING,
                };
                return Ok(header);
            }
            None => std::future::poll_fn(|cx| wire.poll_fill(cx)).await?,
        }
    }
}

/// Reads at least one byte: what the decoder has already, else straight from the stream.
async fn read_some(wire: &mut Wire, buffer: &mut [u8]) -> Result<usize, LostCause> {
    let mut read = wire.decoder.take_into(buffer);
    if read == 0 {
        read = match wire.socket.read(buffer).await {
            Ok(0) => return Err(LostCause::PeerClosed),
            Ok(read) => read,
            Err(error) => return Err(LostCause::Io(error)),
        };
    }
    wire.owed.less(read);
    Ok(read)
}

/// The next bytes, at least one: what the decoder has already, else straight from the stream. Chunks share memory, so
/// that small ones keep no more of it alive than there are bytes in them, but for the last.
async fn next_chunk(wire: &mut Wire, chunks: &mut BytesMut, most: usize) -> Result<Bytes, LostCause> {
    let received = wire.decoder.take_some(most.min(CHUNK));
    if !received.is_empty() {
        wire.owed.less(received.len());
        return Ok(received);
    }
    if chunks.capacity() < most.min(MIN_CHUNK) {
        chunks.reserve(most.min(CHUNK));
    }
    match (&mut wire.socket).take(most as u64).read_buf(chunks).await {
        Ok(0) => Err(LostCause::PeerClosed),
        Ok(read) => {
            wire.owed.less(read);
            Ok(chunks.split().freeze())
        }
        Err(error) => Err(LostCause::Io(error)),
    }
}

fn refused(command: &str, reason: &'static str) -> Error {
    RefusedCommand { command: command.to_owned(), reason }.into()
}

const ARGUMENT: &str = "a streamed argument";
const UNREAD: &str = "bytes of it remain to be read";

const TOO_LONG: &str = "it has more bytes than announced";
const TOO_SHORT: &str = "it has fewer bytes than announced";

#[cfg(test)]
mod tests;
