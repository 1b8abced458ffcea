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

    /// The writing task waits.
    pub(super) fn writer(&mut self, cx: &Context<'_>, wants: Wants) {
        self.writer = Some(Writer { waker: cx.waker().clone(), wants });
    }

    /// The driver waits for events.
    pub(super) fn driver(&mut self, cx: &Context<'_>) {
        keep(&mut self.driver, cx);
    }

    /// Those who have something to do now.
    pub(super) fn take_ready(&mut self, core: &Connection, ended: bool) -> [Option<Waker>; 3] {
        let readable = ended || core.readable().is_some();
        let writable = |wants| match wants {
            Wants::Room(len) => core.is_connected() && core.room() >= len,
            Wants::End => false,
        };
        let driver = ended || self.driver_deadline != core.poll_timeout();
        [
            self.reader.take_if(|_| readable),
            self.writer.take_if(|writer| ended || writable(writer.wants)).map(|writer| writer.waker),
            self.driver.take_if(|_| driver),
        ]
    }
}

fn keep(place: &mut Option<Waker>, cx: &Context<'_>) {
    match place {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *place = Some(cx.waker().clone()),
    }
}
