//! [`Services`]: the counters and latencies of each server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use valkey_rdma_transport::sync::lock;

use crate::metrics::Metrics;

/// Figures by [label](crate::server::label) of the server, for as long as a pool leads to it. Pools with the same label, such as those with
/// different logins, share theirs: they would have the same labels, and a sum of theirs would shrink when one of them goes.
#[derive(Default)]
pub(crate) struct Services(Mutex<HashMap<String, Weak<Metrics>>>);

impl Services {
    pub(crate) fn metrics(&self, label: String) -> Arc<Metrics> {
        let mut known = lock(&self.0);
        known.retain(|_, metrics| metrics.strong_count() > 0);
        let metrics = known.entry(label).or_default();
        metrics.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *metrics = Arc::downgrade(&new);
            new
        })
    }
}
