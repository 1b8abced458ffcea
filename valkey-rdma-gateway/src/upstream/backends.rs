//! [`Backends`]: the servers of a gateway, also those that only clients from before a reload use.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use tokio::time::Instant;

use crate::upstream::backend::{Backend, Origin};

#[derive(Default)]
pub(crate) struct Backends {
    /// Those of the configuration, each once.
    current: Vec<Arc<Backend>>,
    /// Those of earlier configurations, for as long as clients use them, and when they left.
    former: Vec<(Weak<Backend>, Instant)>,
}

impl Backends {
    /// All that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<Backend>> {
        self.current.iter().cloned().chain(self.former()).collect()
    }

    /// Those that no route leads to any more, and that clients still use.
    pub(crate) fn former(&self) -> impl Iterator<Item = Arc<Backend>> {
        self.former.iter().filter_map(|(backend, _)| backend.upgrade())
    }

    /// The same, and when each left.
    pub(crate) fn departures(&self) -> impl Iterator<Item = &(Weak<Backend>, Instant)> {
        self.former.iter()
    }

    /// The backend, if it left at this moment and has not come back.
    pub(crate) fn departed(&self, backend: &Weak<Backend>, since: Instant) -> Option<Arc<Backend>> {
        let known = self.former.iter().any(|(known, at)| known.ptr_eq(backend) && *at == since);
        backend.upgrade().filter(|_| known)
    }

    pub(crate) fn is_former(&self, backend: &Arc<Backend>) -> bool {
        !self.current.iter().any(|current| Arc::ptr_eq(current, backend))
    }

    pub(crate) fn by_origin(&self) -> HashMap<Origin, Arc<Backend>> {
        self.all().into_iter().map(|backend| (backend.origin.clone(), backend)).collect()
    }

    /// Takes over the backends of another configuration.
    pub(crate) fn replace(&mut self, current: Vec<Arc<Backend>>) {
        let before = std::mem::replace(&mut self.current, current);
        let now = Instant::now();
        let mut former = std::mem::take(&mut self.former);
        former.extend(before.iter().map(|backend| (Arc::downgrade(backend), now)));
        former.retain(|(backend, _)| backend.upgrade().is_some_and(|backend| self.is_former(&backend)));
        self.former = former;
    }
}
