//! [`ToSlot`]: the way of nearly all commands: the map names a node, the node has a connection, and the reply is the answer.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use valkey_rdma_resp::Value;

use super::client::Cluster;
use super::core::Place;
use super::tries::{Target, Tries};
use crate::command::Command;
use crate::command::table::Access;
use crate::error::Error;
use crate::link::Deadline;
use crate::server::{Attempt, FailedAttempt};

/// A command on its way to the node of its slot. Written by hand, because every command passes here: each `async fn` between
/// a caller and its reply costs as much as finding the slot.
pub(super) struct ToSlot<'a> {
    cluster: &'a Cluster,
    slot: u16,
    access: Access,
    deadline: Option<Deadline>,
    way: Way<'a>,
}

enum Way<'a> {
    /// The connection of its node has taken it.
    Taken(Place, Attempt),
    /// It waits for something, or tries again.
    Longer(Longer<'a>),
}

type Longer<'a> = Pin<Box<dyn Future<Output = Result<Value, Error>> + Send + 'a>>;

impl Cluster {
    /// Sends a command to the node of its slot, now. The future waits for the reply.
    pub(super) fn to_slot(
        &self,
        command: Command,
        slot: u16,
        access: Access,
        limit: Option<Duration>,
    ) -> ToSlot<'_> {
        let deadline = limit.and_then(Deadline::after);
        let target = Target::Slot(slot, access);
        let way = match self.core.place(slot, access) {
            Ok(place) => match place.client.begin(command, deadline) {
                Ok(attempt) => Way::Taken(place, attempt),
                Err(failed) => Way::Longer(Box::pin(self.after_failure(place, failed, target, deadline))),
            },
            Err(node) => {
                let mut tries = Tries::new(&self.core, target, deadline, command.name());
                if let Some(node) = node {
                    tries.begin_with(node);
                }
                Way::Longer(Box::pin(self.go_on(Box::new(command), tries)))
            }
        };
        ToSlot { cluster: self, slot, access, deadline, way }
    }

    /// Sends a command again whose first try has failed, if it may be.
    async fn after_failure(
        &self,
        place: Place,
        failed: FailedAttempt,
        target: Target,
        deadline: Option<Deadline>,
    ) -> Result<Value, Error> {
        match failed {
            FailedAttempt { error, command: Some(command) } => {
                let mut tries = Tries::new(&self.core, target, deadline, command.name());
                tries.failed(&place, error, command.is_idempotent()).await?;
                self.go_on(command, tries).await
            }
            FailedAttempt { error, command: None } => {
                self.core.note_failure(&place, &error);
                Err(error)
            }
        }
    }
}

impl Drop for ToSlot<'_> {
    fn drop(&mut self) {
        if let Way::Taken(place, attempt) = &mut self.way {
            attempt.leave(&place.client);
        }
    }
}

impl Future for ToSlot<'_> {
    type Output = Result<Value, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            let (place, attempt) = match &mut this.way {
                Way::Taken(place, attempt) => (place, attempt),
                Way::Longer(longer) => return longer.as_mut().poll(cx),
            };
            let failed = match ready!(attempt.poll(&place.client, cx)) {
                Ok(value) => return Poll::Ready(Ok(value)),
                Err(failed) => failed,
            };
            let (place, target) = (place.clone(), Target::Slot(this.slot, this.access));
            this.way =
                Way::Longer(Box::pin(this.cluster.after_failure(place, failed, target, this.deadline)));
        }
    }
}
