//! One attempt at a command, which may follow on another server: for a cluster.

use super::Client;
use crate::error::Error;
use crate::multiplexer::{Deadline, Replies, ReplySink, Request, reply_channel};
use crate::resp::{Command, Commands, EncodedPipeline};
use valkey_rdma_resp::Value;

/// Why a command failed on a connection, and the command.
pub(crate) struct FailedAttempt {
    pub(crate) error: Error,
    /// `None` if its time was up, or the runtime shut down.
    pub(crate) command: Option<Box<Command>>,
}

impl Client {
    /// Sends a command, which may wait no longer than until `deadline`. If it fails it comes back, where it still exists,
    /// so that it can be sent to another server.
    pub(crate) async fn attempt(
        &self,
        command: Command,
        deadline: Option<Deadline>,
    ) -> Result<Value, FailedAttempt> {
        let (sender, mut reply) = reply_channel();
        let multiplexer = self.multiplexer();
        let request = Request::due(Commands::One(command), ReplySink::One(sender.want_back()), deadline);
        let queued = match multiplexer.try_send(request) {
            Ok(None) => Ok(()),
            Ok(Some(request)) => multiplexer.send_when_room(request).await,
            Err(error) => Err(error),
        };
        let outcome = match queued {
            Ok(()) => (&mut reply).await.unwrap_or_else(|_| Err(multiplexer.unanswered())),
            Err(error) => {
                // Takes the command back; it is there already.
                drop((&mut reply).await);
                Err(error)
            }
        };
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(FailedAttempt { error: error.into(), command: reply.command }),
            Err(error) => Err(FailedAttempt { error, command: reply.command }),
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
