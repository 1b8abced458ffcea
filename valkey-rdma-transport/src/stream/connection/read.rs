//! The application's reading side of a connection. Announced bytes are copied out once, because the peer could still
//! rewrite them where they lie.

use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::Slice;

use super::ConnectionState;
use super::progress::{CqPoll, DriveOutcome, DriveUntil};
use super::wakers::store;

impl ConnectionState {
    /// Copies announced bytes out, as many as there are and fit. `Pending` keeps the waker; `Ready(false)` is the
    /// end.
    pub(in crate::stream) fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        if !out.has_remaining_mut() {
            return Poll::Ready(true);
        }
        // The bytes may be announced although the driver has not been woken yet.
        if self.core.readable().is_none() && self.poll_cq() != CqPoll::Empty && self.core.readable().is_none()
        {
            self.flush_work();
        }
        self.read_or_wait(cx, out)
    }

    /// As [`poll_read`](Self::poll_read), for the task that drives the connection itself: polls the device if there is
    /// nothing to read. Also returns what the driver does next if nothing was read.
    pub(in crate::stream) fn poll_read_inline(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut dyn BufMut,
    ) -> (Poll<bool>, DriveOutcome) {
        if !out.has_remaining_mut() {
            return (Poll::Ready(true), DriveOutcome::Park);
        }
        // It is being polled, so it needs no wake-up.
        self.wakers.reader = None;
        let mut outcome = DriveOutcome::Park;
        if self.core.readable().is_none() && self.close_cause.is_none() {
            outcome = self.poll_device(cx, DriveUntil::Readable);
        }
        let read = self.read_or_wait(cx, out);
        if read.is_ready() {
            // It polls again before it waits.
            self.wakers.driver = None;
        }
        (read, outcome)
    }

    fn read_or_wait(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        match self.core.readable() {
            Some(slice) => {
                self.read(slice, out);
                Poll::Ready(true)
            }
            None if self.close_cause.is_some() => Poll::Ready(false),
            None => {
                store(&mut self.wakers.reader, cx);
                Poll::Pending
            }
        }
    }

    /// Copies out the bytes from `slice` on, as many as fit.
    fn read(&mut self, mut slice: Slice, out: &mut dyn BufMut) {
        loop {
            let len = slice.len.min(u32::try_from(out.remaining_mut()).unwrap_or(u32::MAX));
            self.device.read_window(Slice { len, ..slice }, out);
            self.core.consume(len);
            match self.core.readable() {
                Some(next) if out.has_remaining_mut() => slice = next,
                _ => break,
            }
        }
        // Posts the receives that were used, and a Register if a window was read to its end.
        self.flush_work();
    }
}
