//! One connection: receive commands, run them, send replies.

use std::pin::pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::coop::consume_budget;
use tokio_util::sync::CancellationToken;
use valkey_rdma_resp::{Command, CommandName, Reply, is_http};

use crate::basics::{NOAUTH, is_for_strangers};
use crate::ending::{ConnectionError, Reporter, caught};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::link::Link;
use crate::peer::Peer;

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
            let _ = self.link.close(self.peer.tls().is_some()).await;
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
        self.link.close(self.peer.tls().is_some()).await?;
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
            self.link.put(&reply);
        }
        Ok(Turn::Over)
    }

    /// Runs one command. `None` if the peer left before the reply.
    async fn call(&mut self, command: Command) -> Result<Option<Reply>, ConnectionError> {
        self.link.traffic.command();
        let name = CommandName::new(command.name());
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
            reply = handler.call(peer, session, command) => {
                // With a reply, the client would take back memory that is still in use (spec clause D-3).
                if peer.has_unfinished_transfer() {
                    return Err(ConnectionError::UnfinishedTransfer);
                }
                Ok(Some(reply.unwrap_or_else(|error| error)))
            }
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

#[cfg(test)]
mod tests;
