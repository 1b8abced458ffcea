//! [`Standing`]: whether a lane has its connection, and why not.

use std::sync::Arc;

use crate::cluster::core::{CLUSTER, Core};
use crate::cluster::node::Node;
use crate::command::table::Access;
use crate::error::{ClusterError, Error, Fate, TimedOut};
use crate::link::Deadline;
use crate::pubsub::unconfirmed;
use valkey_rdma_transport::sync::{Mutex, lock};

/// The state of a lane, shared with callers: one whose time is up learns what it waited for.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<State>);

#[derive(Clone, Debug, Default)]
enum State {
    /// It connects, or has nothing to connect for.
    #[default]
    Offline,
    /// As `Offline`, after this failure.
    Failed(Error),
    /// Its subscriptions are restored on a connection.
    Online,
}

impl Standing {
    pub(super) fn is_online(&self) -> bool {
        matches!(&*lock(&self.0), State::Online)
    }

    pub(super) fn set_online(&self) {
        *lock(&self.0) = State::Online;
    }

    pub(super) fn set_offline(&self) {
        *lock(&self.0) = State::Offline;
    }

    pub(super) fn set_failed(&self, error: &Error) {
        // What may have run of the lane's own commands says nothing of a caller's.
        *lock(&self.0) = match error.fate() {
            Fate::MayHaveRun => State::Offline,
            Fate::NotSent | Fate::Answered => State::Failed(error.clone()),
        };
    }

    /// The error of a change that has waited until its deadline.
    pub(super) fn late(&self, core: &Core, slot: Option<u16>, deadline: Deadline) -> Error {
        let state = lock(&self.0).clone();
        match state {
            State::Online => unconfirmed(CLUSTER.into(), deadline),
            State::Failed(error) => error,
            State::Offline => not_connected(core, slot).unwrap_or_else(|| {
                TimedOut { peer: CLUSTER.into(), limit: deadline.limit, may_have_run: false }.into()
            }),
        }
    }
}

/// Why the node for this slot cannot be connected to, or any primary, as far as is known.
fn not_connected(core: &Core, slot: Option<u16>) -> Option<Error> {
    let map = core.topology.map();
    let last_error = |node: &Arc<Node>| node.last_error();
    match slot {
        Some(slot) => match core.choose(&map, slot, Access::Write) {
            Some(node) => last_error(node),
            None => Some(ClusterError::Uncovered { slot }.into()),
        },
        None if map.shards().is_empty() => Some(ClusterError::NoPrimaries.into()),
        None => map.shards().iter().find_map(|shard| last_error(&shard.primary)),
    }
}
