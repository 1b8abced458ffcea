//! Locks whose data stays valid when a thread panics with them, and wakers of tasks that wait. For all crates of this project.
//!
//! These are the locks of the standard library, which keep all their state in themselves. A child that was forked while another
//! thread waited for a lock can therefore use its other locks. `parking_lot` queues the waiting threads of all locks in one table, which a fork
//! may copy while it is locked.

use std::sync::PoisonError;
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Waker};

/// Locks a mutex that guards data valid after every step, so that a panic elsewhere does not spoil it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to read what other threads may read at the same time.
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], to change what others read.
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the waker of the task that is being polled, unless it is kept already.
pub fn keep_waker(kept: &mut Option<Waker>, cx: &Context<'_>) {
    match kept {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *kept = Some(cx.waker().clone()),
    }
}
