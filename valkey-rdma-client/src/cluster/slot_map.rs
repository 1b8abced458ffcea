//! [`SlotMap`]: from a slot to its nodes. It never changes: a new one replaces it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::node::Node;
use super::slots_reply::{SLOTS, SlotRange};
use crate::endpoint::NodeAddress;

/// No shard serves the slot.
const NONE: u16 = u16::MAX;

/// The shards, and the shard of each slot.
pub(super) struct SlotMap {
    owners: Box<[u16; SLOTS]>,
    shards: Vec<Arc<Shard>>,
}

/// A primary and its replicas.
pub(super) struct Shard {
    pub(super) primary: Arc<Node>,
    pub(super) replicas: Vec<Arc<Node>>,
    /// Counts reads, for strategies that take the nodes in turn.
    pub(super) turn: AtomicUsize,
}

impl Shard {
    pub(super) fn new(primary: Arc<Node>, replicas: Vec<Arc<Node>>) -> Self {
        primary.got_slots();
        // Clients that start at the same moment do not all begin with the same replica.
        Self { primary, replicas, turn: AtomicUsize::new(fastrand::usize(..)) }
    }

    /// The primary first.
    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        std::iter::once(&self.primary).chain(&self.replicas)
    }
}

impl SlotMap {
    pub(super) fn empty() -> Self {
        Self { owners: Box::new([NONE; SLOTS]), shards: Vec::new() }
    }

    /// The ranges name shards by their index.
    pub(super) fn new(shards: Vec<Arc<Shard>>, ranges: &[SlotRange]) -> Self {
        let mut map = Self { owners: Box::new([NONE; SLOTS]), shards };
        for range in ranges {
            let shard = u16::try_from(range.shard).unwrap_or(NONE);
            map.owners[usize::from(range.first)..=usize::from(range.last)].fill(shard);
        }
        map
    }

    /// The shard that serves a slot.
    pub(super) fn shard(&self, slot: u16) -> Option<&Arc<Shard>> {
        self.shards.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    pub(super) fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The same map, but `node` serves this slot now. If it was a replica of the slot's shard, it has become its primary,
    /// and serves the other slots of the shard too.
    pub(super) fn moved(&self, slot: u16, node: &Arc<Node>) -> Self {
        let mut shards = self.shards.clone();
        if let Some(shard) = self.shard(slot)
            && shard.replicas.iter().any(|replica| Arc::ptr_eq(replica, node))
            && let Some(entry) = shards.iter_mut().find(|known| Arc::ptr_eq(known, shard))
        {
            let others = shard.nodes().filter(|other| !Arc::ptr_eq(other, node)).cloned();
            *entry = Arc::new(Shard::new(node.clone(), others.collect()));
            return Self { owners: self.owners.clone(), shards };
        }
        let known = shards.iter().position(|shard| Arc::ptr_eq(&shard.primary, node));
        let shard = known.unwrap_or_else(|| {
            shards.push(Arc::new(Shard::new(node.clone(), Vec::new())));
            shards.len() - 1
        });
        let mut owners = self.owners.clone();
        if let Some(owner) = owners.get_mut(usize::from(slot)) {
            let former = std::mem::replace(owner, u16::try_from(shard).unwrap_or(NONE));
            // A shard leaves with its last slot, as in the reports of nodes: no number of patches makes the map grow for ever.
            if former != NONE && !owners.contains(&former) {
                shards.swap_remove(usize::from(former));
                let last = u16::try_from(shards.len()).unwrap_or(NONE);
                owners.iter_mut().filter(|owner| **owner == last).for_each(|owner| *owner = former);
            }
        }
        Self { owners, shards }
    }

    /// True if this node is the primary of the slot.
    pub(super) fn is_primary_of(&self, slot: u16, node: &Arc<Node>) -> bool {
        self.shard(slot).is_some_and(|shard| Arc::ptr_eq(&shard.primary, node))
    }

    /// True if it is the primary of a shard.
    pub(super) fn is_primary(&self, node: &Arc<Node>) -> bool {
        self.shards.iter().any(|shard| Arc::ptr_eq(&shard.primary, node))
    }

    /// True if it names a node with this address, as a primary if that matters.
    pub(super) fn has(&self, address: &NodeAddress, as_primary: bool) -> bool {
        let is_it = |node: &Arc<Node>| node.address() == address;
        let replicas = || self.shards.iter().flat_map(|shard| &shard.replicas);
        self.shards.iter().any(|shard| is_it(&shard.primary)) || !as_primary && replicas().any(is_it)
    }

    /// The primaries, shard by shard, each with a slot that it serves, if there is one.
    pub(super) fn primaries(&self) -> Vec<(Arc<Node>, Option<u16>)> {
        let mut slots = vec![None; self.shards.len()];
        for (slot, owner) in (0..).zip(self.owners.iter()) {
            if let Some(first) = slots.get_mut(usize::from(*owner)) {
                first.get_or_insert(slot);
            }
        }
        self.shards.iter().zip(slots).map(|(shard, slot)| (shard.primary.clone(), slot)).collect()
    }

    /// All nodes, each once.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let all = self.shards.iter().flat_map(|shard| shard.nodes());
        let mut seen = HashSet::new();
        all.filter(|node| seen.insert(node.address())).cloned().collect()
    }

    /// How many slots each shard serves, in the order of the shards.
    pub(super) fn slot_counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.shards.len()];
        for owner in self.owners.iter() {
            if let Some(count) = counts.get_mut(usize::from(*owner)) {
                *count += 1;
            }
        }
        counts
    }

    /// The slots of a node that is their primary.
    pub(super) fn slots_of(&self, address: &NodeAddress) -> impl Iterator<Item = u16> {
        let is_its =
            move |slot: &u16| self.shard(*slot).is_some_and(|shard| shard.primary.address() == address);
        (0..SLOTS as u16).filter(is_its)
    }

    /// True if a node serves every slot.
    pub(super) fn is_complete(&self) -> bool {
        !self.owners.contains(&NONE)
    }
}
