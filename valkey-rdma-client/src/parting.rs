//! A connection that is given up in the middle of a reply: what is left of the reply is read first, and thrown away.
//!
//! Valkey 8.1.1 dies when a client disconnects while a reply waits for its window (spec/peers.md). So over RDMA a
//! disconnect waits for the end of the reply, in the background and not for ever. Over TCP it does not matter.

use std::mem;
use std::time::Duration;

use tokio::io::{AsyncReadExt, copy, empty, sink};
use tokio::time::timeout;
use tracing::debug;
use valkey_rdma_resp::{Decoder, Header, Value};

use crate::error::LostCause;
use crate::info::Purpose;
use crate::large::CRLF;
use crate::socket::Socket;
use crate::wire::Wire;

/// How long the rest of a reply may take: 512 MiB, the longest string, at 9 MB/s.
pub(crate) const LONGEST_PARTING: Duration = Duration::from_secs(60);

/// What the server has still to send that is worth waiting for, beside a reply that is in the decoder in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owed {
    /// So many replies, once the commands have left. None are due to commands that block.
    Replies(usize),
    /// So many bytes of a string that is read piece by piece, CRLF included.
    Bytes(usize),
}

impl Owed {
    pub(crate) const NOTHING: Self = Self::Replies(0);

    /// Counts a reply as received.
    pub(crate) fn one_less(&mut self) {
        if let Self::Replies(count) = self {
            *count = count.saturating_sub(1);
        }
    }

    /// Counts bytes as read.
    pub(crate) fn less(&mut self, read: usize) {
        if let Self::Bytes(left) = self {
            *left = left.saturating_sub(read);
        }
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let (replies, bytes) = match self.owed {
            Owed::Replies(count) if self.outbox.is_written() => (count, 0),
            // No server answers half a command.
            Owed::Replies(_) => (0, 0),
            Owed::Bytes(left) => (0, left),
        };
        let between_replies = replies == 0 && bytes == 0 && self.decoder.is_empty();
        if between_replies || matches!(self.socket, Socket::Tcp(_)) {
            return;
        }
        let socket = mem::replace(&mut self.socket, Socket::Other(Box::new(empty())));
        let decoder = mem::replace(&mut self.decoder, Decoder::new(self.info.protocol));
        let rest = Rest { socket, decoder, replies, bytes };
        let place = self.place.take();
        if let Some(place) = &place {
            place.set(Purpose::Parting);
        }
        self.runtime.spawn(async move {
            let _place = place;
            match timeout(LONGEST_PARTING, rest.read()).await {
                Ok(Ok(())) => debug!("disconnected after the end of a reply"),
                Ok(Err(cause)) => debug!(%cause, "connection ended before the reply did"),
                Err(_) => debug!("disconnected in the middle of a reply: its rest takes too long"),
            }
        });
    }
}

/// What is left of a connection.
struct Rest {
    socket: Socket,
    decoder: Decoder,
    replies: usize,
    /// Of a string, before them.
    bytes: usize,
}

impl Rest {
    /// Reads until no reply is under way.
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

    /// Throws away so many bytes.
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
