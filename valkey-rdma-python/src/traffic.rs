//! [`Traffic`]: what moved between buffers and the server.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_client::{Error, Fetched};
use valkey_rdma_transport::sync::lock;

use crate::errors::Failure;
use crate::transfer::PerKey;

/// Counters of the values in buffers, which the counters of commands leave out.
#[derive(Default)]
pub(crate) struct Traffic {
    loads: Count,
    loaded_bytes: Count,
    misses: Count,
    stores: Count,
    stored_bytes: Count,
    failures: Count,
    timeouts: Count,
    direct: Count,
    /// Why the last value in registered memory did not go directly. `None`: it did.
    not_direct: Mutex<Option<String>>,
}

#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }
}

impl Traffic {
    /// Counts the outcomes of a batch of loads.
    pub(crate) fn loaded(&self, batch: &Result<PerKey<Fetched>, Failure>) {
        for outcome in self.outcomes(batch) {
            match outcome {
                Ok(Fetched::Read(len)) => {
                    self.loads.add(1);
                    self.loaded_bytes.add(*len as u64);
                }
                Ok(Fetched::Missing) => self.misses.add(1),
                _ => self.failures.add(1),
            }
        }
    }

    /// Counts the outcomes of a batch of stores, of values with these lengths.
    pub(crate) fn stored(&self, batch: &Result<PerKey<()>, Failure>, lengths: &[usize]) {
        for (outcome, len) in self.outcomes(batch).iter().zip(lengths) {
            match outcome {
                Ok(()) => {
                    self.stores.add(1);
                    self.stored_bytes.add(*len as u64);
                }
                Err(_) => self.failures.add(1),
            }
        }
    }

    /// Counts a value that the server's adapter moved.
    pub(crate) fn direct(&self) {
        self.direct.add(1);
        *lock(&self.not_direct) = None;
    }

    /// A value in registered memory went over the stream, or failed.
    pub(crate) fn not_direct(&self, reason: impl ToString) {
        *lock(&self.not_direct) = Some(reason.to_string());
    }

    /// Why the last value in registered memory did not go directly.
    pub(crate) fn why_not_direct(&self) -> Option<String> {
        lock(&self.not_direct).clone()
    }

    /// The outcomes by key. Of a batch that failed as a whole there are none, and it counts as one failure.
    fn outcomes<'a, T>(&self, batch: &'a Result<PerKey<T>, Failure>) -> &'a [Result<T, Error>] {
        match batch {
            Ok(outcomes) => return outcomes,
            Err(Failure::Late(..)) => self.timeouts.add(1),
            Err(_) => self.failures.add(1),
        }
        &[]
    }

    /// Name and value of each.
    pub(crate) fn read(&self) -> [(&'static str, u64); 8] {
        [
            ("loads", &self.loads),
            ("loaded_bytes", &self.loaded_bytes),
            ("misses", &self.misses),
            ("stores", &self.stores),
            ("stored_bytes", &self.stored_bytes),
            ("failures", &self.failures),
            ("timeouts", &self.timeouts),
            ("direct", &self.direct),
        ]
        .map(|(name, count)| (name, count.0.load(Ordering::Relaxed)))
    }
}
