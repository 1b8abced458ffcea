//! [`RawConnection`]: an exclusively owned RESP connection, before it is handed to a multiplexer.

use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf, empty};
use tokio::runtime::Handle;
use tokio::sync::watch;
use valkey_rdma_resp::{Decoder, RespError, ServerError, Value};
use valkey_rdma_transport::{AnyStream, Monitor};

use super::drain::{Drain, Outstanding, arrived};
use super::registry::Registration;
use super::tcp;
use super::write_buffer::WriteBuffer;
use crate::command::Command;
use crate::command::Reply;
use crate::error::LostCause;
use crate::stats::{ConnectionInfo, Purpose};

/// The most bytes encoded straight into a send buffer. Larger batches contain large arguments, which are better written
/// from where they are.
const MAX_DIRECT: usize = 32 * 1024;
/// What is read into the decoder before and behind a large string: room for a header, and little of the string itself, because it is
/// copied once more from there.
const AROUND: usize = 256;
/// Strings of this length do not fit into one read of the decoder.
const LARGE: usize = 16 * 1024;

/// A stream with a RESP decoder and a write buffer.
pub(crate) struct RawConnection {
    pub(crate) socket: AnyStream,
    pub(crate) decoder: Decoder,
    pub(crate) write_buffer: WriteBuffer,
    pub(crate) info: Arc<ConnectionInfo>,
    /// Reads the transport's counters, where the transport is ours.
    pub(crate) monitor: Option<Monitor>,
    /// What the server still owes, to be drained before a disconnect.
    pub(crate) outstanding: Outstanding,
    /// Its entry in the client's registry, once logged in.
    pub(crate) registration: Option<Registration>,
    pub(crate) runtime: Handle,
    /// True if the last string that was read past the decoder was large. The next one is likely to be, too.
    after_large: bool,
    /// The address, if a [`Locator`](super::Locator) has found it.
    pub(crate) located: Option<Arc<str>>,
    /// Changes when the name that led here has come to mean another server: see `connect/renamed.rs`.
    pub(crate) renamed: Option<watch::Receiver<()>>,
    /// The server's role, by its reply to HELLO.
    pub(crate) role: Option<String>,
    /// True if it lacks a setting of the client's connections: it is for one call only.
    pub(crate) is_provisional: bool,
}

impl RawConnection {
    /// Must run inside a runtime.
    pub(crate) fn new(socket: AnyStream, info: ConnectionInfo, monitor: Option<Monitor>) -> Self {
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
            after_large: false,
            located: None,
            renamed: None,
            role: None,
            is_provisional: false,
        }
    }

    /// True if new commands belong on another connection, to the server that the name means by now.
    pub(crate) fn is_outdated(&self) -> bool {
        self.renamed.as_ref().is_some_and(|renamed| renamed.has_changed().unwrap_or(false))
    }

    /// Changes the purpose shown in the status.
    pub(crate) fn set_purpose(&self, purpose: Purpose) {
        if let Some(registration) = &self.registration {
            registration.set_purpose(purpose);
        }
    }

    /// From now on only one waker is used: that of a task that always has a read pending.
    pub(crate) fn drive_inline(&mut self) {
        self.socket = self.take_socket().driven();
    }

    /// Takes the stream out of a connection that is not used yet, or not any more.
    pub(crate) fn take_socket(&mut self) -> AnyStream {
        mem::replace(&mut self.socket, AnyStream::Other(Box::new(empty())))
    }

    /// Lets go of a stream that has ended, and of its memory. Returns its entry in the client's registry.
    pub(crate) fn abandon(&mut self) -> Option<Registration> {
        self.take_socket().end();
        self.decoder = Decoder::new(self.info.protocol);
        self.outstanding = Outstanding::NOTHING;
        self.monitor = None;
        self.registration.take()
    }

    /// Lets `fill` encode `len` bytes straight into the send buffer of an RDMA stream. Returns `false` if that is not
    /// possible now: then `fill` was not called.
    pub(crate) fn write_directly(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> io::Result<bool> {
        let AnyStream::Device(stream) = &mut self.socket else { return Ok(false) };
        if !stream.is_driven() || len > MAX_DIRECT || !self.write_buffer.is_written() {
            return Ok(false);
        }
        match stream.poll_write_with(cx, len, fill) {
            Poll::Ready(Ok(_)) => {
                self.write_buffer.written_directly(len);
                Ok(true)
            }
            // A short send buffer takes it in parts only.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Ok(false),
        }
    }

    /// Writes everything in the write buffer.
    pub(crate) async fn flush(&mut self) -> Result<(), LostCause> {
        poll_fn(|cx| self.poll_flush(cx)).await.map_err(LostCause::Io)
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_buffer.poll_write_all(cx, &mut self.socket))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    /// Receives the next value, push messages included, and writes the write buffer meanwhile.
    ///
    /// Cancel safe: received bytes are kept.
    pub(crate) async fn receive(&mut self) -> Result<Value, LostCause> {
        poll_fn(|cx| self.poll_receive(cx)).await
    }

    /// The poll form of [`receive`](Self::receive).
    pub(crate) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, LostCause>> {
        let written = self.poll_flush(cx);
        match (self.poll_value(cx), written) {
            // A peer that stopped reading may have sent the reason: that is returned first.
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(LostCause::Io(error))),
            (received, _) => received,
        }
    }

    fn poll_value(&mut self, cx: &mut Context<'_>) -> Poll<Result<Value, LostCause>> {
        loop {
            if let Some(value) = self.decoder.next().map_err(LostCause::Protocol)? {
                return Poll::Ready(Ok(value));
            }
            ready!(self.poll_fill(cx))?;
        }
    }

    /// Reads once into the decoder.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        Poll::Ready(arrived(ready!(pin!(self.socket.read_buf(self.decoder.room())).poll(cx))).map(drop))
    }

    /// Reads once into the decoder, for the header of a string that is then read past it. What is read of a large string is copied
    /// once more, so that is little.
    pub(crate) fn poll_fill_header(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        if !self.after_large {
            return self.poll_fill(cx);
        }
        let mut socket = (&mut self.socket).take(AROUND as u64);
        Poll::Ready(arrived(ready!(pin!(socket.read_buf(self.decoder.room())).poll(cx))).map(drop))
    }

    /// Reads once into `memory`, which is not empty, and over TCP the bytes behind it into the decoder, which is. Returns how many bytes
    /// of `memory` were read, at least one.
    pub(crate) fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        memory: &mut [u8],
    ) -> Poll<Result<usize, LostCause>> {
        let len = memory.len();
        let read = match &mut self.socket {
            AnyStream::Tcp(stream) => {
                let mut behind = [0; AROUND];
                let mut places = [IoSliceMut::new(memory), IoSliceMut::new(&mut behind)];
                let read = ready!(tcp::poll_read_vectored(stream, cx, &mut places));
                read.inspect(|&read| {
                    self.decoder.room().extend_from_slice(&behind[..read.saturating_sub(len)]);
                })
            }
            stream => {
                let mut memory = ReadBuf::new(memory);
                let read = ready!(Pin::new(stream).poll_read(cx, &mut memory));
                read.map(|()| memory.filled().len())
            }
        };
        Poll::Ready(arrived(read).map(|read| read.min(len)))
    }

    /// Notes the length of a string that is read past the decoder.
    pub(crate) fn begin_string(&mut self, len: usize) {
        self.after_large = len >= LARGE;
    }

    /// Lets the reactor of `runtime` wait for the socket from now on, if it is one of the kernel's.
    pub(crate) fn move_to(&mut self, runtime: &Handle) -> io::Result<()> {
        self.socket = self.take_socket().move_to(runtime)?;
        Ok(())
    }

    /// Sends commands together and receives a reply to each. Same errors as [`exchange_into`](Self::exchange_into).
    pub(crate) async fn exchange(&mut self, commands: &[Command]) -> Result<Vec<Reply>, LostCause> {
        let mut replies = Vec::with_capacity(commands.len());
        self.exchange_into(commands, &mut replies).await?;
        Ok(replies)
    }

    /// Sends commands together and receives a reply to each. On failure, `replies` holds those that arrived. Reads
    /// while it writes, because a server may stop reading until its replies are read.
    ///
    /// After a failure or a dropped future, the connection is unusable.
    pub(crate) async fn exchange_into(
        &mut self,
        commands: &[Command],
        replies: &mut Vec<Reply>,
    ) -> Result<(), LostCause> {
        for command in commands {
            self.write_buffer.push(command);
        }
        self.receive_replies(commands.len(), replies).await
    }

    /// Writes the write buffer, and receives replies until there are `count` of them. As [`exchange_into`](Self::exchange_into) otherwise.
    async fn receive_replies(&mut self, count: usize, replies: &mut Vec<Reply>) -> Result<(), LostCause> {
        poll_fn(|cx| {
            let written = self.poll_flush(cx);
            while replies.len() < count {
                match self.poll_value(cx) {
                    Poll::Ready(Ok(Value::Push(_))) => {}
                    Poll::Ready(Ok(value)) => {
                        self.outstanding.one_less();
                        replies.push(match value {
                            Value::Error(error) => Err(error),
                            value => Ok(value),
                        });
                    }
                    // A peer that stopped reading may have sent the reason: that is read first.
                    Poll::Ready(Err(cause)) => return Poll::Ready(Err(cause)),
                    Poll::Pending => match written {
                        Poll::Ready(Err(_)) if matches!(self.fill_last(cx), Poll::Ready(Ok(()))) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(LostCause::Io(error))),
                        _ => return Poll::Pending,
                    },
                }
            }
            // A peer that has answered what it did not read to the end has refused it, and closes the connection.
            if let Poll::Ready(Err(_)) = written {
                self.write_buffer.discard();
            }
            written.map(|_| Ok(()))
        })
        .await
    }

    /// As [`exchange`](Self::exchange), for commands of which some block. A dropped future leaves the replies outstanding that come without
    /// a wait for another client.
    pub(crate) async fn exchange_blocking(&mut self, commands: &[Command]) -> Result<Vec<Reply>, LostCause> {
        for command in commands {
            self.write_buffer.push(command);
        }
        let mut replies = Vec::with_capacity(commands.len());
        for group in commands.split_inclusive(Command::blocks) {
            let owed = group.iter().filter(|command| !command.blocks()).count();
            let behind = commands.len() - replies.len() - owed;
            self.outstanding = Outstanding::UntilBlocked { owed, behind };
            self.receive_replies(replies.len() + group.len(), &mut replies).await?;
        }
        Ok(replies)
    }

    /// Drops the push messages that have arrived: they are for listeners, and this connection has none yet.
    ///
    /// # Errors
    /// [`RespError::Unsolicited`] if a reply has arrived too, or a part of one. Nothing may be outstanding.
    pub(crate) fn expect_no_reply(&mut self) -> Result<(), LostCause> {
        loop {
            match self.decoder.next().map_err(LostCause::Protocol)? {
                Some(Value::Push(_)) => {}
                None if !self.decoder.holds_reply() => return Ok(()),
                Some(_) | None => return Err(LostCause::Protocol(RespError::Unsolicited)),
            }
        }
    }

    /// Drops the push messages that have arrived, and waits for the rest of the last one.
    ///
    /// # Errors
    /// As [`expect_no_reply`](Self::expect_no_reply).
    pub(crate) async fn drain_pushes(&mut self) -> Result<(), LostCause> {
        loop {
            self.expect_no_reply()?;
            if self.decoder.is_empty() {
                return Ok(());
            }
            poll_fn(|cx| self.poll_fill(cx)).await?;
        }
    }

    /// The error that a peer sent before it stopped reading, if any.
    pub(crate) fn read_final_error(&mut self) -> Option<ServerError> {
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(Ok(value)) = self.poll_value(&mut cx) {
            if let Value::Error(error) = value {
                return Some(error);
            }
        }
        None
    }

    /// As [`poll_fill`](Self::poll_fill), for a connection that takes no more bytes: asks the kernel, because the reactor may not know
    /// yet what has arrived.
    pub(crate) fn fill_last(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        Poll::Ready(arrived(ready!(self.socket.poll_read_now(cx, self.decoder.room()))).map(drop))
    }

    /// Why the connection has ended, if this machine knows that.
    pub(crate) fn ended(&mut self) -> Option<LostCause> {
        match self.look(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Err(cause)) => Some(cause),
            // Push messages.
            Poll::Ready(Ok(())) | Poll::Pending => None,
        }
    }

    /// True if the connection can be reused: the peer has neither closed it nor sent anything unexpected.
    pub(crate) fn is_reusable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        self.decoder.is_empty() && self.look(&mut cx).is_pending()
    }

    /// Looks whether bytes or the end of the stream have arrived. What a socket has received stays in the kernel, unless it is encrypted. Of
    /// the streams, only a device keeps the waker.
    pub(crate) fn look(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        match self.socket.peek() {
            Some(peeked) => arrived_now(peeked),
            None => self.fill_last(cx),
        }
    }
}

/// The result of a system call that does not wait: pending if nothing has arrived.
fn arrived_now(read: io::Result<usize>) -> Poll<Result<(), LostCause>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        read => Poll::Ready(arrived(read).map(drop)),
    }
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // A server does not answer half a command.
        let unwritten = self.write_buffer.unwritten_commands();
        let (bytes, replies) = self.outstanding.owed(unwritten);
        let between_replies = replies == 0 && bytes == 0 && self.decoder.is_empty();
        let ends_now = between_replies || self.socket.is_over_tcp();
        let socket = self.take_socket();
        if ends_now {
            return socket.end();
        }
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
