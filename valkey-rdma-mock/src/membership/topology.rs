//! The nodes of the cluster, and which node serves which slot. Readers hold a snapshot; a change makes a new one.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::slot::{SLOTS, Slot};

/// The whole cluster at one moment.
#[derive(Clone)]
pub(crate) struct Topology {
    pub(crate) nodes: Vec<NodeInfo>,
    /// The node that serves each slot.
    owners: Vec<Option<u32>>,
    /// Slots that leave their owner, and for which node. The owner redirects keys that it no longer has with `ASK`.
    pub(crate) migrating: BTreeMap<Slot, usize>,
    /// Slots that arrive: the target, and the source. The target serves them to clients that say `ASKING`.
    pub(crate) importing: BTreeMap<Slot, (usize, usize)>,
    pub(crate) epoch: u64,
    /// `CLUSTERDOWN` for every command with a key.
    pub(crate) down: bool,
}

/// A node as all others see it.
#[derive(Clone)]
pub(crate) struct NodeInfo {
    /// 40 hexadecimal digits.
    pub(crate) id: Arc<str>,
    /// The number of its shard. A shard has one set of data.
    pub(crate) shard: usize,
    /// The primary that it follows. `None`: it is a primary.
    pub(crate) primary: Option<usize>,
    /// The address that it announces.
    pub(crate) addr: SocketAddr,
    pub(crate) endpoint: Endpoint,
    pub(crate) zone: Arc<str>,
    pub(crate) epoch: u64,
    pub(crate) failed: bool,
}

/// What a node announces as its host. Default: [`Ip`](Self::Ip).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Endpoint {
    /// The IP address that it listens on.
    #[default]
    Ip,
    /// This text instead of its IP address: another address, or none at all.
    Text(String),
    /// This name, as with `cluster-preferred-endpoint-type hostname`. The IP address stands beside it.
    Hostname(String),
    /// `?`, as with the preferred endpoint type `hostname` when the node has no hostname.
    NoHostname,
    /// Null in `CLUSTER SLOTS` and nothing in redirections, as with the preferred endpoint type `unknown-endpoint`. Clients
    /// then use the address of the node that answered.
    Unknown,
}

impl Topology {
    /// Gives every primary an equal share of the slots.
    pub(crate) fn new(nodes: Vec<NodeInfo>) -> Self {
        let primaries: Vec<u32> =
            (0u32..).zip(&nodes).filter(|(_, node)| node.primary.is_none()).map(|(index, _)| index).collect();
        let count = primaries.len();
        let owners =
            (0..usize::from(SLOTS)).map(|slot| primaries.get(slot * count / usize::from(SLOTS)).copied());
        Self {
            owners: owners.collect(),
            epoch: count as u64,
            nodes,
            migrating: BTreeMap::new(),
            importing: BTreeMap::new(),
            down: false,
        }
    }

    pub(crate) fn owner(&self, slot: Slot) -> Option<usize> {
        self.owners.get(usize::from(slot)).copied().flatten().map(|index| index as usize)
    }

    /// Gives a slot to a node, or to none. Ends its migration.
    pub(crate) fn assign(&mut self, slot: Slot, owner: Option<usize>) {
        if let Some(entry) = self.owners.get_mut(usize::from(slot)) {
            *entry = owner.and_then(|index| u32::try_from(index).ok());
        }
        self.migrating.remove(&slot);
        self.importing.remove(&slot);
    }

    /// The primary of a node's shard: the node itself if it is one.
    pub(crate) fn primary_of(&self, node: usize) -> usize {
        self.nodes[node].primary.unwrap_or(node)
    }

    pub(crate) fn replicas_of(&self, primary: usize) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(move |node| self.nodes[*node].primary == Some(primary))
    }

    /// Runs of slots with the same owner: first, last, owner.
    pub(crate) fn ranges(&self) -> Vec<(Slot, Slot, usize)> {
        let mut ranges: Vec<(Slot, Slot, usize)> = Vec::new();
        for slot in 0..SLOTS {
            let Some(owner) = self.owner(slot) else { continue };
            match ranges.last_mut() {
                Some((_, last, node)) if *node == owner && *last + 1 == slot => *last = slot,
                _ => ranges.push((slot, slot, owner)),
            }
        }
        ranges
    }

    /// Makes a replica the primary of its shard. The old primary follows it. Returns `false` if the node is not a replica.
    pub(crate) fn promote(&mut self, replica: usize) -> bool {
        let Some(old) = self.nodes[replica].primary else { return false };
        self.epoch += 1;
        for node in &mut self.nodes {
            if node.primary == Some(old) {
                node.primary = Some(replica);
            }
        }
        self.nodes[old].primary = Some(replica);
        self.nodes[replica].primary = None;
        self.nodes[replica].epoch = self.epoch;
        for owner in &mut self.owners {
            if *owner == u32::try_from(old).ok() {
                *owner = u32::try_from(replica).ok();
            }
        }
        for target in self.migrating.values_mut() {
            if *target == old {
                *target = replica;
            }
        }
        for (target, source) in self.importing.values_mut() {
            if *target == old {
                *target = replica;
            }
            if *source == old {
                *source = replica;
            }
        }
        true
    }

    /// How many slots have an owner.
    pub(crate) fn assigned(&self) -> usize {
        self.owners.iter().flatten().count()
    }

    /// How many nodes own slots.
    pub(crate) fn size(&self) -> usize {
        let mut owns = vec![false; self.nodes.len()];
        for owner in self.owners.iter().flatten() {
            owns[*owner as usize] = true;
        }
        owns.into_iter().filter(|owns| *owns).count()
    }

    pub(crate) fn node_by_id(&self, id: &[u8]) -> Option<usize> {
        self.nodes.iter().position(|node| node.id.as_bytes() == id)
    }
}

impl NodeInfo {
    /// The host in redirections.
    pub(crate) fn host(&self) -> String {
        match &self.endpoint {
            Endpoint::Ip => self.addr.ip().to_string(),
            Endpoint::Text(text) | Endpoint::Hostname(text) => text.clone(),
            Endpoint::NoHostname => "?".to_owned(),
            Endpoint::Unknown => String::new(),
        }
    }

    /// What it announces as its IP address.
    pub(crate) fn ip(&self) -> String {
        match &self.endpoint {
            Endpoint::Text(text) => text.clone(),
            _ => self.addr.ip().to_string(),
        }
    }

    pub(crate) fn hostname(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Hostname(name) => Some(name),
            _ => None,
        }
    }
}
