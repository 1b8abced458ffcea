//! [`DriverSlot`]: where the driver of the connection there is can be found, by the multiplexer's task and by callers.
//!
//! A caller that has the connection for itself sends its request itself: the multiplexer's task, perhaps on another thread, is
//! not woken for it, and the request skips the queue. For several callers the queue is better: what waits in it leaves
//! together.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use super::driver::Driver;
use super::queue::RequestQueue;
use super::request::Request;
use crate::error::LostCause;

/// The driver of the connection there is, if there is one.
#[derive(Default)]
pub(crate) struct DriverSlot {
    driver: Mutex<Option<Box<Driver>>>,
    /// Whether it is worth looking: else many callers would stand in the multiplexer's task's way.
    exclusive: AtomicBool,
}

impl DriverSlot {
    /// Lets a driver drive to the end of its connection, on the multiplexer's task. If the future is dropped, the connection
    /// ends, and with it all that waits.
    pub(crate) async fn drive(&self, driver: Driver) -> (Arc<LostCause>, RequestQueue) {
        let _vacates = ClearOnDrop(self);
        self.driver.clear_poison();
        *self.lock() = Some(Box::new(driver));
        poll_fn(|cx| {
            let mut slot = self.lock();
            let Some(mut driver) = slot.take() else { unreachable!("only this future lets it go") };
            let polled = driver.poll(cx);
            self.exclusive.store(driver.is_exclusive(), Ordering::Relaxed);
            if let Poll::Ready(cause) = polled {
                return Poll::Ready((cause, driver.into_queue()));
            }
            *slot = Some(driver);
            Poll::Pending
        })
        .await
    }

    /// Sends a request at once if its caller has the connection for itself; gives it back if it has to queue.
    pub(crate) fn send(&self, request: Request) -> Option<Request> {
        if !self.exclusive.load(Ordering::Relaxed) {
            return Some(request);
        }
        // Whoever holds it, or has panicked with it: the queue wakes the multiplexer's task.
        let Ok(mut slot) = self.driver.try_lock() else { return Some(request) };
        match &mut *slot {
            Some(driver) if driver.is_exclusive() && driver.deadline_is_armed(&request) => {
                driver.send_inline(request);
                self.exclusive.store(false, Ordering::Relaxed);
                None
            }
            _ => Some(request),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        // A driver that has panicked on the multiplexer's task is gone; one that has on a caller's is about to end.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the driver go when the multiplexer's task does not drive any more, whatever the reason.
struct ClearOnDrop<'a>(&'a DriverSlot);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        let driver = self.0.lock().take();
        // The lock is free again: callers are told.
        drop(driver);
    }
}
