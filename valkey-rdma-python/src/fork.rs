//! What happens to the locks of this module when the process forks.

use std::cell::RefCell;
use std::sync::{MutexGuard, RwLockWriteGuard};

use pyo3::prelude::*;
use valkey_rdma_transport::KnownAtFork;

use crate::memory;
use crate::runtime::{self, OfProcess};

thread_local! {
    /// Held by the thread that forks, from before until after, so that the child does not inherit a lock that is held by a thread
    /// that it does not have.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// The locks, in the order in which they are taken. Those of [`memory`] are not among them: threads of Python drop memory with Python's lock
/// held, which this thread may have to wait for. They hold these locks only with Python's lock or the gate, and background threads only with the
/// gate.
struct Held {
    _gate: RwLockWriteGuard<'static, bool>,
    _runtime: MutexGuard<'static, Option<OfProcess>>,
    /// Background threads take it without the gate, for each large write.
    sent_memory: KnownAtFork,
}

/// Python calls it before it forks.
#[pyfunction]
pub(crate) fn before_fork() {
    let gate = runtime::gate();
    let runtime = runtime::current();
    HELD.set(Some(Held { _gate: gate, _runtime: runtime, sent_memory: KnownAtFork::hold() }));
}

/// Python calls it in the parent after it has forked.
#[pyfunction]
pub(crate) fn after_fork_in_parent() {
    HELD.take();
}

/// Python calls it in the child. The operations that used memory go on in the parent only.
#[pyfunction]
pub(crate) fn after_fork_in_child() {
    if let Some(held) = HELD.take() {
        held.sent_memory.forget();
    }
    memory::forget_claims();
}

/// Python calls it when it exits.
#[pyfunction]
pub(crate) fn at_exit(py: Python<'_>) {
    py.detach(runtime::shut_down);
    memory::release_all(py);
}
