//! One command to several nodes at once.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::stream::{FuturesUnordered, StreamExt};
use valkey_rdma_resp::Value;

use super::aggregate::join;
use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::node::Node;
use super::route::{Route, slot_of};
use super::slots_reply::SLOTS;
use crate::command::table::{Access, Response, find};
use crate::command::{Command, IntoCommand};
use crate::error::{ClusterError, Error};
use crate::link::Deadline;

/// What a [`Route`] names.
pub(super) enum Targets {
    One(Target),
    Several(Vec<Target>),
}

impl Cluster {
    /// Sends a command to the nodes that `route` names, whatever its keys say. Replies of several nodes are joined as for
    /// commands [without keys](crate::cluster#commands-without-keys).
    ///
    /// ```no_run
    /// # async fn example(cluster: valkey_rdma_client::cluster::Cluster) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cluster::{NodeAddress, Route};
    ///
    /// let node = Route::Node(NodeAddress::new("10.0.0.1", 6379));
    /// cluster.command_on(node, ["BGSAVE"]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Same errors as [`Client::command`](crate::Client::command); [`ClusterError::UnknownNode`] if the cluster has no such node.
    ///
    /// # Cancel safety
    /// Same as [`Client::command`](crate::Client::command).
    pub async fn command_on(&self, route: Route, command: impl IntoCommand) -> Result<Value, Error> {
        let mut command = command.into_command();
        if let Some(refusal) = command.shared_refusal() {
            return Err(refusal.into());
        }
        let description = find(&command);
        let response = description.map_or(Response::Default, |description| description.response);
        if description.is_some_and(|description| description.access == Access::Read) {
            command.set_idempotent();
        }
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        match self.targets(route)? {
            Targets::One(target) => self.core.send_to(target, Box::new(command), deadline).await,
            Targets::Several(targets) => self.fan_out(command, targets, response).await,
        }
    }

    /// Finds what a route names.
    pub(super) fn targets(&self, route: Route) -> Result<Targets, ClusterError> {
        Ok(match route {
            Route::Key(key) => Targets::One(Target::Slot(slot_of(&key), Access::Write)),
            Route::Slot(slot) if usize::from(slot) >= SLOTS => return Err(ClusterError::NoSuchSlot { slot }),
            Route::Slot(slot) => Targets::One(Target::Slot(slot, Access::Write)),
            Route::Any => Targets::One(Target::Any),
            Route::Node(address) => match self.core.topology.find(&address) {
                Some(node) => Targets::One(Target::Node(node)),
                None => return Err(ClusterError::UnknownNode { address: address.to_string() }),
            },
            Route::AllPrimaries => Targets::Several(self.all_primaries()),
            Route::AllNodes => Targets::Several(self.all_nodes()),
        })
    }

    /// Each primary, or its successor if it fails.
    pub(super) fn all_primaries(&self) -> Vec<Target> {
        let primaries = self.core.topology.map().primaries().into_iter();
        let target = |(node, slot): (Arc<Node>, Option<u16>)| match slot {
            Some(slot) => Target::Primary(node, slot),
            None => Target::Node(node),
        };
        primaries.map(target).collect()
    }

    pub(super) fn all_nodes(&self) -> Vec<Target> {
        self.core.topology.map().nodes().into_iter().map(Target::Node).collect()
    }

    /// Sends a command to nodes at once, and joins the replies. Each node has the command's time limit to itself.
    pub(super) async fn fan_out(
        &self,
        command: Command,
        targets: Vec<Target>,
        response: Response,
    ) -> Result<Value, Error> {
        if targets.is_empty() {
            return Err(ClusterError::NoPrimaries.into());
        }
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        let mut sent: FuturesUnordered<_> = (0..)
            .zip(targets)
            .map(|(at, target)| {
                let command = Box::new(command.clone());
                async move {
                    let call = ClusterCall::of(&self.core, &command, target, deadline);
                    (at, call.answer(command).await)
                }
            })
            .collect();
        let mut replies = Vec::with_capacity(sent.len());
        while let Some((at, answered)) = sent.next().await {
            // The others may have to wait for a node that is gone.
            if response == Response::OneSucceeded
                && let Ok((_, reply)) = answered
            {
                return Ok(reply);
            }
            replies.push((at, answered));
        }
        replies.sort_unstable_by_key(|(at, _): &(usize, _)| *at);
        let mut seen = HashSet::new();
        let named = replies.into_iter().filter_map(|(_, answered)| match answered {
            // A node that took the slots of another is asked for both, and counts once.
            Ok((node, reply)) => {
                seen.insert(node.address().clone()).then(|| (node.name().to_string(), Ok(reply)))
            }
            Err(error) => Some((String::new(), Err(error))),
        });
        join(named.collect(), response)
    }
}
