//! The way of nearly all commands: the map names a node, the node has a connection, and the reply is the answer.

use std::time::Duration;

use valkey_rdma_resp::Value;

use super::client::Cluster;
use super::core::Place;
use super::tries::{Target, Tries};
use crate::command::table::Access;
use crate::command::{Command, Commands};
use crate::error::Error;
use crate::link::{Deadline, Failed};

impl Cluster {
    /// Sends a command to the node of its slot.
    pub(super) async fn to_slot(
        &self,
        command: Command,
        slot: u16,
        access: Access,
        limit: Option<Duration>,
    ) -> Result<Value, Error> {
        let deadline = limit.and_then(Deadline::after);
        let target = Target::Slot(slot, access);
        match self.core.place(slot, access) {
            Ok(place) => match place.client.send(Commands::One(command), deadline).await.last() {
                Ok(value) => Ok(value),
                Err(failed) => Box::pin(self.after_failure(place, failed, target, deadline)).await,
            },
            Err(node) => {
                let mut tries = Tries::new(&self.core, target, deadline, command.name());
                if let Some(node) = node {
                    tries.begin_with(node);
                }
                Box::pin(self.go_on(Box::new(command), tries)).await
            }
        }
    }

    /// Sends a command again whose first try has failed, if it may be.
    async fn after_failure(
        &self,
        place: Place,
        failed: Failed,
        target: Target,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        let Failed { error, command, .. } = failed;
        let Some(command) = command else {
            self.core.note_failure(&place, &error);
            return Err(error);
        };
        let mut tries = Tries::new(&self.core, target, deadline, command.name());
        tries.failed(&place, error, command.is_idempotent()).await?;
        self.go_on(command, tries).await
    }
}
