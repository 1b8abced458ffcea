//! [`ReadAhead`]: the stream below TLS, read in large steps.
//!
//! rustls reads 4 KiB at a time. A system call for each of them would cost more than the decryption. So a read takes what is there, up
//! to [`STEP`], and later reads are served from memory. A device has no system call to save, and its bytes are copied once in each case:
//! it is read directly.

use std::cell::Cell;
use std::io::{self, IoSlice, Read};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::AnyStream;

/// Bytes that one system call reads at most.
const STEP: usize = 64 * 1024;

thread_local! {
    /// Where a read puts its bytes first. Mostly rustls takes all of them, so that a connection needs no buffer.
    static STEP_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A stream, and what was read ahead.
pub(super) struct ReadAhead {
    pub(super) stream: AnyStream,
    ahead: Vec<u8>,
    /// How much of `ahead` was taken.
    taken: usize,
    /// How many bytes the stream has taken to write.
    pub(super) written: usize,
}

impl ReadAhead {
    pub(super) fn new(stream: AnyStream) -> Self {
        Self { stream, ahead: Vec::new(), taken: 0, written: 0 }
    }

    /// Takes what was read ahead, as much as fits. 0 if there is nothing.
    fn take(&mut self, buf: &mut [u8]) -> usize {
        let rest = &self.ahead[self.taken..];
        let len = rest.len().min(buf.len());
        buf[..len].copy_from_slice(&rest[..len]);
        self.taken += len;
        if self.taken == self.ahead.len() && self.taken > 0 {
            self.taken = 0;
            self.ahead.clear();
            // An idle connection keeps no memory.
            self.ahead.shrink_to(0);
        }
        len
    }

    /// Reads through `read`, which gets a large buffer; what does not fit into `buf` is kept.
    fn read_step(
        &mut self,
        buf: &mut [u8],
        read: impl FnOnce(&mut AnyStream, &mut [u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // The stream may be TLS in a box, which reads through here too: it finds no buffer, and makes one.
        let mut step = STEP_BUFFER.take();
        step.resize(STEP, 0);
        let read = read(&mut self.stream, &mut step).map_ok(|read| {
            let now = read.min(buf.len());
            buf[..now].copy_from_slice(&step[..now]);
            self.ahead.extend_from_slice(&step[now..read]);
            now
        });
        STEP_BUFFER.set(step);
        read
    }

    /// Reads what has arrived, whatever the reactor knows of it.
    pub(super) fn now(&mut self) -> Now<'_> {
        Now(self)
    }
}

/// Reads that ask the kernel. `WouldBlock` if nothing is there.
pub(super) struct Now<'a>(&'a mut ReadAhead);

impl Read for Now<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let taken = self.0.take(buf);
        if taken > 0 || buf.is_empty() {
            return Ok(taken);
        }
        match &mut self.0.stream {
            AnyStream::Tcp(stream) => (&*SockRef::from(&*stream)).read(buf),
            #[cfg(unix)]
            AnyStream::Unix(stream) => (&*stream.socket()?).read(buf),
            other => {
                let mut room = ReadBuf::new(buf);
                match Pin::new(other).poll_read(&mut Context::from_waker(Waker::noop()), &mut room) {
                    Poll::Ready(read) => read.map(|()| room.filled().len()),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.stream, AnyStream::Device(_)) {
            return Pin::new(&mut this.stream).poll_read(cx, buf);
        }
        let room = buf.initialize_unfilled();
        let mut len = this.take(room);
        if len == 0 && !room.is_empty() {
            len = ready!(this.read_step(room, |stream, step| {
                let mut step = ReadBuf::new(step);
                Pin::new(stream).poll_read(cx, &mut step).map_ok(|()| step.filled().len())
            }))?;
        }
        buf.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.written = self.written.wrapping_add(written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.written = self.written.wrapping_add(written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
