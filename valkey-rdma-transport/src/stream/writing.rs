//! The application's writing side of a session: bytes go into the registered send buffer, by a copy or by the
//! application's own hand, and leave from there. Those of a [pool](crate::BufferPool) leave from where they are.

use std::task::{Context, Poll, ready};

use valkey_rdma_proto::DeliveryReport;

use super::session::Session;
use super::waiters::Wants;
use crate::pool::Lease;

impl Session {
    /// Takes as many bytes as the send buffer has room for and sends what window and credits allow. `Pending` keeps the
    /// waker; `Ready(0)` means that the connection takes no more.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<usize> {
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
        self.spin.answered();
        self.pump();
        Poll::Ready(written)
    }

    /// Lends `len` free bytes of the send buffer to `fill`, which says how many of them it has filled, and sends
    /// those. `Pending` keeps the waker, and has not called `fill`; `Ready(None)` means that the connection takes no
    /// more.
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
            self.port.fill(start..start + len as usize, &mut |room| filled = checked(fill(room), len));
            self.core.commit(filled as u32);
            self.port.counters.filled_in_place += filled as u64;
        } else {
            // The buffer is a ring, and its end lies within.
            let mut scratch = vec![0; len as usize];
            filled = checked(fill(&mut scratch), len);
            let staged = self.stage(&scratch[..filled]);
            debug_assert_eq!(staged, filled, "there is room for all of it");
        }
        self.spin.answered();
        self.pump();
        Poll::Ready(Some(filled))
    }

    /// Waits for so many free bytes in the send buffer. `Ready(false)`: there will be none.
    fn poll_room(&mut self, cx: &mut Context<'_>, len: u32) -> Poll<bool> {
        // Completions that free the send buffer may lie here already.
        while self.core.room() < len && self.end.is_none() && !self.core.is_closing() && self.look_ahead() {}
        if self.end.is_some() || self.core.is_closing() {
            return Poll::Ready(false);
        }
        if self.core.room() < len {
            self.waiters.writer(cx, Wants::Room(len));
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Takes what there is room for: from where it is, if that pays and the device can. Returns how much that is.
    fn put(&mut self, bytes: &[u8]) -> usize {
        let bytes = &bytes[..bytes.len().min(self.core.room() as usize)];
        if bytes.len() < LEND_FROM {
            return self.stage(bytes);
        }
        Lease::of(bytes).and_then(|lease| self.lend(lease)).unwrap_or_else(|| self.stage(bytes))
    }

    /// Has bytes sent from where they lie. `None`: the device cannot.
    fn lend(&mut self, lease: Lease) -> Option<usize> {
        let slice = self.port.lend(&lease)?;
        self.core.lend(slice);
        let DeliveryReport { delivered, unknown, unsent } = self.core.delivery_report();
        self.port.hold(lease, delivered + unknown + unsent);
        Some(slice.len as usize)
    }

    /// Copies what fits of `bytes` into the send buffer. Returns how much that is.
    fn stage(&mut self, bytes: &[u8]) -> usize {
        let mut staged = 0;
        // Twice at most: up to the end of the ring, and from its front.
        while staged < bytes.len() {
            let free = self.core.reserve();
            let len = free.len().min(bytes.len() - staged);
            if len == 0 {
                break;
            }
            let (start, now) = (free.start as usize, &bytes[staged..staged + len]);
            self.port.fill(start..start + len, &mut |room| room.copy_from_slice(now));
            self.core.commit(len as u32);
            staged += len;
        }
        self.port.counters.copied_in += staged as u64;
        staged
    }
}

/// Fewer bytes are copied sooner than told to the device apart from the others.
const LEND_FROM: usize = 8 << 10;

/// What was filled, if that can be.
fn checked(filled: usize, len: u32) -> usize {
    assert!(filled <= len as usize, "filled {filled} of {len} bytes");
    filled
}
