//! Large values: read into the caller's memory, or streamed in and out, on a dedicated connection. If a value is not
//! read to its end, the connection is [drained](crate::link).

mod batch;
mod reader;
mod writer;

use std::time::Duration;

pub use self::batch::Fetched;
pub use self::reader::ValueReader;
pub use self::writer::ValueWriter;
use futures_util::FutureExt;
use valkey_rdma_resp::{Header, UnexpectedReply, Value};

use crate::client::{Client, Deployment};
use crate::command::{CRLF, Command, RefusedCommand};
use crate::dedicated::Dedicated;
use crate::error::{Error, LostCause};
use crate::link::{Deadline, Outstanding, RawConnection};
use crate::server::Server;
use crate::spans::Call;
use crate::stats::Purpose;

impl Client {
    /// Reads a value into the caller's memory: the bytes are copied once, out of the receive window. Returns its
    /// length, or `None` if the key does not exist.
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
    /// Dropping the future closes the connection it used, as for [`ValueReader`]. The content of the buffer is then
    /// undefined.
    pub async fn get_into(&self, key: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        match self.stream_reply(Command::new("GET").arg(key.as_ref())).await? {
            Some(reader) => reader.read_into(buffer).await.map(Some),
            None => Ok(None),
        }
    }

    /// Sends a command whose reply is one string, such as GET, and returns a reader for the string. Returns `None` if
    /// the reply is null. A connection whose value was read to its end is kept for later calls: see the
    /// [rule](Client#connections-beside-the-shared-one).
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
        let call = Call::command(self.endpoint(), &command);
        match &self.deployment {
            Deployment::Server(server) => call.run(server.stream_reply(command)).await,
            Deployment::Cluster(cluster) => call.run(cluster.stream_reply(command).boxed()).await,
        }
    }

    /// Sends a command whose last argument of `len` bytes is written piece by piece. It runs when the last byte has
    /// arrived, and never if the writer is dropped before.
    ///
    /// In a cluster, the node is asked first whether it serves the key (`EXISTS`, if the user may run it), because the bytes are sent only
    /// once: if the slot moves during the transfer, [`ValueWriter::finish`] fails with the server's MOVED, and the command has not run.
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
        let call = Call::command(self.endpoint(), &command);
        let writer = match &self.deployment {
            Deployment::Server(server) => call.begin(server.stream_argument(command, len)).await?,
            Deployment::Cluster(cluster) => call.begin(cluster.stream_argument(command, len).boxed()).await?,
        };
        Ok(writer.within(call))
    }
}

impl Server {
    async fn stream_reply(&self, command: Command) -> Result<Option<ValueReader>, Error> {
        if let Some(refusal) = command.refusal_outside_pipeline() {
            return Err(refusal.into());
        }
        let limit = self.config().limit(&command);
        let deadline = limit.and_then(Deadline::after);
        let (connection, _) = self.checkout_until(Purpose::Dedicated, deadline).await?;
        connection.stream_reply(command, limit).await
    }

    async fn stream_argument(&self, command: Command, len: usize) -> Result<ValueWriter, Error> {
        if let Some(refusal) = command.refusal_outside_pipeline() {
            return Err(refusal.into());
        }
        let limit = self.config().limit(&command);
        let deadline = limit.and_then(Deadline::after);
        let (connection, _) = self.checkout_until(Purpose::Dedicated, deadline).await?;
        connection.stream_argument(command, len, limit).await
    }
}

impl Dedicated {
    /// Does what [`Client::stream_reply`] does, on this connection. `limit` applies to each piece.
    pub(crate) async fn stream_reply(
        mut self,
        command: Command,
        limit: Option<Duration>,
    ) -> Result<Option<ValueReader>, Error> {
        let header = self
            .with_connection(limit, async |raw| {
                raw.write_buffer.push(&command);
                raw.outstanding = Outstanding::Replies(1);
                raw.flush().await?;
                header(raw, 0).await
            })
            .await?;
        match header {
            Header::String(len) => {
                self.set_reusable(false);
                Ok(Some(ValueReader::new(self, limit, len)))
            }
            Header::Other(Value::Nil) => Ok(None),
            Header::Other(Value::Error(error)) => Err(error.into()),
            Header::Other(other) => {
                let unexpected = UnexpectedReply::new("a bulk string", other.describe());
                Err(unexpected.in_reply_to(command.kept_name().to_string()).into())
            }
        }
    }

    /// Does what [`Client::stream_argument`] does, on this connection. `limit` applies to each piece.
    pub(crate) async fn stream_argument(
        mut self,
        command: Command,
        len: usize,
        limit: Option<Duration>,
    ) -> Result<ValueWriter, Error> {
        self.set_reusable(false);
        let mut writer = ValueWriter::new(self, limit, len);
        writer
            .with_connection(async |raw| {
                raw.write_buffer.begin_streamed_argument(&command, len);
                raw.flush().await
            })
            .await?;
        Ok(writer)
    }
}

/// The start of the next reply, after which `then` more are outstanding.
async fn header(raw: &mut RawConnection, then: usize) -> Result<Header, LostCause> {
    loop {
        match raw.decoder.header().map_err(LostCause::Protocol)? {
            Some(Header::Other(Value::Push(_))) => {}
            Some(header) => {
                raw.outstanding = match header {
                    Header::String(len) => {
                        raw.begin_string(len);
                        Outstanding::Bytes { left: len + CRLF, then }
                    }
                    Header::Other(_) => Outstanding::Replies(then),
                };
                return Ok(header);
            }
            None => std::future::poll_fn(|cx| raw.poll_fill_header(cx)).await?,
        }
    }
}

fn refused(command: &str, reason: &'static str) -> Error {
    RefusedCommand { command: command.to_owned(), reason }.into()
}

#[cfg(test)]
mod tests;
