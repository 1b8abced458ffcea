//! The tasks that wait on one connection: a reader, a writer, and the driver.

use std::task::{Context, Waker};

use valkey_rdma_proto::{Connection, Instant};

/// The wakers of the tasks that wait, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    reader: Option<Waker>,
    writer: Option<Writer>,
    driver: Option<Waker>,
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
    /// The reading task waits for bytes or the end.
    pub(super) fn set_reader(&mut self, cx: &Context<'_>) {
        store(&mut self.reader, cx);
    }

    /// The reading task is being polled, so it needs no wake-up.
    pub(super) fn clear_reader(&mut self) {
        self.reader = None;
    }

    /// The writing task waits.
    pub(super) fn set_writer(&mut self, cx: &Context<'_>, interest: WriteInterest) {
        self.writer = Some(Writer { waker: cx.waker().clone(), interest });
    }

    /// The driver waits for events.
    pub(super) fn set_driver(&mut self, cx: &Context<'_>) {
        store(&mut self.driver, cx);
    }

    /// The driver is being polled, and polls again before it waits.
    pub(super) fn clear_driver(&mut self) {
        self.driver = None;
    }

    /// Takes the driver's waker, if it waits.
    pub(super) fn take_driver(&mut self) -> Option<Waker> {
        self.driver.take()
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
        if self.driver.is_some() && (ended || self.driver_timer_is_late(core.poll_timeout())) {
            ready.driver = self.driver.take();
        }
        ready
    }

    /// True if the driver's timer fires after the deadline `due`. A deadline that moves later, as with every message,
    /// needs no wake-up: the timer fires early, and is then set again.
    fn driver_timer_is_late(&self, due: Option<Instant>) -> bool {
        due.is_some_and(|due| self.driver_deadline.is_none_or(|set_for| due < set_for))
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

fn store(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}
