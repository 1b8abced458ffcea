//! What [`Stream`] and its halves do in common: each of them reads or writes through `&self`, and is told of the end
//! as an [`io::Error`].

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::ReadBuf;
use valkey_rdma_proto::CloseReason;

use super::Stream;
use super::end::End;
use crate::error::TransportError;

impl Stream {
    pub(super) fn poll_read_shared(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (more, end) = self.shared.with(|session| (session.poll_read(cx, buf), session.end));
        Poll::Ready(if ready!(more) { Ok(()) } else { self.end_of_file(end) })
    }

    pub(super) fn poll_read_bytes_shared(&self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
        let (bytes, end) = self.shared.with(|session| (session.poll_read_bytes(cx, max), session.end));
        Poll::Ready(match ready!(bytes) {
            Some(bytes) => Ok(bytes),
            None => self.end_of_file(end).map(|()| Bytes::new()),
        })
    }

    /// What the end is to a reader: the peer's disconnect and our own shutdown are ends of file.
    pub(super) fn end_of_file(&self, end: Option<End>) -> io::Result<()> {
        match end {
            None | Some(End::Closed(CloseReason::Peer | CloseReason::Local)) => Ok(()),
            Some(end) => Err(end.io_error(&self.info(), io::ErrorKind::ConnectionReset)),
        }
    }

    pub(super) fn poll_write_shared(&self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<io::Result<usize>> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let (written, end) = self.shared.with(|session| (session.poll_write(cx, bufs), session.end));
        Poll::Ready(match ready!(written) {
            0 => Err(self.broken_pipe(end)),
            written => Ok(written),
        })
    }

    pub(super) fn poll_vectored_shared(
        &self,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A fixed number on the stack; the caller writes the rest next.
        let mut slices = [&[][..]; 64];
        let taken = slices.len().min(bufs.len());
        for (slice, buf) in slices.iter_mut().zip(bufs) {
            *slice = buf;
        }
        self.poll_write_shared(cx, &slices[..taken])
    }

    pub(super) async fn write_with_shared(
        &self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> usize,
    ) -> io::Result<usize> {
        let mut fill = Some(fill);
        poll_fn(|cx| {
            self.poll_write_with_shared(cx, len, &mut |room| fill.take().map_or(0, |fill| fill(room)))
        })
        .await
    }

    pub(super) fn poll_write_with_shared(
        &self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        let most = self.max_reservation();
        let Some(wanted) = u32::try_from(len).ok().filter(|_| len <= most) else {
            let text = format!("{len} bytes are more than half of the send buffer, {most} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidInput, text)));
        };
        let (written, end) =
            self.shared.with(|session| (session.poll_write_with(cx, wanted, fill), session.end));
        Poll::Ready(ready!(written).ok_or_else(|| self.broken_pipe(end)))
    }

    /// What the end is to a writer.
    fn broken_pipe(&self, end: Option<End>) -> io::Error {
        match end {
            None | Some(End::Closed(CloseReason::Local)) => {
                io::Error::new(io::ErrorKind::BrokenPipe, TransportError::Closed)
            }
            Some(end) => end.io_error(&self.info(), io::ErrorKind::BrokenPipe),
        }
    }

    pub(super) fn poll_shutdown_shared(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (end, lost) = ready!(self.shared.with(|session| session.poll_shutdown(cx)));
        Poll::Ready(match end {
            End::Closed(CloseReason::Local) => Ok(()),
            End::Closed(CloseReason::Peer) if lost == 0 => Ok(()),
            end => Err(end.io_error(&self.info(), io::ErrorKind::BrokenPipe)),
        })
    }
}
