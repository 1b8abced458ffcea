//! Whether a node runs a command, or redirects the client.

use bytes::Bytes;

use super::slot::{Slot, slot_of};
use super::topology::Topology;
use crate::failure::Failure;

/// A command, or a whole transaction, as routing sees it.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    /// Keys, or shard channels.
    pub(crate) keys: Vec<&'a Bytes>,
    /// It names shard channels: those are not looked up while their slot moves.
    pub(crate) channels: bool,
    pub(crate) writes: bool,
    /// A queued command's keys are looked up by `EXEC`.
    pub(crate) queued: bool,
    /// The client said `ASKING` before.
    pub(crate) asking: bool,
    /// The client said `READONLY`.
    pub(crate) readonly: bool,
}

/// Where the command runs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    This,
    Moved(Slot, usize),
    Ask(Slot, usize),
    Refused(Failure),
}

/// Decides as Valkey does (valkey `src/cluster.c`, `getNodeByQuery`).
pub(crate) fn route(
    topology: &Topology,
    me: usize,
    asked: &Asked<'_>,
    exists: impl Fn(&[u8]) -> bool,
) -> Destination {
    let Some(first) = asked.keys.first() else { return Destination::This };
    let slot = slot_of(first);
    if asked.keys.iter().any(|key| slot_of(key) != slot) {
        return Destination::Refused(CROSS_SLOT);
    }
    let Some(owner) = topology.owner(slot) else { return Destination::Refused(NOT_SERVED) };
    if topology.down {
        return Destination::Refused(DOWN);
    }

    let is_primary = topology.nodes[me].primary.is_none();
    let migrating = topology.migrating.get(&slot).copied();
    let migrating = migrating.filter(|_| owner == topology.primary_of(me) && (is_primary || asked.readonly));
    let importing = topology.importing.get(&slot).is_some_and(|(target, _)| *target == me);
    let (mut present, mut missing) = (0, 0);
    if (migrating.is_some() || importing) && !asked.channels && !asked.queued {
        present = asked.keys.iter().filter(|key| exists(key)).count();
        missing = asked.keys.len() - present;
    }
    if let Some(target) = migrating
        && missing > 0
    {
        return if present > 0 { Destination::Refused(TRY_AGAIN) } else { Destination::Ask(slot, target) };
    }
    if importing && asked.asking {
        let several = asked.keys.iter().any(|key| key != first);
        return if several && missing > 0 { Destination::Refused(TRY_AGAIN) } else { Destination::This };
    }
    let served_here = (asked.readonly || asked.channels)
        && !asked.writes
        && !is_primary
        && topology.primary_of(me) == owner;
    if owner == me || served_here { Destination::This } else { Destination::Moved(slot, owner) }
}

/// The error that redirects a client. `None`: this node runs the command.
pub(crate) fn redirection(destination: Destination, topology: &Topology) -> Option<Failure> {
    let (code, slot, node) = match destination {
        Destination::This => return None,
        Destination::Refused(failure) => return Some(failure),
        Destination::Moved(slot, node) => ("MOVED", slot, node),
        Destination::Ask(slot, node) => ("ASK", slot, node),
    };
    let node = &topology.nodes[node];
    Some(format!("{code} {slot} {}:{}", node.host(), node.addr.port()).into())
}

const CROSS_SLOT: Failure = Failure::new("CROSSSLOT Keys in request don't hash to the same slot");
const TRY_AGAIN: Failure = Failure::new("TRYAGAIN Multiple keys request during rehashing of slot");
const DOWN: Failure = Failure::new("CLUSTERDOWN The cluster is down");
const NOT_SERVED: Failure = Failure::new("CLUSTERDOWN Hash slot not served");
