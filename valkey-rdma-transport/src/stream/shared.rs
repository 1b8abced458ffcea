//! Shared access to [`Inner`], and the waking that follows every access.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use super::inner::Inner;

/// One connection's state, shared by its handles and its driver.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Inner>>);

impl Shared {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(Mutex::new(inner)))
    }

    /// Runs `step` under the lock, then wakes whoever can go on and frees what is finished. Nothing in here waits: the lock is held for
    /// copies and for calls into the device only.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Inner) -> R) -> R {
        let (result, wakers, _finished) = {
            // A panic elsewhere leaves a connection that can still be closed.
            let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let result = step(&mut inner);
            (result, inner.take_wakers(), inner.take_finished())
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        result
    }
}
