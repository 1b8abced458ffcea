//! Commands that the table does not know: modules, newer servers. A server is asked once for each name.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use valkey_rdma_resp::Value;

use super::call::Target;
use super::client::Cluster;
use super::core::Core;
use super::learned::Learned;
use super::route::{Routing, no_route, route};
use crate::command::Command;
use crate::command::table::{find, for_each_key};
use crate::error::Error;
use crate::link::Deadline;
use valkey_rdma_transport::sync::lock;

/// The most names kept.
const MOST_NAMES: usize = 4096;

/// What servers say of commands, by name.
#[derive(Default)]
pub(super) struct Described(HashMap<String, Result<Option<Arc<Learned>>, Error>>);

impl Described {
    /// The description of a command; `None` if no server knows it.
    pub(super) fn of(&self, command: &Command) -> Result<Option<&Learned>, Error> {
        match self.0.get(&name_of(command)) {
            Some(Ok(learned)) => Ok(learned.as_deref()),
            Some(Err(error)) => Err(error.clone()),
            None => Ok(None),
        }
    }
}

impl Core {
    /// The first key of a command that a server has described.
    pub(super) fn first_learned_key(&self, command: &Command) -> Option<Bytes> {
        let learned = lock(&self.learned).get(&name_of(command))?.clone()?;
        let mut first = None;
        for_each_key(command, learned.describe(command.words().nth(1)).keys, &mut |_, key| {
            first = Some(Bytes::copy_from_slice(key));
            false
        });
        first
    }
}

impl Cluster {
    /// Finds the nodes that a command concerns. A server is asked about a command that the table does not know, by its name alone.
    /// `None`: no server knows it either.
    ///
    /// # Errors
    /// As [`Routing::of`], and as for any command if a server is asked.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    #[doc(hidden)]
    pub async fn routing(&self, command: &Command) -> Result<Option<Routing>, Error> {
        if let Some(description) = find(command) {
            return Ok(Some(route(command, description)?.into()));
        }
        let deadline = self.core.config.limit(command).and_then(Deadline::after);
        let Some(learned) = self.describe(command, deadline).boxed().await? else { return Ok(None) };
        Ok(Some(route(command, &learned.describe(command.words().nth(1)))?.into()))
    }

    /// Routes a command as a server describes it.
    pub(super) async fn execute_unknown(&self, command: Command) -> Result<Value, Error> {
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        match self.describe(&command, deadline).await? {
            Some(learned) => {
                let description = learned.describe(command.words().nth(1));
                self.execute_described(command, &description).await
            }
            // No server knows it either. One of them says so.
            None => self.core.send_to(Target::Any, Box::new(command), deadline).await,
        }
    }

    /// Asks a server about each of these commands: about all of them at the same time, and once about each name.
    pub(super) async fn describe_all<'a>(
        &self,
        commands: impl Iterator<Item = &'a Command>,
        deadline: Option<Deadline>,
    ) -> Described {
        let mut unknown = HashMap::new();
        for command in commands {
            unknown.entry(name_of(command)).or_insert(command);
        }
        let asked =
            unknown.into_iter().map(async |(name, command)| (name, self.describe(command, deadline).await));
        Described(join_all(asked).await.into_iter().collect())
    }

    /// Asks a server what it says of a command, unless one was asked before.
    pub(super) async fn describe(
        &self,
        command: &Command,
        deadline: Option<Deadline>,
    ) -> Result<Option<Arc<Learned>>, Error> {
        let name = name_of(command);
        if let Some(learned) = lock(&self.core.learned).get(&name) {
            return Ok(learned.clone());
        }
        let ask = Command::from_args(["COMMAND", "INFO", &name]).idempotent();
        let described = match self.core.send_to(Target::Any, Box::new(ask), deadline).await {
            Ok(reply) => reply.as_slice().and_then(|entries| Learned::read(entries.first()?)).map(Arc::new),
            // The user may not be allowed to ask.
            Err(Error::Server(_)) => {
                let reason = "its keys are unknown; name the node with Cluster::command_on";
                return Err(no_route(command, reason).into());
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

/// Names are kept in upper case.
fn name_of(command: &Command) -> String {
    command.name().to_ascii_uppercase()
}
