//! What connections hold of the mock's memory beside keys and values.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum over all connections, in bytes.
#[derive(Clone, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The account of one holder.
    pub(super) fn charge(&self) -> Charge {
        Charge { sum: self.clone(), bytes: 0 }
    }
}

/// What one holder has of [`Held`]. Dropping it gives that back.
pub(super) struct Charge {
    sum: Held,
    bytes: usize,
}

impl Charge {
    /// Counts something of this length, with what keeping it costs.
    pub(super) fn add(&mut self, len: usize) {
        self.bytes += len + COST;
        self.sum.0.fetch_add(len + COST, Ordering::Relaxed);
    }

    /// The opposite of [`add`](Self::add).
    pub(super) fn remove(&mut self, len: usize) {
        self.bytes -= len + COST;
        self.sum.0.fetch_sub(len + COST, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Places in maps and the like, for each thing that is kept.
const COST: usize = 64;
