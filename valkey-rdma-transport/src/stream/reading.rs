//! The application's reading side of a session: announced bytes are copied out once, because the peer could still
//! rewrite them where they lie.

use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use valkey_rdma_proto::work::Slice;

use super::crank::{Next, Until};
use super::session::Session;

impl Session {
    /// Copies announced bytes out, as many as there are and fit. `Pending` keeps the waker; `Ready(false)` is the
    /// end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        if !out.has_remaining_mut() {
            return Poll::Ready(true);
        }
        let Some(slice) = ready!(self.poll_readable(cx)) else { return Poll::Ready(false) };
        self.read(slice, out);
        Poll::Ready(true)
    }

    /// As [`poll_read`](Self::poll_read), by a task that drives the session itself: turns it, but only if there is
    /// nothing to read. Also what is to follow the turn, unless something was read.
    pub(super) fn poll_read_driving(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut dyn BufMut,
    ) -> (Poll<bool>, Next) {
        if !out.has_remaining_mut() {
            return (Poll::Ready(true), Next::Sleep);
        }
        self.waiters.no_reader();
        let mut next = Next::Sleep;
        if self.core.readable().is_none() && self.end.is_none() {
            next = self.turn(cx, Until::Readable);
        }
        let read = match self.core.readable() {
            Some(slice) => {
                self.waiters.no_driver();
                self.read(slice, out);
                Poll::Ready(true)
            }
            None if self.end.is_some() => Poll::Ready(false),
            None => {
                self.waiters.reader(cx);
                Poll::Pending
            }
        };
        (read, next)
    }

    /// Copies out what begins with `slice`, as much as fits.
    fn read(&mut self, mut slice: Slice, out: &mut dyn BufMut) {
        loop {
            self.take(slice, out);
            match self.core.readable() {
                Some(next) if out.has_remaining_mut() => slice = next,
                _ => break,
            }
        }
        // Reading to the end of a window makes a Register due.
        self.pump();
    }

    /// Takes announced bytes that lie in one piece, `max` at most. `Pending` keeps the waker; `Ready(None)` is the
    /// end.
    pub(super) fn poll_read_bytes(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<Option<Bytes>> {
        if max == 0 {
            return Poll::Ready(Some(Bytes::new()));
        }
        let Some(slice) = ready!(self.poll_readable(cx)) else { return Poll::Ready(None) };
        let len = slice.len.min(u32::try_from(max).unwrap_or(u32::MAX));
        let mut bytes = BytesMut::with_capacity(len as usize);
        self.take(Slice { len, ..slice }, &mut bytes);
        self.pump();
        Poll::Ready(Some(bytes.freeze()))
    }

    /// Waits for announced bytes. `Ready(None)` is the end.
    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<Option<Slice>> {
        if self.core.readable().is_none() {
            self.look_ahead();
        }
        match self.core.readable() {
            None if self.end.is_none() => {
                self.waiters.reader(cx);
                Poll::Pending
            }
            slice => Poll::Ready(slice),
        }
    }

    /// Copies out what of the slice fits.
    fn take(&mut self, slice: Slice, out: &mut dyn BufMut) {
        let len = slice.len.min(u32::try_from(out.remaining_mut()).unwrap_or(u32::MAX));
        self.port.copy_out(Slice { len, ..slice }, out);
        self.core.consume(len);
    }
}
