//! [`Members`]: the ids of a cluster's nodes, with which a connection compares the id of the server that it has reached.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;

/// Ids of nodes. All connections to nodes share them, and they change with the slot map. Without ids, every server is accepted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(Arc<ArcSwap<HashSet<String>>>);

impl Members {
    /// These are the nodes from now on.
    pub(crate) fn set(&self, ids: HashSet<String>) {
        self.0.store(Arc::new(ids));
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
