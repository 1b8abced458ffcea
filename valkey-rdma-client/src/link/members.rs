//! [`Members`]: the ids of a cluster's nodes, with which a connection compares the id of the server that it has reached.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Ids of nodes. The connectors of one client of a cluster share them, and they change with its slot map. Without ids, every server is accepted.
#[derive(Clone, Default)]
pub(crate) struct Members(Arc<ArcSwap<HashSet<String>>>);

impl Members {
    /// These are the nodes from now on. Returns whether others were before.
    pub(crate) fn set(&self, ids: HashSet<String>) -> bool {
        let ids = Arc::new(ids);
        *self.0.swap(ids.clone()) != *ids
    }

    /// True if it matters which node a server is.
    pub(crate) fn are_known(&self) -> bool {
        !self.0.load().is_empty()
    }

    /// Whether a server with this id is accepted.
    pub(crate) fn accept(&self, id: &str) -> bool {
        let ids = self.0.load();
        ids.is_empty() || ids.contains(id)
    }
}
