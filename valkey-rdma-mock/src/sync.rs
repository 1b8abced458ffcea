//! [`lock`]: locks whose data stays valid when a thread panics with them.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex that guards data valid after every step, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
