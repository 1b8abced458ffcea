//! Locks whose data stays valid when a thread panics with them, and wakers of tasks that wait.

use std::sync::PoisonError;
pub(crate) use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Waker};

/// Locks a mutex that guards data valid after every step, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the waker of the task that is being polled, unless it is kept already.
pub(crate) fn keep_waker(kept: &mut Option<Waker>, cx: &Context<'_>) {
    match kept {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *kept = Some(cx.waker().clone()),
    }
}
