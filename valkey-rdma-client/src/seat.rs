//! [`Seat`]: where the driver of the connection there is can be found, by the link's task and by callers.
//!
//! A caller that has the connection for itself sends its request itself: the link's task, perhaps on another thread, is
//! not woken for it, and the request skips the queue. For several callers the queue is better: what waits in it leaves
//! together.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use crate::backlog::Backlog;
use crate::driver::Driver;
use crate::error::LostCause;
use crate::request::Request;

/// The driver of the connection there is, if there is one.
#[derive(Default)]
pub(crate) struct Seat {
    driver: Mutex<Option<Box<Driver>>>,
    /// Whether it is worth looking: else many callers would stand in the link's task's way.
    lone: AtomicBool,
}

impl Seat {
    /// Lets a driver drive to the end of its connection, on the link's task. If the future is dropped, the connection
    /// ends, and with it all that waits.
    pub(crate) async fn drive(&self, driver: Driver) -> (Arc<LostCause>, Backlog) {
        let _vacates = Vacates(self);
        self.driver.clear_poison();
        *self.lock() = Some(Box::new(driver));
        poll_fn(|cx| {
            let mut seat = self.lock();
            let Some(mut driver) = seat.take() else { unreachable!("only this future lets it go") };
            let polled = driver.poll(cx);
            self.lone.store(driver.is_lone(), Ordering::Relaxed);
            if let Poll::Ready(cause) = polled {
                return Poll::Ready((cause, driver.into_backlog()));
            }
            *seat = Some(driver);
            Poll::Pending
        })
        .await
    }

    /// Sends a request at once if its caller has the connection for itself; gives it back if it has to queue.
    pub(crate) fn send(&self, request: Request) -> Option<Request> {
        if !self.lone.load(Ordering::Relaxed) {
            return Some(request);
        }
        // Whoever holds it, or has panicked with it: the queue wakes the link's task.
        let Ok(mut seat) = self.driver.try_lock() else { return Some(request) };
        match &mut *seat {
            Some(driver) if driver.is_lone() && driver.is_watched(&request) => {
                driver.send_lone(request);
                self.lone.store(false, Ordering::Relaxed);
                None
            }
            _ => Some(request),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<Driver>>> {
        // A driver that has panicked on the link's task is gone; one that has on a caller's is about to end.
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the driver go when the link's task does not drive any more, whatever the reason.
struct Vacates<'a>(&'a Seat);

impl Drop for Vacates<'_> {
    fn drop(&mut self) {
        let driver = self.0.lock().take();
        // The lock is free again: callers are told.
        drop(driver);
    }
}
