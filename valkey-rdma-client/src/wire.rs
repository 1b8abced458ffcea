//! [`Wire`]: one connection with one owner, before it is shared, or because it never is.

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

use crate::command::Command;
use crate::error::LostCause;
use crate::info::{ConnectionInfo, Purpose};
use crate::outbox::Outbox;
use crate::parting::Owed;
use crate::request::Reply;
use crate::roll::Place;
use crate::socket::Socket;

/// A stream with the RESP on it.
pub(crate) struct Wire {
    pub(crate) socket: Socket,
    pub(crate) decoder: Decoder,
    pub(crate) outbox: Outbox,
    pub(crate) info: Arc<ConnectionInfo>,
    /// Looks at the transport's counters, where the transport is ours.
    pub(crate) monitor: Option<Monitor>,
    /// What a [parting](crate::parting) has to read first.
    pub(crate) owed: Owed,
    /// On its client's list, once it is logged in.
    pub(crate) place: Option<Place>,
    pub(crate) runtime: Handle,
}

impl Wire {
    /// Must run inside a runtime.
    pub(crate) fn new(socket: Socket, info: ConnectionInfo, monitor: Option<Monitor>) -> Self {
        let decoder = Decoder::new(info.protocol);
        Self {
            socket,
            decoder,
            outbox: Outbox::new(),
            info: Arc::new(info),
            monitor,
            owed: Owed::NOTHING,
            place: None,
            runtime: Handle::current(),
        }
    }

    /// Says what it is for from now on.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Some(place) = &self.place {
            place.set(purpose);
        }
    }

    /// From now on it is used with one waker only, that of a task that always has a read pending.
    pub(crate) fn set_driven(&mut self) {
        let socket = mem::replace(&mut self.socket, Socket::Other(Box::new(empty())));
        self.socket = socket.driven();
    }

    /// Writes all that is in the outbox.
    pub(crate) async fn flush(&mut self) -> Result<(), LostCause> {
        poll_fn(|cx| self.poll_flush(cx)).await.map_err(LostCause::Io)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.outbox.poll_write_all(cx, &mut self.socket))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// The next value, push messages included. What is in the outbox leaves meanwhile.
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
            self.outbox.push(command);
        }
        poll_fn(|cx| {
            let written = self.poll_flush(cx);
            while replies.len() < commands.len() {
                match self.poll_receive(cx) {
                    Poll::Ready(Ok(Value::Push(_))) => {}
                    Poll::Ready(Ok(value)) => {
                        self.owed.one_less();
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
    pub(crate) fn last_words(&mut self) -> Option<ServerError> {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(value)) = self.poll_receive(&mut cx) {
            if let Value::Error(error) = value {
                return Some(error);
            }
        }
        None
    }

    /// Whether the connection can still be used: the peer has neither closed it nor said anything unasked.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.decoder.is_empty() && self.poll_fill(&mut Context::from_waker(Waker::noop())).is_pending()
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("info", &self.info).finish_non_exhaustive()
    }
}
