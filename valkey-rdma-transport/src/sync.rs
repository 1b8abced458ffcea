//! What threads and tasks wait with: locks whose data stays valid when a thread panics with them, wakers, and one timer for many
//! deadlines. For all crates of this project.
//!
//! The locks are those of the standard library, which keep all their state in themselves. A child that was forked while another
//! thread waited for a lock can therefore use its other locks. `parking_lot` queues the waiting threads of all locks in one table, which a fork
//! may copy while it is locked.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::PoisonError;
pub use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::task::{Context, Poll, Waker};

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

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

/// Wakes a task at the earliest of many deadlines, with one timer.
#[derive(Debug, Default)]
pub struct DeadlineTimer {
    /// When it fires. `None` while it is not armed.
    at: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
    /// The task that it wakes, since it was last armed.
    wakes: Option<Waker>,
}

impl DeadlineTimer {
    /// Makes the timer fire at this moment or before.
    ///
    /// # Panics
    /// Outside of a tokio runtime with timers.
    #[inline]
    pub fn arm(&mut self, at: Instant) {
        if self.fires_by(at) {
            return;
        }
        self.at = Some(at);
        self.wakes = None;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(sleep_until(at))),
        }
    }

    /// True if the timer fires at this moment or before.
    #[inline]
    pub fn fires_by(&self, at: Instant) -> bool {
        self.at.is_some_and(|earlier| earlier <= at)
    }

    /// Ready when it fires, with the moment that it was set for; then it is disarmed.
    #[inline]
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        let (Some(sleep), Some(at)) = (&mut self.sleep, self.at) else { return Poll::Pending };
        // Cheaper than another poll.
        if !sleep.is_elapsed() && self.wakes.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        // Not counted, so that it keeps the waker although the task may have used up its share.
        if pin!(unconstrained(sleep.as_mut())).poll(cx).is_pending() {
            self.wakes = Some(cx.waker().clone());
            return Poll::Pending;
        }
        (self.at, self.wakes) = (None, None);
        Poll::Ready(at)
    }

    /// Polls for `deadline`. True if it has passed; then the timer is disarmed. A deadline that has moved later since the last call does not
    /// move the timer, which fires early and is then set again.
    #[inline]
    pub fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Instant) -> bool {
        loop {
            self.arm(deadline);
            match self.poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(at) if at >= deadline => return true,
                Poll::Ready(_) => {}
            }
        }
    }
}
