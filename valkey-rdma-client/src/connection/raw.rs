//! [`RawConnection`]: one connection with one owner, before it is shared, or because it never is.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncReadExt, AsyncWrite, empty};
use tokio::runtime::Handle;
use valkey_rdma_resp::{Decoder, ServerError, Value};
use valkey_rdma_transport::Monitor;

use super::drain::Drain;
use super::io::Socket;
use super::registry::Registration;
use super::write_buffer::WriteBuffer;
use crate::error::LostCause;
use crate::resp::Command;
use crate::resp::Reply;
use crate::stats::{ConnectionInfo, Purpose};

/// A stream with the RESP on it.
pub(crate) struct RawConnection {
    pub(crate) socket: Socket,
    pub(crate) decoder: Decoder,
    pub(crate) write_buffer: WriteBuffer,
    pub(crate) info: Arc<ConnectionInfo>,
    /// Looks at the transport's counters, where the transport is ours.
    pub(crate) monitor: Option<Monitor>,
    /// What a [parting](crate::connection::drain) has to read first.
    pub(crate) outstanding: Outstanding,
    /// On its client's list, once it is logged in.
    pub(crate) registration: Option<Registration>,
    pub(crate) runtime: Handle,
}

impl RawConnection {
    /// Must run inside a runtime.
    pub(crate) fn new(socket: Socket, info: ConnectionInfo, monitor: Option<Monitor>) -> Self {
        let decoder = Decoder::new(info.protocol);
        Self {
            socket,
            decoder,
            write_buffer: WriteBuffer::new(),
            info: Arc::new(info),
            monitor,
            outstanding: Outstanding::NOTHING,
            registration: None,
            runtime: Handle::current(),
        }
    }

    /// Says what it is for from now on.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Some(registration) = &self.registration {
            registration.set_purpose(purpose);
        }
    }

    /// From now on it is used with one waker only, that of a task that always has a read pending.
    pub(crate) fn drive_inline(&mut self) {
        let socket = mem::replace(&mut self.socket, Socket::Other(Box::new(empty())));
        self.socket = socket.driven();
    }

    /// Writes all that is in the write_buffer.
    pub(crate) async fn flush(&mut self) -> Result<(), LostCause> {
        poll_fn(|cx| self.poll_flush(cx)).await.map_err(LostCause::Io)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_buffer.poll_write_all(cx, &mut self.socket))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// The next value, push messages included. What is in the write_buffer leaves meanwhile.
    ///
    /// Cancel safe: what was received so far stays.
    pub(crate) async fn receive(&mut self) -> Result<Value, LostCause> {
        poll_fn(|cx| {
            let written = self.poll_flush(cx);
            match (self.poll_receive(cx), written) {
                // A peer that reads no more may have said why: that comes first.
                (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(LostCause::Io(error))),
                (received, _) => received,
            }
        })
        .await
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, LostCause>> {
        loop {
            if let Some(value) = self.decoder.next().map_err(LostCause::Protocol)? {
                return Poll::Ready(Ok(value));
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// Reads once into the decoder.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        Poll::Ready(match ready!(pin!(self.socket.read_buf(self.decoder.room())).poll(cx)) {
            Ok(0) => Err(LostCause::PeerClosed),
            Ok(_) => Ok(()),
            Err(error) => Err(LostCause::Io(error)),
        })
    }

    /// Sends commands together and receives a reply to each. As [`exchange_into`](Self::exchange_into).
    pub(crate) async fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Reply>, LostCause> {
        let mut replies = Vec::with_capacity(commands.len());
        self.exchange_into(commands, &mut replies).await?;
        Ok(replies)
    }

    /// Sends commands together and receives a reply to each; in `replies` are those that came, even if not all did.
    /// Reads while it writes, as a server may want.
    ///
    /// A failure and a dropped future alike leave the connection useless.
    pub(crate) async fn exchange_into(
        &mut self,
        commands: &[Command],
        replies: &mut Vec<Reply>,
    ) -> Result<(), LostCause> {
        for command in commands {
            self.write_buffer.push(command);
        }
        poll_fn(|cx| {
            let written = self.poll_flush(cx);
            while replies.len() < commands.len() {
                match self.poll_receive(cx) {
                    Poll::Ready(Ok(Value::Push(_))) => {}
                    Poll::Ready(Ok(value)) => {
                        self.outstanding.one_less();
                        replies.push(match value {
                            Value::Error(error) => Err(error),
                            value => Ok(value),
                        });
                    }
                    // A peer that reads no more may have said why: that is read first.
                    Poll::Ready(Err(cause)) => return Poll::Ready(Err(cause)),
                    Poll::Pending => {
                        return match written {
                            Poll::Ready(Err(error)) => Poll::Ready(Err(LostCause::Io(error))),
                            _ => Poll::Pending,
                        };
                    }
                }
            }
            written.map_err(LostCause::Io)
        })
        .await
    }

    /// What a peer that takes no more bytes has said about it, if anything.
    pub(crate) fn read_final_error(&mut self) -> Option<ServerError> {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(value)) = self.poll_receive(&mut cx) {
            if let Value::Error(error) = value {
                return Some(error);
            }
        }
        None
    }

    /// Whether the connection can still be used: the peer has neither closed it nor said anything unasked.
    pub(crate) fn is_reusable(&mut self) -> bool {
        self.decoder.is_empty() && self.poll_fill(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

/// What the server has still to send that is worth waiting for, beside a reply that is in the decoder in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outstanding {
    /// So many replies, once the commands have left. None are due to commands that block.
    Replies(usize),
    /// So many bytes of a string that is read piece by piece, CRLF included.
    Bytes(usize),
}

impl Outstanding {
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

impl Drop for RawConnection {
    fn drop(&mut self) {
        let (replies, bytes) = match self.outstanding {
            Outstanding::Replies(count) if self.write_buffer.is_written() => (count, 0),
            // No server answers half a command.
            Outstanding::Replies(_) => (0, 0),
            Outstanding::Bytes(left) => (0, left),
        };
        let between_replies = replies == 0 && bytes == 0 && self.decoder.is_empty();
        if between_replies || matches!(self.socket, Socket::Tcp(_)) {
            return;
        }
        let socket = mem::replace(&mut self.socket, Socket::Other(Box::new(empty())));
        let decoder = mem::replace(&mut self.decoder, Decoder::new(self.info.protocol));
        let registration = self.registration.take();
        if let Some(registration) = &registration {
            registration.set_purpose(Purpose::Draining);
        }
        let drain = Drain { socket, decoder, replies, bytes };
        self.runtime.spawn(async move {
            let _registration = registration;
            drain.run().await;
        });
    }
}

impl std::fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawConnection").field("info", &self.info).finish_non_exhaustive()
    }
}
