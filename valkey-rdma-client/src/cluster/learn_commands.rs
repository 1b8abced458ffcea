//! Commands that the table does not know: modules, newer servers. A server is asked once for each name.

use std::sync::Arc;

use valkey_rdma_resp::Value;

use super::client::ClusterClient;
use super::commands::Learned;
use super::tries::Target;
use crate::error::{ClusterError, Error};
use crate::multiplexer::Deadline;
use crate::resp::Command;
use crate::sync::lock;

/// The most names kept.
const MOST_NAMES: usize = 4096;

impl ClusterClient {
    /// Routes a command as a server describes it.
    pub(super) async fn execute_unknown(&self, command: Command) -> Result<Value, Error> {
        match self.describe(&command).await? {
            Some(learned) => {
                let description = learned.describe(command.words().nth(1));
                self.execute_described(command, &description).await
            }
            // No server knows it either. One of them says so.
            None => {
                let deadline = self.limit(&command).and_then(Deadline::after);
                self.with_tries(Box::new(command), Target::Any, deadline, None).await
            }
        }
    }

    /// Asks a server what it says of a command, unless one was asked before.
    pub(super) async fn describe(&self, command: &Command) -> Result<Option<Arc<Learned>>, Error> {
        let name = command.name().to_ascii_uppercase();
        if let Some(learned) = lock(&self.core.learned).get(&name) {
            return Ok(learned.clone());
        }
        let ask = Command::from_args(["COMMAND", "INFO", &name]).idempotent();
        let deadline = self.limit(command).and_then(Deadline::after);
        let described = match self.with_tries(Box::new(ask), Target::Any, deadline, None).await {
            Ok(reply) => reply.as_slice().and_then(|entries| Learned::read(entries.first()?)).map(Arc::new),
            // The user may not be allowed to ask.
            Err(Error::Server(_)) => {
                let reason = "its keys are unknown; name the node with ClusterClient::execute_on";
                return Err(ClusterError::NoRoute { command: command.name(), reason }.into());
            }
            Err(error) => return Err(error),
        };
        let mut learned = lock(&self.core.learned);
        if learned.len() < MOST_NAMES {
            learned.insert(name, described.clone());
        }
        Ok(described)
    }
}
