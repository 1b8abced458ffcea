//! [`DriverSlot`]: holds the driver of the current connection; shared by the connection task and by callers.
//!
//! A caller that uses the connection alone sends its request directly: the connection task, perhaps on another thread,
//! is not woken, and the request skips the queue. For several callers the queue is better, because requests that wait
//! in it leave together.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};

use super::driver::Driver;
use super::queue::RequestQueue;
use super::request::Request;
use crate::error::LostCause;

/// The driver of the current connection, if there is one.
#[derive(Default)]
pub(crate) struct DriverSlot {
    driver: Mutex<Option<Box<Driver>>>,
    /// True if a caller may find the driver usable. Saves many callers from contending for the lock.
    exclusive: AtomicBool,
}

impl DriverSlot {
    /// Polls a driver to the end of its connection, on the connection task. If the future is dropped, the connection
    /// ends, and waiting requests fail.
    pub(crate) async fn drive(&self, driver: Driver) -> (Arc<LostCause>, RequestQueue) {
        let _clears = ClearOnDrop(self);
        self.driver.clear_poison();
        *self.lock() = Some(Box::new(driver));
        poll_fn(|cx| {
            let mut slot = self.lock();
            let Some(driver) = &mut *slot else { unreachable!("only this future empties it") };
            let polled = driver.poll(cx);
            self.exclusive.store(driver.is_exclusive(), Ordering::Relaxed);
            let cause = ready!(polled);
            match slot.take() {
                Some(driver) => Poll::Ready((cause, driver.into_queue())),
                None => unreachable!("it was there a moment ago"),
            }
        })
        .await
    }

    /// Takes the request and sends it at once if its caller uses the connection alone. Otherwise leaves it to be queued.
    pub(crate) fn try_send_inline(&self, request: &mut Option<Request>) {
        if !self.exclusive.load(Ordering::Relaxed) {
            return;
        }
        // Locked by another thread, or poisoned: the queue wakes the connection task.
        let Ok(mut slot) = self.driver.try_lock() else { return };
        if let Some(driver) = &mut *slot
            && driver.is_exclusive()
            && let Some(request) = request.take_if(|request| driver.deadline_is_armed(request))
        {
            driver.send_inline(request);
            self.exclusive.store(false, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        // A driver that panicked on the connection task is gone; after a panic on a caller's task it is about to end.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Empties the slot when the connection task stops driving, for whatever reason.
struct ClearOnDrop<'a>(&'a DriverSlot);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        let driver = self.0.lock().take();
        // Dropped after the lock is released: this fails requests, which wakes callers.
        drop(driver);
    }
}
