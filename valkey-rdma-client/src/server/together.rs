//! Commands that are sent together, for pipelines and transactions.

use tokio::sync::oneshot;

use super::Server;
use crate::command::{Commands, EncodedPipeline, Reply};
use crate::error::Error;
use crate::link::{Deadline, Replies, ReplySink, Request};

impl Server {
    /// Sends commands together and waits for the last reply. Returns what `replies` keeps.
    pub(crate) async fn run_together(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
    ) -> Result<Vec<Reply>, Error> {
        let limit = commands.limit().or(self.config().command_timeout);
        self.send_together(commands, replies, limit.and_then(Deadline::after)).await
    }

    /// As [`run_together`](Self::run_together), until `deadline`. Nothing is sent if that has passed.
    pub(crate) async fn run_until(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
        deadline: Option<Deadline>,
    ) -> Result<Vec<Reply>, Error> {
        match deadline {
            Some(deadline) if deadline.has_passed() => Err(self.first().late(deadline)),
            _ => self.send_together(commands, replies, deadline).await,
        }
    }

    async fn send_together(
        &self,
        commands: EncodedPipeline,
        replies: Replies,
        deadline: Option<Deadline>,
    ) -> Result<Vec<Reply>, Error> {
        let (sender, answer) = oneshot::channel();
        let multiplexer = self.multiplexer();
        let request = Request::due(Commands::Many(commands), ReplySink::Many(sender, replies), deadline);
        multiplexer.send(request)?;
        let waits = multiplexer.waits();
        let outcome = answer.await;
        waits.answered();
        outcome.unwrap_or_else(|_| Err(multiplexer.unanswered()))
    }
}
