//! [`Pools`]: the servers of a gateway, also those that only clients from before a reload use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::pool::{Origin, Pool};

#[derive(Default)]
pub(crate) struct Pools {
    /// Those of the configuration, each once.
    current: Vec<Arc<Pool>>,
    /// Those of earlier configurations, for as long as clients use them, and when they left.
    former: Vec<(Weak<Pool>, Instant)>,
}

impl Pools {
    /// All that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        self.current.iter().cloned().chain(self.former()).collect()
    }

    /// Those that no route leads to any more, and that clients still use.
    pub(crate) fn former(&self) -> impl Iterator<Item = Arc<Pool>> {
        self.former.iter().filter_map(|(pool, _)| pool.upgrade())
    }

    /// The same, and when each left.
    pub(crate) fn departures(&self) -> impl Iterator<Item = &(Weak<Pool>, Instant)> {
        self.former.iter()
    }

    /// The pool, if it left at this moment and has not come back.
    pub(crate) fn departed(&self, pool: &Weak<Pool>, since: Instant) -> Option<Arc<Pool>> {
        let known = self.former.iter().any(|(known, at)| known.ptr_eq(pool) && *at == since);
        pool.upgrade().filter(|_| known)
    }

    pub(crate) fn is_former(&self, pool: &Arc<Pool>) -> bool {
        !self.current.iter().any(|current| Arc::ptr_eq(current, pool))
    }

    pub(crate) fn by_origin(&self) -> HashMap<Origin, Arc<Pool>> {
        self.all().into_iter().map(|pool| (pool.origin.clone(), pool)).collect()
    }

    /// Takes over the pools of another configuration.
    pub(crate) fn replace(&mut self, current: Vec<Arc<Pool>>) {
        let before = std::mem::replace(&mut self.current, current);
        let now = Instant::now();
        let mut former = std::mem::take(&mut self.former);
        former.extend(before.iter().map(|pool| (Arc::downgrade(pool), now)));
        former.retain(|(pool, _)| pool.upgrade().is_some_and(|pool| self.is_former(&pool)));
        self.former = former;
    }
}
