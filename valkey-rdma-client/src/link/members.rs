//! [`Members`]: the ids of a cluster's nodes, with which a connection compares the id of the server that it has reached.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

/// Ids of nodes, and whether a server must have one of them. The nodes of one client of a cluster share the ids, which change with its slot map.
/// By default every server is accepted.
#[derive(Clone, Default)]
pub(crate) struct Members {
    ids: Arc<ArcSwap<HashSet<String>>>,
    is_required: Arc<AtomicBool>,
}

impl Members {
    /// The same ids, for one node. Any server is accepted at its address until one of them is [required](Self::require).
    pub(crate) fn of_one_node(&self) -> Self {
        Self { ids: self.ids.clone(), is_required: Arc::default() }
    }

    /// Whether the server must be a node, for its present connectors too.
    pub(crate) fn require(&self, required: bool) {
        self.is_required.store(required, Ordering::Relaxed);
    }

    /// These are the nodes from now on. Returns whether others were before.
    pub(crate) fn set(&self, ids: HashSet<String>) -> bool {
        let ids = Arc::new(ids);
        *self.ids.swap(ids.clone()) != *ids
    }

    /// True if it matters which node a server is.
    pub(crate) fn are_compared(&self) -> bool {
        self.is_required.load(Ordering::Relaxed) && !self.ids.load().is_empty()
    }

    /// Whether a server with this id is accepted.
    pub(crate) fn accept(&self, id: &str) -> bool {
        !self.are_compared() || self.ids.load().contains(id)
    }
}
