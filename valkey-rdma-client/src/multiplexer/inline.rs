//! [`DriverSlot`]: holds the driver of the current connection; shared by the connection task and by callers.
//!
//! A caller that finds nothing in flight sends its request directly: the connection task, perhaps on another thread, is
//! not woken. The [queue](super::submit) decides which caller that is.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};

use super::driver::Driver;
use crate::error::LostCause;
use crate::sync::{Mutex, lock};

/// The driver of the current connection, if there is one.
#[derive(Default)]
pub(crate) struct DriverSlot(Mutex<Option<Box<Driver>>>);

impl DriverSlot {
    /// Polls a driver to the end of its connection, on the connection task. If the future is dropped, the connection
    /// ends, and waiting requests fail.
    pub(crate) async fn drive(&self, driver: Driver) -> Arc<LostCause> {
        let _clears = ClearOnDrop(self);
        self.0.clear_poison();
        *lock(&self.0) = Some(Box::new(driver));
        poll_fn(|cx| {
            // A driver that panicked on a caller's task is about to end.
            let mut slot = lock(&self.0);
            let Some(driver) = &mut *slot else { unreachable!("only this future empties it") };
            let cause = ready!(driver.poll(cx));
            // Callers that come from here on leave their requests to the next connection.
            let ended = slot.take();
            drop(slot);
            drop(ended);
            Poll::Ready(cause)
        })
        .await
    }

    /// Ends the connection because its server is no longer the one to talk to. `drive` returns soon after.
    pub(crate) fn give_up(&self) {
        if let Some(driver) = lock(&self.0).as_mut() {
            driver.give_up();
        }
    }

    /// Sends what waits, on the task of a caller. Returns false if the driver is in use or there is none: then it must
    /// be woken.
    pub(crate) fn send_inline(&self) -> bool {
        let Ok(mut slot) = self.0.try_lock() else { return false };
        slot.as_mut().is_some_and(|driver| {
            driver.send_inline();
            true
        })
    }
}

/// Empties the slot when the connection task stops driving, for whatever reason.
struct ClearOnDrop<'a>(&'a DriverSlot);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        let driver = lock(&self.0.0).take();
        // Dropped after the lock is released: this fails requests, which wakes callers.
        drop(driver);
    }
}
