//! The application's reading and writing sides of a connection.
//!
//! Announced bytes are copied out once, because the peer could still rewrite them where they lie. Bytes to send go into the
//! registered send buffer, by a copy or encoded there by the application, and leave from there. Those of a
//! [pool](crate::BufferPool) leave from where they are.

use std::task::{Context, Poll, ready};

use bytes::BufMut;
use valkey_rdma_proto::DeliveryReport;
use valkey_rdma_proto::work::Slice;

use super::drive::{DriveOutcome, DriveUntil};
use super::state::{ConnectionState, WriteInterest};
use crate::send_memory::PinnedSlice;
use crate::sync::keep_waker;

impl ConnectionState {
    /// Copies announced bytes out, as many as there are and fit. `Pending` keeps the waker; `Ready(false)` is the
    /// end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        if !out.has_remaining_mut() {
            return Poll::Ready(true);
        }
        // The bytes may be announced although the driver has not been woken yet.
        if self.core.readable().is_none() && self.poll_cq() > 0 && self.core.readable().is_none() {
            self.flush_work();
        }
        self.read_or_wait(cx, out)
    }

    /// As [`poll_read`](Self::poll_read), for the task that drives the connection itself: polls the device if there is
    /// nothing to read. Also returns what the driver does next if nothing was read.
    pub(super) fn poll_read_driving(
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
        if self.core.readable().is_none() && self.close_error.is_none() {
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
            None if self.close_error.is_some() => Poll::Ready(false),
            None => {
                keep_waker(&mut self.wakers.reader, cx);
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

    /// Takes as many bytes as the send buffer has room for, and sends what window and credits allow. `Pending` keeps the
    /// waker; `Ready(0)` means that the connection takes no more.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<usize> {
        self.grow_for(bufs.iter().map(|buf| buf.len()).sum());
        if !ready!(self.poll_room(cx, 1)) {
            return Poll::Ready(0);
        }
        let mut written = 0;
        for buf in bufs {
            let taken = self.put(buf);
            written += taken;
            if taken < buf.len() {
                break;
            }
        }
        self.poll_policy.on_send();
        self.flush_work();
        Poll::Ready(written)
    }

    /// Lets `fill` write into `len` free bytes of the send buffer, and sends as many as it returns. `Pending` keeps the
    /// waker, and has not called `fill`; `Ready(None)` means that the connection takes no more. [`grow_for`](Self::grow_for)
    /// comes before.
    pub(super) fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        len: u32,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<Option<usize>> {
        if !ready!(self.poll_room(cx, len)) {
            return Poll::Ready(None);
        }
        let mut filled = 0;
        let free = self.core.reserve();
        if free.len() >= len as usize {
            let start = free.start as usize;
            self.device.write_send_buffer(start..start + len as usize, &mut |room| {
                filled = checked(fill(room), len);
            });
            self.core.commit(filled as u32);
            self.device.counters.filled_in_place += filled as u64;
        } else {
            // The send buffer is a ring, and its end lies within.
            let mut scratch = vec![0; len as usize];
            filled = checked(fill(&mut scratch), len);
            let copied = self.copy_in(&scratch[..filled]);
            debug_assert_eq!(copied, filled, "there is room for all of it");
        }
        self.poll_policy.on_send();
        self.flush_work();
        Poll::Ready(Some(filled))
    }

    /// Waits for `len` free bytes in the send buffer. `Ready(false)`: the connection has ended or is closing.
    fn poll_room(&mut self, cx: &mut Context<'_>, len: u32) -> Poll<bool> {
        // Completions that free the send buffer may be in the queue already.
        while self.core.room() < len && self.close_error.is_none() && !self.core.is_closing() {
            if self.poll_cq() == 0 {
                break;
            }
            self.flush_work();
        }
        if self.close_error.is_some() || self.core.is_closing() {
            return Poll::Ready(false);
        }
        if self.core.room() < len {
            // Before the agreement the send buffer cannot grow: there may never be so much room.
            let agreed = self.core.agreed().is_some();
            let interest = if agreed { WriteInterest::Room(len) } else { WriteInterest::Agreement };
            self.wakers.set_writer(cx, interest);
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Takes what there is room for, in place if that pays and the device can. Returns how many bytes that is.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.core.room() as usize)];
        if bytes.len() < SEND_IN_PLACE_FROM {
            return self.copy_in(bytes);
        }
        PinnedSlice::of(bytes)
            .and_then(|slice| self.send_in_place(slice))
            .unwrap_or_else(|| self.copy_in(bytes))
    }

    /// Sends bytes from where they lie. `None`: the device cannot.
    fn send_in_place(&mut self, pinned: PinnedSlice) -> Option<usize> {
        let slice = self.device.locate(&pinned)?;
        self.core.lend(slice);
        let DeliveryReport { delivered, unknown, unsent } = self.core.delivery_report();
        self.device.hold(pinned, delivered + unknown + unsent);
        Some(slice.len as usize)
    }

    /// Copies what fits of `bytes` into the send buffer. Returns how many bytes that is.
    fn copy_in(&mut self, bytes: &[u8]) -> usize {
        let mut copied = 0;
        // Twice at most: up to the end of the ring, and from its start.
        while copied < bytes.len() {
            let free = self.core.reserve();
            let len = free.len().min(bytes.len() - copied);
            if len == 0 {
                break;
            }
            let (start, now) = (free.start as usize, &bytes[copied..copied + len]);
            self.device.write_send_buffer(start..start + len, &mut |room| room.copy_from_slice(now));
            self.core.commit(len as u32);
            copied += len;
        }
        self.device.counters.copied_in += copied as u64;
        copied
    }
}

/// Fewer bytes cost less to copy than as a work request of their own.
pub(super) const SEND_IN_PLACE_FROM: usize = 8 << 10;

/// The number of bytes that were filled.
///
/// # Panics
/// If it is more than `len`.
fn checked(filled: usize, len: u32) -> usize {
    assert!(filled <= len as usize, "filled {filled} of {len} bytes");
    filled
}
