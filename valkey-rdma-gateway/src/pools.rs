//! [`Pools`]: the servers of a gateway, also those that only clients from before a reload use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use crate::pool::{Origin, Pool};

#[derive(Default)]
pub(crate) struct Pools {
    /// Those of the configuration, each once.
    current: Vec<Arc<Pool>>,
    /// Those of earlier configurations, for as long as clients use them.
    former: Vec<Weak<Pool>>,
}

impl Pools {
    /// All that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        self.current.iter().cloned().chain(self.former()).collect()
    }

    /// Those that no route leads to any more, and that clients still use.
    pub(crate) fn former(&self) -> impl Iterator<Item = Arc<Pool>> {
        self.former.iter().filter_map(Weak::upgrade)
    }

    pub(crate) fn is_former(&self, pool: &Arc<Pool>) -> bool {
        !self.current.iter().any(|current| Arc::ptr_eq(current, pool))
    }

    pub(crate) fn by_origin(&self) -> HashMap<Origin, Arc<Pool>> {
        self.all().into_iter().map(|pool| (pool.origin.clone(), pool)).collect()
    }

    /// Takes over the pools of another configuration. Returns those that have left it now.
    pub(crate) fn replace(&mut self, current: Vec<Arc<Pool>>) -> Vec<Weak<Pool>> {
        let known = self.all();
        let before = std::mem::replace(&mut self.current, current);
        self.former = known.iter().filter(|pool| self.is_former(pool)).map(Arc::downgrade).collect();
        before.iter().filter(|pool| self.is_former(pool)).map(Arc::downgrade).collect()
    }
}
