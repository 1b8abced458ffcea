//! One connection: receive commands, run them, send replies.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use valkey_rdma_resp::{Command, Output, Parser, Protocol, Reply, Room, encode, is_http};

use crate::basics::{NOAUTH, is_for_strangers};
use crate::ending::{ConnectionError, Reporter};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::monitor::Traffic;
use crate::panics::{CommandName, caught};
use crate::peer::Peer;
use crate::push::{End, Inbox, Pusher};
use crate::spare;

/// Drives one connection over any byte stream.
///
/// Each iteration runs every command that has arrived whole and sends all their replies together. Replies that the peer does
/// not read delay further *commands*, never *reading*: see [`Limits::output_high_water`].
pub(crate) struct Connection<'a, S, H: Handler> {
    link: Link<S>,
    handler: Arc<H>,
    session: H::Session,
    peer: Peer,
    reporter: &'a Reporter,
    /// True once it was reported why the connection ends: it does so after the replies that come before.
    failed: bool,
}

impl<'a, S, H> Connection<'a, S, H>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Handler,
{
    pub(crate) fn new(
        stream: S,
        peer: Peer,
        handler: Arc<H>,
        limits: &Limits,
        reporter: &'a Reporter,
    ) -> Self {
        Self {
            link: Link::new(stream, peer.pusher(), limits, reporter.accepted()),
            session: handler.session(&peer),
            handler,
            peer,
            reporter,
            failed: false,
        }
    }

    /// Serves until the peer leaves, `QUIT`s or breaks the protocol, or until `stop`: then the commands that have arrived
    /// whole are still run and answered. Returns when the stream is closed.
    ///
    /// # Errors
    /// Why it has ended, unless that was reported before.
    pub(crate) async fn serve(mut self, stop: CancellationToken) -> Result<(), ConnectionError> {
        let outcome = self.run(stop).await;
        // The first error is the cause; a second one adds nothing.
        if outcome.is_err() {
            let _ = self.link.stream.shutdown().await;
        }
        if self.failed { Ok(()) } else { outcome }
    }

    async fn run(&mut self, stop: CancellationToken) -> Result<(), ConnectionError> {
        let mut stopped = pin!(stop.clone().cancelled_owned());
        let mut stopping = false;
        loop {
            let turn = self.run_commands().await?;
            // At once, so that the wait below is for the peer's bytes only.
            self.link.send().await?;
            let all_run = turn == Turn::AllRun;
            if turn == Turn::Over || (all_run && (stopping || self.link.at_end)) {
                break;
            }
            if !all_run && self.link.has_room() {
                // A stream over a device counts nothing itself: a long pipeline must let other tasks run.
                consume_budget().await;
                continue;
            }
            tokio::select! {
                // In this order, so that a command costs one look at the token.
                biased;
                moved = self.link.exchange_in_time() => moved?,
                () = &mut stopped, if !stopping => {}
            }
            // A peer that sends without a pause does not hide the stop.
            stopping = stopping || stop.is_cancelled();
        }
        // No message follows the last reply.
        self.link.inbox.refuse();
        self.link.deliver_output().await?;
        self.link.stream.shutdown().await?;
        self.link.linger().await;
        Ok(())
    }

    /// Reports why the connection ends. The peer may never read the replies before that.
    fn fail(&mut self, error: &ConnectionError) {
        self.reporter.report(error);
        self.failed = true;
    }

    /// Runs the commands that have arrived whole, while there is room for their replies.
    async fn run_commands(&mut self) -> Result<Turn, ConnectionError> {
        while !self.peer.is_closing() {
            self.link.trusted = self.peer.authenticated && self.handler.trusts(&self.session);
            // Messages sent before the command go out before its reply.
            self.link.take_messages()?;
            if !self.link.has_room() {
                return Ok(Turn::RepliesWait);
            }
            let reply = match self.link.parser.next_command(self.link.trusted) {
                // Like Valkey, without a reply: a browser has nothing to do with one.
                Ok(Some(command)) if is_http(command.name()) => return Err(ConnectionError::HttpRequest),
                Ok(Some(command)) => match self.call(command).await {
                    Ok(Some(reply)) => reply,
                    Ok(None) => return Ok(Turn::Over),
                    Err(error @ ConnectionError::Panic { .. }) => {
                        self.fail(&error);
                        return Ok(Turn::Over);
                    }
                    Err(error) => return Err(error),
                },
                Ok(None) => return Ok(Turn::AllRun),
                Err(error) => {
                    self.peer.close_after_reply();
                    let reply = Reply::error(format!("ERR {error}"));
                    self.fail(&error.into());
                    reply
                }
            };
            self.link.protocol = self.peer.protocol();
            self.link.never_idle = self.peer.is_never_idle();
            spare::lend_output(&mut self.link.output);
            encode(&reply, self.link.protocol, &mut self.link.output);
        }
        Ok(Turn::Over)
    }

    /// Runs one command. `None` if the peer left before the reply.
    async fn call(&mut self, command: Command) -> Result<Option<Reply>, ConnectionError> {
        self.link.traffic.command();
        let name = CommandName::of(&command);
        let panicked = |message| Err(ConnectionError::Panic { place: format!("command {name}"), message });
        caught(pin!(self.answer(command))).await.unwrap_or_else(panicked)
    }

    /// Runs one command. While it waits, the replies before it are sent and input is received.
    async fn answer(&mut self, command: Command) -> Result<Option<Reply>, ConnectionError> {
        let Self { link, handler, session, peer, .. } = self;
        // Not left to the handler: one that answers the basics itself must not let strangers in by mistake.
        if !peer.authenticated && !is_for_strangers(&command) {
            return Ok(Some(NOAUTH));
        }
        if let Some(reply) = handler.basics(peer, session, &command) {
            if command.is("RESET") && !matches!(reply, Reply::Error(_)) {
                handler.reset(peer, session);
            }
            return Ok(Some(reply));
        }
        if !peer.authenticated {
            return Ok(Some(NOAUTH));
        }
        tokio::select! {
            biased;
            reply = handler.call(peer, session, command) => Ok(Some(reply.unwrap_or_else(|error| error))),
            ended = link.read_to_end() => ended.map(|()| None),
        }
    }
}

/// How running commands ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// No complete command is left.
    AllRun,
    /// There is no room for more replies.
    RepliesWait,
    /// No more commands will be run.
    Over,
}

/// The stream, and its input and output buffers.
struct Link<S> {
    stream: S,
    parser: Parser,
    /// Whether the handler trusts the peer: see [`Handler::trusts`].
    trusted: bool,
    input_limit: usize,
    idle_timeout: Option<Duration>,
    output: Output,
    output_high_water: usize,
    inbox: Inbox,
    push_limit: usize,
    traffic: Traffic,
    /// The protocol of messages.
    protocol: Protocol,
    never_idle: bool,
    unflushed: bool,
    /// The peer has closed its sending side.
    at_end: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    fn new(stream: S, pusher: Pusher, limits: &Limits, traffic: Traffic) -> Self {
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
    async fn exchange_in_time(&mut self) -> Result<(), ConnectionError> {
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
        spare::take_back(&mut self.parser, &mut self.output);
        self.traffic.report();
        Poll::Pending
    }

    /// Reads once. 0 is the end of the stream.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        spare::lend_input(&mut self.parser);
        match self.parser.room() {
            Room::Buffer(buffer) => pin!(self.stream.read_buf(buffer)).poll(cx),
            Room::Argument(mut argument) => pin!(self.stream.read_buf(&mut argument)).poll(cx),
        }
    }

    fn has_room(&self) -> bool {
        self.output.remaining() < self.output_high_water
    }

    /// Appends the messages for this connection to its replies, while there is room.
    fn take_messages(&mut self) -> Result<(), ConnectionError> {
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
            spare::lend_output(&mut self.output);
            encode(&message, self.protocol, &mut self.output);
        }
        Ok(())
    }

    /// Sends as much as the stream accepts now.
    async fn send(&mut self) -> Result<(), ConnectionError> {
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
    async fn read_to_end(&mut self) -> Result<(), ConnectionError> {
        while !self.at_end {
            self.exchange().await?;
        }
        // The command may only be waiting to be scheduled again: let that happen first.
        yield_now().await;
        Ok(())
    }

    /// Sends the last replies. Input is discarded, so that a peer that is blocked in writing gets to read them.
    async fn deliver_output(&mut self) -> Result<(), ConnectionError> {
        while self.output.has_remaining() || self.unflushed {
            self.parser.discard();
            self.exchange_in_time().await?;
        }
        Ok(())
    }

    /// Waits for the peer to close its side too. A TCP socket that is closed with unread input resets the connection, and
    /// a reset may overtake the last replies. (RDMA has no half-close: there the peer's side is closed already.)
    async fn linger(&mut self) {
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

/// [`Limits::input_limit`] of a peer that is not trusted (valkey `src/networking.c`, `readToQueryBuf`).
const UNTRUSTED_INPUT_LIMIT: usize = 1024 * 1024;

/// Pieces of the output in one write. Most of them are large, so more would hardly save writes.
const PIECES_AT_ONCE: usize = 16;

/// How long a peer may take to close its side after ours.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
