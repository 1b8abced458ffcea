//! [`Link`]: the stream of a connection, with what was received and what waits to be sent.
//!
//! All idle connections of a thread share two buffers, for input and for replies. A connection borrows them to work, and keeps one only as
//! long as something waits in it. So 10 000 idle connections hold two buffers and not 20 000, and a busy thread works in memory that its
//! processor has in its cache.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::timeout;
use valkey_rdma_resp::{Output, Parser, Protocol, Reply, Room, encode};

use crate::ending::ConnectionError;
use crate::limits::Limits;
use crate::monitor::Traffic;
use crate::push::{End, Inbox, Pusher};

/// The stream of a connection, and its input and output buffers.
pub(crate) struct Link<S> {
    pub(crate) stream: S,
    pub(crate) parser: Parser,
    /// Whether the handler trusts the peer: see [`Handler::trusts`].
    pub(crate) trusted: bool,
    input_limit: usize,
    idle_timeout: Option<Duration>,
    output: Output,
    output_high_water: usize,
    pub(crate) inbox: Inbox,
    push_limit: usize,
    pub(crate) traffic: Traffic,
    /// The protocol of messages.
    pub(crate) protocol: Protocol,
    pub(crate) never_idle: bool,
    unflushed: bool,
    /// The peer has closed its sending side.
    pub(crate) at_end: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    pub(crate) fn new(stream: S, pusher: Pusher, limits: &Limits, traffic: Traffic) -> Self {
        Self {
            stream,
            parser: Parser::new(limits.max_argument_len),
            trusted: false,
            input_limit: limits.input_limit,
            idle_timeout: limits.idle_timeout,
            output: Output::default(),
            output_high_water: limits.output_high_water,
            inbox: Inbox::new(pusher, limits.push_limit),
            push_limit: limits.push_limit,
            traffic,
            protocol: Protocol::Resp2,
            never_idle: false,
            unflushed: false,
            at_end: false,
        }
    }

    /// Sends and receives until some bytes have moved. Lets other tasks run now and then, because a peer may send without a pause, and a
    /// stream over a device counts nothing itself.
    ///
    /// **Cancel safety**: no bytes are lost; they are in `self`.
    async fn exchange(&mut self) -> Result<(), ConnectionError> {
        consume_budget().await;
        poll_fn(|cx| self.poll_exchange(cx)).await?;
        let received = self.parser.pending();
        let limit = if self.trusted { self.input_limit } else { self.input_limit.min(UNTRUSTED_INPUT_LIMIT) };
        if received > limit {
            let unsent = self.output.remaining();
            return Err(ConnectionError::InputLimit { received, limit, unsent });
        }
        Ok(())
    }

    /// Same as [`exchange`](Self::exchange), for at most the idle timeout.
    pub(crate) async fn exchange_in_time(&mut self) -> Result<(), ConnectionError> {
        let Some(limit) = self.idle_timeout.filter(|_| !self.never_idle) else {
            return self.exchange().await;
        };
        timeout(limit, self.exchange()).await.unwrap_or(Err(ConnectionError::Idle { limit }))
    }

    fn poll_exchange(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionError>> {
        self.take_messages()?;
        let before = (self.output.remaining(), self.unflushed);
        if let Poll::Ready(Err(error)) = self.poll_send(cx) {
            return Poll::Ready(Err(error.into()));
        }
        let mut moved = before != (self.output.remaining(), self.unflushed);
        if !self.at_end
            && let Poll::Ready(read) = self.poll_read(cx)
        {
            let len = read?;
            self.traffic.received(len);
            self.at_end = len == 0;
            moved = true;
        }
        let notified = if self.has_room() { self.inbox.poll_ready(cx) } else { self.inbox.poll_end(cx) };
        if moved || notified.is_ready() {
            return Poll::Ready(Ok(()));
        }
        take_back(&mut self.parser, &mut self.output);
        self.traffic.report();
        Poll::Pending
    }

    /// Reads once. 0 is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        lend_input(&mut self.parser);
        match self.parser.room() {
            Room::Buffer(buffer) => pin!(self.stream.read_buf(buffer)).poll(cx),
            Room::Argument(mut argument) => pin!(self.stream.read_buf(&mut argument)).poll(cx),
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.output.remaining() < self.output_high_water
    }

    /// Appends the messages for this connection to its replies, while there is room.
    pub(crate) fn take_messages(&mut self) -> Result<(), ConnectionError> {
        if !self.inbox.is_pending() {
            return Ok(());
        }
        match self.inbox.end() {
            Some(End::Closed) => return Err(ConnectionError::Closed),
            Some(End::TooManyMessages) => {
                return Err(ConnectionError::PushLimit { limit: self.push_limit });
            }
            None => {}
        }
        while self.has_room()
            && let Some(message) = self.inbox.take()
        {
            self.put(&message);
        }
        Ok(())
    }

    /// Appends a reply or a message.
    pub(crate) fn put(&mut self, reply: &Reply) {
        lend_output(&mut self.output);
        encode(reply, self.protocol, &mut self.output);
    }

    /// Sends as much as the stream accepts now.
    pub(crate) async fn send(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|cx| match self.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error.into())),
            _ => Poll::Ready(Ok(())),
        })
        .await
    }

    /// Ready when everything is written and flushed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.output.has_remaining() {
            let mut pieces = [IoSlice::new(&[]); PIECES_AT_ONCE];
            let count = self.output.chunks_vectored(&mut pieces);
            let stream = Pin::new(&mut self.stream);
            let len = match &pieces[..count] {
                [piece] => ready!(stream.poll_write(cx, piece))?,
                pieces => ready!(stream.poll_write_vectored(cx, pieces))?,
            };
            self.output.advance(len);
            self.traffic.sent(len);
            if len == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unflushed = true;
        }
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends and receives until the peer has left.
    ///
    /// **Cancel safety**: same as [`exchange`](Self::exchange).
    pub(crate) async fn read_to_end(&mut self) -> Result<(), ConnectionError> {
        while !self.at_end {
            self.exchange().await?;
        }
        // The command may only be waiting to be scheduled again: let that happen first.
        yield_now().await;
        Ok(())
    }

    /// Sends the last replies. Input is discarded, so that a peer that is blocked in writing gets to read them.
    pub(crate) async fn deliver_output(&mut self) -> Result<(), ConnectionError> {
        while self.output.has_remaining() || self.unflushed {
            self.parser.discard();
            self.exchange_in_time().await?;
        }
        Ok(())
    }

    /// Same as [`close`], of its stream.
    pub(crate) async fn close(&mut self, is_encrypted: bool) -> io::Result<()> {
        close(&mut self.stream, is_encrypted).await
    }

    /// Waits for the peer to close its side too. A TCP socket that is closed with unread input resets the connection, and
    /// a reset may overtake the last replies. (RDMA has no half-close: there the peer's side is closed already.)
    pub(crate) async fn linger(&mut self) {
        let gone = async {
            while !self.at_end {
                self.parser.discard();
                self.exchange().await?;
            }
            Ok::<_, ConnectionError>(())
        };
        // Leaving, failing or taking too long: in each case the connection has ended.
        let _ = timeout(LINGER, gone).await;
    }
}

/// Closes our side of a stream. Over TLS that is a message, which waits while the peer reads nothing: at most [`CLOSE_LIMIT`]. Without,
/// a device has the limit that its settings say.
pub(crate) async fn close<S: AsyncWrite + Unpin>(stream: &mut S, is_encrypted: bool) -> io::Result<()> {
    if !is_encrypted {
        return stream.shutdown().await;
    }
    timeout(CLOSE_LIMIT, stream.shutdown()).await.unwrap_or(Err(io::ErrorKind::TimedOut.into()))
}

thread_local! {
    static INPUT: Cell<BytesMut> = Cell::default();
    static REPLIES: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gives `parser` this thread's buffer, unless it has one.
#[inline]
fn lend_input(parser: &mut Parser) {
    if !parser.has_buffer() {
        parser.set_buffer(INPUT.take());
    }
}

/// Gives `output` this thread's buffer, unless it has one.
#[inline]
fn lend_output(output: &mut Output) {
    if !output.has_buffer() {
        output.set_buffer(REPLIES.take());
    }
}

/// Takes the buffers back in which nothing waits.
#[inline]
fn take_back(parser: &mut Parser, output: &mut Output) {
    if let Some(buffer) = parser.take_buffer() {
        INPUT.set(buffer);
    }
    if let Some(buffer) = output.take_buffer() {
        REPLIES.set(buffer);
    }
}

/// [`Limits::input_limit`] of a peer that is not trusted (valkey `src/networking.c`, `readToQueryBuf`).
pub(crate) const UNTRUSTED_INPUT_LIMIT: usize = 1024 * 1024;

/// Pieces of the output in one write. Most of them are large, so more would hardly save writes.
const PIECES_AT_ONCE: usize = 16;

/// How long our side may take to close with TLS. Longer than the default of devices.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// How long a peer may take to close its side after ours.
const LINGER: Duration = Duration::from_secs(1);
