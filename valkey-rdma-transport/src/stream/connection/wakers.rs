//! The tasks that wait on one connection: a reader, a writer, and the driver.

use std::task::{Context, Waker};

use valkey_rdma_proto::{Connection, Instant};

/// The wakers of the tasks that wait, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// The reading task waits for bytes or the end.
    pub(super) reader: Option<Waker>,
    writer: Option<Writer>,
    /// The driver waits for events.
    pub(super) driver: Option<Waker>,
    /// The deadline for which the driver's timer is set.
    pub(super) driver_deadline: Option<Instant>,
}

#[derive(Debug)]
struct Writer {
    waker: Waker,
    interest: WriteInterest,
}

/// What a task on the writing side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteInterest {
    /// This many free bytes in the send buffer of a connected connection.
    Room(u32),
    /// The end of the connection.
    End,
}

impl Wakers {
    /// The writing task waits.
    pub(super) fn set_writer(&mut self, cx: &Context<'_>, interest: WriteInterest) {
        self.writer = Some(Writer { waker: cx.waker().clone(), interest });
    }

    /// Takes the wakers of the tasks that have something to do now.
    pub(super) fn take_ready(&mut self, core: &Connection, ended: bool) -> WakeSet {
        let mut ready = WakeSet::default();
        if self.reader.is_some() && (ended || core.readable().is_some()) {
            ready.reader = self.reader.take();
        }
        if let Some(writer) = &self.writer {
            let writable = match writer.interest {
                WriteInterest::Room(len) => core.is_connected() && core.room() >= len,
                WriteInterest::End => false,
            };
            if ended || writable {
                ready.writer = self.writer.take().map(|writer| writer.waker);
            }
        }
        // A deadline that moves later, as with every message, needs no wake-up: the timer fires early, and is then set
        // again.
        let timer_is_late = |due| self.driver_deadline.is_none_or(|set_for| due < set_for);
        if self.driver.is_some() && (ended || core.poll_timeout().is_some_and(timer_is_late)) {
            ready.driver = self.driver.take();
        }
        ready
    }
}

/// Tasks to wake once the lock is released.
#[derive(Debug, Default)]
pub(super) struct WakeSet {
    reader: Option<Waker>,
    writer: Option<Waker>,
    driver: Option<Waker>,
}

impl WakeSet {
    pub(in crate::stream) fn wake(self) {
        // One by one: this follows every access, and mostly the set is empty.
        if let Some(waker) = self.reader {
            waker.wake();
        }
        if let Some(waker) = self.writer {
            waker.wake();
        }
        if let Some(waker) = self.driver {
            waker.wake();
        }
    }
}

/// Keeps the waker of the task that is being polled.
pub(super) fn store(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}
