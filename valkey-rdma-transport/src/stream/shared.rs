//! Shared access to a [`Session`], and the waking that follows every access.

use std::sync::{Arc, Mutex, PoisonError};

use super::session::Session;

/// One connection's state, shared by its handles and its driver.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Session>>);

impl Shared {
    pub(super) fn new(session: Session) -> Self {
        Self(Arc::new(Mutex::new(session)))
    }

    /// Runs `step` under the lock, then wakes whoever can go on and frees what is finished. Nothing in here waits:
    /// the lock is held for copies, for an application's encoding, and for calls into the device.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Session) -> R) -> R {
        let (result, ready, _spent) = {
            // A panic elsewhere leaves a connection that can still be closed.
            let mut session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let result = step(&mut session);
            (result, session.take_ready(), session.take_spent())
        };
        ready.wake();
        result
    }
}
