//! [`Outstanding`]: what a server still owes. [`Drain`]: reads that before disconnecting.
//!
//! Valkey 8.1.1 crashes if a client disconnects while a reply waits for its receive window (spec/peers.md). So over
//! RDMA a disconnect waits for the end of the reply, in the background and for a limited time. Over TCP this is not
//! needed.

use std::io;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use tracing::debug;
use valkey_rdma_resp::{Decoder, Header, Value};

use crate::command::CRLF;
use crate::error::LostCause;
use valkey_rdma_transport::AnyStream;

/// The limit for a server that sends nothing.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// The limit in all: enough for 512 MiB, the longest string, at 1 MB/s.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(600);

/// What is read and thrown away at once.
const SCRATCH: usize = 64 << 10;

/// What the server still owes, apart from a reply that is partly in the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    /// This many replies, apart from those to commands that are not written.
    Replies(usize),
    /// `owed` replies, apart from those to commands that are not written. The next command blocks: it owes none, and those after it wait
    /// for it. `behind` counts all of these.
    UntilBlocked { owed: usize, behind: usize },
    /// This many bytes of a string that is read piece by piece, CRLF included, then this many replies.
    Bytes { left: usize, then: usize },
}

impl Outstanding {
    pub(crate) const NOTHING: Self = Self::Replies(0);

    /// Counts a reply as received.
    pub(crate) fn one_less(&mut self) {
        if let Self::Replies(owed) | Self::UntilBlocked { owed, .. } = self {
            *owed = owed.saturating_sub(1);
        }
    }

    /// Counts bytes as read.
    pub(crate) fn less(&mut self, read: usize) {
        if let Self::Bytes { left, .. } = self {
            *left = left.saturating_sub(read);
        }
    }

    /// The bytes that the server owes, and the replies behind them, if this number of the latest commands were not written.
    pub(super) fn owed(self, unwritten: usize) -> (usize, usize) {
        match self {
            Self::Replies(count) => (0, count.saturating_sub(unwritten)),
            Self::UntilBlocked { owed, behind } => (0, owed.min((owed + behind).saturating_sub(unwritten))),
            Self::Bytes { left, then } => (left, then),
        }
    }
}

/// A connection that only drains.
pub(super) struct Drain {
    pub(super) socket: AnyStream,
    pub(super) decoder: Decoder,
    /// Replies that the server owes.
    pub(super) replies: usize,
    /// Bytes that it owes of a string, before them.
    pub(super) bytes: usize,
}

impl Drain {
    /// Reads what is outstanding and throws it away, then disconnects. Gives up after [`SILENCE`] and
    /// after [`DRAIN_TIMEOUT`].
    pub(super) async fn run(mut self) {
        match timeout(DRAIN_TIMEOUT, self.read()).await {
            Ok(Ok(())) => debug!("disconnected after the end of a reply"),
            Ok(Err(cause)) => debug!(%cause, "connection ended before the reply did"),
            Err(_) => debug!("disconnected in the middle of a reply: its rest takes too long"),
        }
        self.socket.end();
    }

    async fn read(&mut self) -> Result<(), LostCause> {
        self.skip(self.bytes).await?;
        while self.replies > 0 || !self.decoder.is_empty() {
            match self.decoder.header().map_err(LostCause::Protocol)? {
                Some(Header::String(len)) => {
                    self.skip(len + CRLF).await?;
                    self.replies = self.replies.saturating_sub(1);
                }
                Some(Header::Other(Value::Push(_))) => {}
                Some(Header::Other(_)) => self.replies = self.replies.saturating_sub(1),
                None => in_time(self.socket.read_buf(self.decoder.room())).await.map(drop)?,
            }
        }
        Ok(())
    }

    /// Discards `len` bytes.
    async fn skip(&mut self, len: usize) -> Result<(), LostCause> {
        let mut left = len - self.decoder.take_some(len).len();
        let mut scratch = vec![0; left.min(SCRATCH)];
        while left > 0 {
            let room = left.min(SCRATCH);
            left -= in_time(self.socket.read(&mut scratch[..room])).await?;
        }
        Ok(())
    }
}

/// Waits for bytes, but not for a silent server.
async fn in_time(read: impl Future<Output = io::Result<usize>>) -> Result<usize, LostCause> {
    arrived(timeout(SILENCE, read).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())))
}

/// What a read returns, of which 0 is the end of the stream.
pub(super) fn arrived(read: io::Result<usize>) -> Result<usize, LostCause> {
    match read {
        Ok(0) => Err(LostCause::PeerClosed),
        Ok(read) => Ok(read),
        Err(error) => Err(LostCause::Io(error)),
    }
}

#[cfg(test)]
mod tests;
