//! Subscriptions in a cluster: one task for each slot in use, on a connection that moves with its slot.

use std::future::pending;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use valkey_rdma_resp::ServerError;

use super::call::{ClusterCall, Redirection, Target};
use super::client::Cluster;
use super::core::{CLUSTER, Core, Place};
use super::node::Node;
use super::route::slot_of;
use crate::command::table::Access;
use crate::config::Config;
use crate::error::{ClusterError, Error, LostCause, LostConnection};
use crate::link::{RawConnection, Redialer};
use crate::pubsub::{
    Judgement, Left, Shared, Slots, SlowConsumer, Source, Status, Subscriber, Task, TaskHandle,
};
use crate::stats::Purpose;

impl Cluster {
    /// Begins subscriptions. The first one opens the first connection.
    pub(crate) fn subscriber(&self, capacity: usize, slow: SlowConsumer) -> Result<Subscriber, Error> {
        let (shared, events) = Shared::new(CLUSTER.into(), capacity, slow);
        let slots = ClusterSlots { core: self.core.clone() };
        let first = slots.start(None, &shared).ok_or_else(|| self.core.closed_error())?;
        let limit = self.core.config.command_timeout;
        Ok(Subscriber::new(shared, events, first, Some(Box::new(slots)), limit))
    }
}

/// Starts tasks for slots.
struct ClusterSlots {
    core: Arc<Core>,
}

impl Slots for ClusterSlots {
    fn slot_of(&self, name: &[u8]) -> u16 {
        slot_of(name)
    }

    fn start(&self, slot: Option<u16>, shared: &Arc<Shared>) -> Option<TaskHandle> {
        if let Some(cause) = self.core.end() {
            shared.finish(Arc::new(cause));
            return None;
        }
        let (core, explains, shared) = (self.core.clone(), self.core.clone(), shared.clone());
        let status = Status::new(CLUSTER.into(), Box::new(move || not_connected(&explains, slot)));
        let (handle, task) = Task::new(slot, &shared, status.clone(), core.config.offline_timeout)?;
        self.core.runtime.spawn(async move {
            let source = Slot {
                core: &core,
                slot,
                status,
                call: None,
                failure: None,
                is_redirected: false,
                place: None,
            };
            // The task, which is dropped before another branch runs, would say that it was stopped.
            let end = async {
                core.ended().await;
                shared.finish(Arc::new(core.end().unwrap_or(LostCause::Closed)));
            };
            tokio::select! {
                () = task.run(source, None) => {}
                () = end => {}
            }
        });
        Some(handle)
    }
}

/// The node that has a slot, or some primary.
struct Slot<'a> {
    core: &'a Arc<Core>,
    slot: Option<u16>,
    status: Arc<Status>,
    /// What is known of redirections and failures, until a server has confirmed the subscriptions.
    call: Option<ClusterCall<'a>>,
    /// The failure that the next try begins with.
    failure: Option<(Place, Error)>,
    /// True from a redirection until a server has confirmed the subscriptions.
    is_redirected: bool,
    /// Where the connection is.
    place: Option<Place>,
}

impl Slot<'_> {
    async fn find(&mut self) -> Result<RawConnection, Error> {
        let core = self.core;
        let target = self.slot.map_or(Target::Any, |slot| Target::Slot(slot, Access::Write));
        let new = || ClusterCall::new(core, target, None, "SUBSCRIBE").repeatable(true).dedicated();
        let call = self.call.get_or_insert_with(new);
        if let Some((place, error)) = self.failure.take() {
            call.failed(&place, error).await?;
        }
        loop {
            let place = call.next().await?;
            match place.client.connect_another(Purpose::Subscriber).await {
                Ok(raw) => {
                    self.place = Some(place);
                    return Ok(raw);
                }
                Err(error) => {
                    // Its tries go on for long, and callers whose time is up meanwhile learn why.
                    self.status.failed(error.clone());
                    call.failed(&place, error).await?;
                }
            }
        }
    }
}

impl Source for Slot<'_> {
    const IS_SLOT: bool = true;

    fn redialer(&self) -> Option<Redialer> {
        let topology = &self.core.topology;
        Some(Redialer::new(topology.backoff(), self.config(), topology.server_is_back()))
    }

    fn config(&self) -> &Config {
        &self.core.config
    }

    /// Follows redirections, and waits for the cluster as commands do.
    async fn connect(&mut self) -> Result<RawConnection, Error> {
        let found = self.find().await;
        if found.is_err() {
            self.core.request_refresh();
            self.settled();
        }
        found
    }

    fn moved(&self, _raw: &RawConnection) -> BoxFuture<'static, ()> {
        let Some(node) = self.place.as_ref().map(|place| place.node.clone()) else {
            return Box::pin(pending());
        };
        let (core, slot) = (self.core.clone(), self.slot);
        Box::pin(async move {
            // Subscribed before the map is looked at.
            let mut changes = core.topology.changes();
            while has(&core, slot, &node) {
                if changes.changed().await.is_err() {
                    return pending().await;
                }
            }
        })
    }

    fn judge(&self, refusal: &ServerError) -> Judgement {
        let Some(place) = &self.place else { return Judgement::Final };
        match Redirection::of(refusal, place.node.address()) {
            // Commands get such an answer as well, but no caller waits for a subscription that is restored.
            Redirection::Final => Judgement::of_one_server(refusal),
            Redirection::Moved(..) => Judgement::Elsewhere,
            Redirection::Ask(..) | Redirection::TryAgain | Redirection::NotReady => Judgement::NotReady,
        }
    }

    fn left(&mut self, why: Left) {
        let is_settled = self.call.is_none();
        self.is_redirected |= matches!(why, Left::Redirected(_));
        self.failure = match (self.place.take(), why) {
            (Some(place), Left::Redirected(reply)) => Some((place, reply.into())),
            (Some(place), Left::Lost(cause)) if !is_settled => {
                let lost = LostConnection::new(CLUSTER.into(), cause, false);
                Some((place, lost.into()))
            }
            _ => None,
        };
        self.core.request_refresh();
    }

    fn is_redirected(&self) -> bool {
        self.is_redirected
    }

    fn settled(&mut self) {
        (self.call, self.failure) = (None, None);
        self.is_redirected = false;
    }
}

/// True if the map has the subscriptions of this slot at this node.
fn has(core: &Core, slot: Option<u16>, node: &Arc<Node>) -> bool {
    let map = core.topology.map();
    match slot {
        Some(slot) => map.is_primary_of(slot, node),
        None => map.nodes().iter().any(|known| Arc::ptr_eq(known, node)),
    }
}

/// Why the node for this slot cannot be connected to, or any primary, as far as is known.
fn not_connected(core: &Core, slot: Option<u16>) -> Option<Error> {
    let map = core.topology.map();
    let last_error = |node: &Arc<Node>| node.last_error();
    match slot {
        Some(slot) => match core.choose(&map, slot, Access::Write) {
            Some(node) => last_error(node),
            None => Some(ClusterError::Uncovered { slot: Some(slot) }.into()),
        },
        None if map.shards().is_empty() => Some(ClusterError::Uncovered { slot: None }.into()),
        None => map.shards().iter().find_map(|shard| last_error(&shard.primary)),
    }
}
