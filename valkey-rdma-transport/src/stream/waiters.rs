//! The tasks that wait on one connection: one that reads, one that writes, and the driver.

use std::task::{Context, Waker};

use valkey_rdma_proto::{Connection, Instant};

/// Who waits, and for what.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    reader: Option<Waker>,
    writer: Option<Writer>,
    driver: Option<Waker>,
    /// The deadline that the driver waits for.
    pub(super) driver_deadline: Option<Instant>,
}

#[derive(Debug)]
struct Writer {
    waker: Waker,
    wants: Wants,
}

/// What a task on the writing side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wants {
    /// So many free bytes in the send buffer of a connected connection.
    Room(u32),
    /// The end of the connection.
    End,
}

impl Waiters {
    /// The reading task waits for bytes or the end.
    pub(super) fn reader(&mut self, cx: &Context<'_>) {
        keep(&mut self.reader, cx);
    }

    /// The reading task is here and looks for itself.
    pub(super) fn no_reader(&mut self) {
        self.reader = None;
    }

    /// The writing task waits.
    pub(super) fn writer(&mut self, cx: &Context<'_>, wants: Wants) {
        self.writer = Some(Writer { waker: cx.waker().clone(), wants });
    }

    /// The driver waits for events.
    pub(super) fn driver(&mut self, cx: &Context<'_>) {
        keep(&mut self.driver, cx);
    }

    /// The driver runs, and polls again before it waits.
    pub(super) fn no_driver(&mut self) {
        self.driver = None;
    }

    /// The driver, if it waits.
    pub(super) fn take_driver(&mut self) -> Option<Waker> {
        self.driver.take()
    }

    /// Those who have something to do now.
    pub(super) fn take_ready(&mut self, core: &Connection, ended: bool) -> Ready {
        let mut ready = Ready::default();
        if self.reader.is_some() && (ended || core.readable().is_some()) {
            ready.reader = self.reader.take();
        }
        if let Some(writer) = &self.writer {
            let writable = match writer.wants {
                Wants::Room(len) => core.is_connected() && core.room() >= len,
                Wants::End => false,
            };
            if ended || writable {
                ready.writer = self.writer.take().map(|writer| writer.waker);
            }
        }
        if self.driver.is_some() && (ended || self.is_late(core.poll_timeout())) {
            ready.driver = self.driver.take();
        }
        ready
    }

    /// True if the driver waits beyond the deadline `due`. One that moves later, as with every message, needs no wake-up:
    /// the driver finds that out when its old deadline passes.
    fn is_late(&self, due: Option<Instant>) -> bool {
        due.is_some_and(|due| self.driver_deadline.is_none_or(|waits_for| due < waits_for))
    }
}

/// Tasks to wake, once the lock is given back.
#[derive(Debug, Default)]
pub(super) struct Ready {
    reader: Option<Waker>,
    writer: Option<Waker>,
    driver: Option<Waker>,
}

impl Ready {
    pub(super) fn wake(self) {
        // One by one: this follows every access, and mostly there is nobody.
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

fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}
