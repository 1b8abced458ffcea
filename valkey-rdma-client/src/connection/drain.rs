//! [`Drain`]: reads outstanding replies before disconnecting.
//!
//! Valkey 8.1.1 crashes if a client disconnects while a reply waits for its receive window (spec/peers.md). So over
//! RDMA a disconnect waits for the end of the reply, in the background and for a limited time. Over TCP this is not
//! needed.

use std::time::Duration;

use tokio::io::{AsyncReadExt, copy, sink};
use tokio::time::timeout;
use tracing::debug;
use valkey_rdma_resp::{Decoder, Header, Value};

use super::io::Socket;
use crate::error::LostCause;
use crate::resp::CRLF;

/// The limit for draining: enough for 512 MiB, the longest string, at 9 MB/s.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection that only drains.
pub(super) struct Drain {
    pub(super) socket: Socket,
    pub(super) decoder: Decoder,
    /// Replies that the server owes.
    pub(super) replies: usize,
    /// Bytes that it owes of a string, before them.
    pub(super) bytes: usize,
}

impl Drain {
    /// Reads what is outstanding and throws it away, then disconnects. Gives up after [`DRAIN_TIMEOUT`].
    pub(super) async fn run(self) {
        match timeout(DRAIN_TIMEOUT, self.read()).await {
            Ok(Ok(())) => debug!("disconnected after the end of a reply"),
            Ok(Err(cause)) => debug!(%cause, "connection ended before the reply did"),
            Err(_) => debug!("disconnected in the middle of a reply: its rest takes too long"),
        }
    }

    async fn read(mut self) -> Result<(), LostCause> {
        self.skip(self.bytes).await?;
        while self.replies > 0 || !self.decoder.is_empty() {
            match self.decoder.header().map_err(LostCause::Protocol)? {
                Some(Header::String(len)) => {
                    self.skip(len + CRLF).await?;
                    self.replies = self.replies.saturating_sub(1);
                }
                Some(Header::Other(Value::Push(_))) => {}
                Some(Header::Other(_)) => self.replies = self.replies.saturating_sub(1),
                None => match self.socket.read_buf(self.decoder.room()).await {
                    Ok(0) => return Err(LostCause::PeerClosed),
                    Ok(_) => {}
                    Err(error) => return Err(LostCause::Io(error)),
                },
            }
        }
        Ok(())
    }

    /// Discards `len` bytes.
    async fn skip(&mut self, len: usize) -> Result<(), LostCause> {
        let left = len - self.decoder.take_some(len).len();
        let skipped = copy(&mut (&mut self.socket).take(left as u64), &mut sink()).await;
        if skipped.map_err(LostCause::Io)? < left as u64 {
            return Err(LostCause::PeerClosed);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
