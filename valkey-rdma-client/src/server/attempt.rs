//! One attempt at a command, which may follow on another server: for a cluster.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Server;
use crate::command::{Command, Commands, EncodedPipeline};
use crate::error::Error;
use crate::link::{Deadline, Replies, ReplyReceiver, ReplySink, Request, reply_channel};
use valkey_rdma_resp::Value;

/// Why a command failed on a connection, and the command.
pub(crate) struct FailedAttempt {
    pub(crate) error: Error,
    /// `None` if its time was up, or the runtime shut down.
    pub(crate) command: Option<Box<Command>>,
}

/// An attempt whose command a connection has taken.
pub(crate) struct Attempt {
    reply: ReplyReceiver,
    /// Its number among the client's.
    connection: usize,
}

impl Server {
    /// Sends a command, which may wait no longer than until `deadline`. If it fails it comes back, where it still exists,
    /// so that it can be sent to another server.
    pub(crate) async fn attempt(
        &self,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, FailedAttempt> {
        let mut attempt = self.begin(command, deadline)?;
        let waits = self.inner.multiplexers[attempt.connection].waits();
        let outcome = poll_fn(|cx| attempt.poll(self, cx)).await;
        waits.answered();
        outcome
    }

    /// As [`attempt`](Self::attempt), up to where it waits.
    #[inline]
    pub(crate) fn begin(
        &self,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Attempt, FailedAttempt> {
        let (sender, reply) = reply_channel();
        let connection = self.connection_in_turn();
        let request = Request::due(Commands::One(command), ReplySink::One(sender.want_back()), deadline);
        let mut attempt = Attempt { reply, connection };
        match self.inner.multiplexers[connection].send(request) {
            Ok(()) => Ok(attempt),
            Err(error) => Err(FailedAttempt { error, command: attempt.reply.take_back() }),
        }
    }

    /// Sends a command right behind ASKING, as the reply ASK demands.
    pub(crate) async fn attempt_asking(
        &self,
        command: &Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        let commands: EncodedPipeline = [&Command::new("ASKING"), command].into_iter().collect();
        let replies = Replies::Kept(Vec::with_capacity(2));
        let mut replies = self.run_until(commands, replies, deadline).await?;
        // A server that refuses ASKING refuses the command too.
        Ok(replies.pop().unwrap_or(Ok(Value::Nil))?)
    }
}

impl Attempt {
    /// The caller goes away, unless it has the outcome. `client` is the one that began it.
    pub(crate) fn leave(&mut self, client: &Server) {
        if self.reply.abandon() {
            client.inner.multiplexers[self.connection].leave();
        }
    }

    /// Ready with the outcome, once. `client` is the one that began it.
    pub(crate) fn poll(
        &mut self,
        client: &Server,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Value, FailedAttempt>> {
        let error = match ready!(Pin::new(&mut self.reply).poll(cx)) {
            Ok(Ok(Ok(value))) => return Poll::Ready(Ok(value)),
            Ok(Ok(Err(error))) => error.into(),
            Ok(Err(error)) => error,
            Err(_) => client.inner.multiplexers[self.connection].unanswered(),
        };
        Poll::Ready(Err(FailedAttempt { error, command: self.reply.command.take() }))
    }
}
