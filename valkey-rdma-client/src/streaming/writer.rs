//! [`ValueWriter`]: an argument sent piece by piece.

use std::mem;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use valkey_rdma_resp::Value;

use super::refused;
use crate::dedicated::Dedicated;
use crate::error::{Error, LostCause};
use crate::link::Outstanding;
use crate::link::RawConnection;
use crate::spans::Call;
use crate::stats::ConnectionInfo;

/// An argument sent piece by piece, from [`Client::stream_argument`](crate::Client::stream_argument). Dropping it
/// before [`finish`](Self::finish) closes the connection, and the command does not run.
#[derive(Debug)]
pub struct ValueWriter {
    connection: Dedicated,
    /// For each piece.
    limit: Option<Duration>,
    left: usize,
    /// What it is a part of.
    call: Call,
}

impl ValueWriter {
    /// Writes the last argument of `len` bytes of a command already begun.
    pub(super) fn new(connection: Dedicated, limit: Option<Duration>, len: usize) -> Self {
        Self { connection, limit, left: len, call: Call::default() }
    }

    /// Goes on with a call that has begun.
    pub(super) fn within(self, call: Call) -> Self {
        Self { call, ..self }
    }

    /// Bytes not written yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Writes the next bytes. They are copied once, into the send buffer, unless they lie in a
    /// [`BufferPool`](crate::BufferPool). Returns when the last byte was accepted.
    ///
    /// # Errors
    /// [`Error::Refused`] if these are more bytes than announced; none was written. [`Error::Server`] if the server
    /// refuses the argument, [`Error::Lost`] if the connection ended, [`Error::TimedOut`] if the server did not take
    /// the bytes within the command timeout. In all cases the command does not run.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection; the command does not run.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let Some(left) = self.left.checked_sub(bytes.len()) else { return Err(refused(ARGUMENT, TOO_LONG)) };
        let wrote =
            self.with_connection(async |raw| raw.socket.write_all(bytes).await.map_err(LostCause::Io));
        wrote.await.inspect_err(|error| self.call.failed(error))?;
        self.left = left;
        Ok(())
    }

    /// Ends the argument and waits for the reply.
    ///
    /// # Errors
    /// [`Error::Refused`] if bytes are missing; the command does not run then. Else as
    /// [`Client::command`](crate::Client::command).
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection. The command may or may not run.
    pub async fn finish(mut self) -> Result<Value, Error> {
        let call = mem::take(&mut self.call);
        call.run(self.end()).await
    }

    async fn end(mut self) -> Result<Value, Error> {
        if self.left > 0 {
            return Err(refused(ARGUMENT, TOO_SHORT));
        }
        let reply = self
            .with_connection(async |raw| {
                raw.write_buffer.end_streamed_argument();
                raw.outstanding = Outstanding::Replies(1);
                raw.flush().await?;
                loop {
                    match raw.receive().await? {
                        Value::Push(_) => {}
                        reply => {
                            raw.outstanding = Outstanding::NOTHING;
                            return Ok(reply);
                        }
                    }
                }
            })
            .await?;
        self.connection.set_reusable(true);
        match reply {
            Value::Error(error) => Err(error.into()),
            value => Ok(value),
        }
    }

    /// Describes the connection.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        self.connection.info()
    }

    /// Runs `work` on the connection. A server that stopped reading may have sent the reason.
    pub(super) async fn with_connection<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut RawConnection) -> Result<T, LostCause>,
    ) -> Result<T, Error> {
        let work = async |raw: &mut RawConnection| match work(raw).await {
            Ok(done) => Ok(Ok(done)),
            Err(cause) => raw.read_final_error().map(Err).ok_or(cause),
        };
        Ok(self.connection.with_connection(self.limit, work).await??)
    }
}

const ARGUMENT: &str = "a streamed argument";
const TOO_LONG: &str = "it has more bytes than announced";
const TOO_SHORT: &str = "it has fewer bytes than announced";
