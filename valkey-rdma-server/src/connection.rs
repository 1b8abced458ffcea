//! One connection: read, run, answer, until one side has had enough.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tracing::debug;

use crate::command::Command;
use crate::config::Config;
use crate::encode::encode;
use crate::handler::{Handler, Peer};
use crate::output::Output;
use crate::parser::Parser;
use crate::reply::Reply;
use crate::shutdown::Stop;

/// Drives one connection over any byte stream.
///
/// Each turn of the loop runs every command that has arrived whole and sends all their replies together. Replies that
/// the peer does not take hold up further *commands*, never *reading*: see
/// [`Config::output_high_water`].
pub(crate) struct Connection<S, H: Handler> {
    link: Link<S>,
    parser: Parser,
    handler: Arc<H>,
    session: H::Session,
    peer: Peer,
    input_limit: usize,
    output_high_water: usize,
    /// The peer will send nothing more.
    at_end: bool,
}

/// Why a connection ended before its time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    /// The peer sent more than it may without reading replies, or one command that is too large.
    #[error(
        "{received} bytes received and not yet run, limit {limit}, with {unsent} bytes of replies not taken"
    )]
    InputLimit { received: usize, limit: usize, unsent: usize },
    /// The stream failed; usually the peer is gone.
    #[error(transparent)]
    Stream(#[from] io::Error),
}

impl<S, H> Connection<S, H>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Handler,
{
    pub(crate) fn new(stream: S, peer: Peer, handler: Arc<H>, config: &Config) -> Self {
        Self {
            link: Link { stream, output: Output::default(), unflushed: false },
            parser: Parser::new(config),
            session: handler.session(&peer),
            handler,
            peer,
            input_limit: config.input_limit,
            output_high_water: config.output_high_water,
            at_end: false,
        }
    }

    /// Serves until the peer leaves, `QUIT`s or breaks the protocol, or until the server is to stop: then
    /// what has arrived whole is still run and answered.
    pub(crate) async fn serve(mut self, mut stop: Stop) -> Result<(), ConnectionError> {
        let mut stop = pin!(async move { stop.requested().await });
        let mut stopping = false;
        loop {
            let all_run = self.run_commands().await?;
            if self.peer.is_closing() || (all_run && (stopping || self.at_end)) {
                break;
            }
            tokio::select! {
                () = &mut stop, if !stopping => stopping = true,
                moved = self.exchange() => moved?,
            }
        }
        self.deliver_replies().await?;
        self.link.stream.shutdown().await?;
        if self.peer.is_closing() {
            self.linger().await;
        }
        Ok(())
    }

    /// Runs commands until no complete one is left (`true`) or enough replies wait to be sent (`false`).
    async fn run_commands(&mut self) -> Result<bool, ConnectionError> {
        while self.link.output.remaining() < self.output_high_water && !self.peer.is_closing() {
            let reply = match self.parser.next_command() {
                Ok(Some(command)) => self.call(command).await?,
                Ok(None) => return Ok(true),
                Err(error) => {
                    debug!(%error, "closing");
                    self.peer.close_after_reply();
                    Reply::error(format!("ERR {error}"))
                }
            };
            encode(&reply, self.peer.protocol(), &mut self.link.output);
        }
        Ok(false)
    }

    /// Runs one command. Should it have to wait, the replies before it go out meanwhile.
    async fn call(&mut self, command: Command) -> io::Result<Reply> {
        let Self { handler, peer, session, link, .. } = self;
        let mut call = pin!(handler.call(peer, session, command));
        poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(reply) => Poll::Ready(Ok(reply)),
            Poll::Pending => match link.poll_send(cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
        })
        .await
    }

    /// Sends and receives until some bytes have moved.
    ///
    /// **Cancel safety**: bytes moved are accounted for in `self`; nothing is lost.
    async fn exchange(&mut self) -> Result<(), ConnectionError> {
        poll_fn(|cx| {
            let before = (self.link.output.remaining(), self.link.unflushed);
            if let Poll::Ready(Err(error)) = self.link.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            let mut moved = before != (self.link.output.remaining(), self.link.unflushed);
            if !self.at_end
                && let Poll::Ready(read) = self.parser.poll_read(&mut self.link.stream, cx)
            {
                match read {
                    Ok(len) => self.at_end = len == 0,
                    Err(error) => return Poll::Ready(Err(error)),
                }
                moved = true;
            }
            if moved { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await?;
        let received = self.parser.pending();
        if received > self.input_limit {
            let unsent = self.link.output.remaining();
            return Err(ConnectionError::InputLimit { received, limit: self.input_limit, unsent });
        }
        Ok(())
    }

    /// Sends the last replies. What the peer still sends is thrown away, so that a peer that is
    /// blocked in writing comes to read them.
    async fn deliver_replies(&mut self) -> Result<(), ConnectionError> {
        while self.link.has_unsent() && !self.at_end {
            self.parser.discard();
            self.exchange().await?;
        }
        Ok(poll_fn(|cx| self.link.poll_send(cx)).await?)
    }

    /// Waits for the peer to close its side too. A TCP socket that is closed with unread input resets the connection, and
    /// a reset may overtake the reply to `QUIT` or the error that says what went wrong.
    async fn linger(&mut self) {
        let gone = async {
            while !self.at_end {
                self.parser.discard();
                self.exchange().await?;
            }
            Ok::<_, ConnectionError>(())
        };
        // Whether it leaves, fails or takes too long: this connection is over.
        let _ = tokio::time::timeout(LINGER, gone).await;
    }
}

/// The stream and what waits to be written to it.
struct Link<S> {
    stream: S,
    output: Output,
    unflushed: bool,
}

impl<S: AsyncWrite + Unpin> Link<S> {
    fn has_unsent(&self) -> bool {
        self.output.has_remaining() || self.unflushed
    }

    /// Ready when everything is written and flushed.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.output.has_remaining() {
            let len = ready!(pin!(self.stream.write_buf(&mut self.output)).poll(cx))?;
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
}

/// How long a peer that was told to go may take.
const LINGER: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
