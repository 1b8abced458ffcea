//! A stream that the task which owns it drives.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

use super::Stream;
use super::task::Driver;

/// A [`Stream`] that is driven by the task that reads and writes it, from [`Stream::into_inline`]. No task runs in the
/// background, so a message wakes one task and not two, and an answer leaves before the device is armed again.
///
/// In return the connection makes progress only while it is polled: nothing else posts receives, notices the peer's
/// disconnect, or sends what the peer's window had no room for. So this is for tasks that **always have a read pending**
/// while they wait for anything, as a server's connection and a client's multiplexer have. To leave a connection idle,
/// turn it [back into a `Stream`](Self::into_stream). Use it from one task, or at least with one waker: the halves of
/// `tokio::io::split` in two tasks would take each other's wake-ups.
///
/// Reading, writing and shutdown work as on a [`Stream`], cancel safety included. Dropping it closes the connection in
/// the background.
///
/// # Panics
/// If it is polled outside of a tokio runtime.
#[derive(Debug)]
pub struct InlineStream {
    /// Dropped before the stream, so that the background drives again when the stream closes.
    driving: BackgroundOnDrop,
    stream: Stream,
}

/// Starts the background task again when it is dropped.
struct BackgroundOnDrop {
    driver: Driver,
    runtime: Handle,
}

impl InlineStream {
    pub(super) fn new(stream: Stream) -> Self {
        let driver = Driver::new(stream.shared.clone());
        Self { driving: BackgroundOnDrop { driver, runtime: Handle::current() }, stream }
    }

    /// Lets a background task drive the connection from now on.
    pub fn into_stream(self) -> Stream {
        let Self { driving, stream } = self;
        drop(driving);
        stream
    }

    /// [`Stream::poll_write_with`], which also drives the connection while it has to wait.
    ///
    /// # Errors
    /// Same errors as [`Stream::write_with`].
    ///
    /// # Panics
    /// If `fill` returns more than `len`.
    pub fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_driving(cx, |stream, cx| stream.poll_write_with(cx, len, fill))
    }

    /// Polls. If that returns `Pending`, drives the connection and polls again, because driving may have brought what
    /// was missing.
    fn poll_driving<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Stream, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let polled = poll(&mut self.stream, cx);
        if polled.is_ready() {
            return polled;
        }
        // When the connection has ended, the second poll reports it.
        let _ = self.driving.driver.drive(cx);
        poll(&mut self.stream, cx)
    }
}

impl Drop for BackgroundOnDrop {
    fn drop(&mut self) {
        if !self.driver.shared().with(|connection| connection.close_cause.is_some()) {
            self.runtime.spawn(Driver::new(self.driver.shared().clone()));
        }
    }
}

impl AsRef<Stream> for InlineStream {
    fn as_ref(&self) -> &Stream {
        &self.stream
    }
}

impl AsyncRead for InlineStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let (read, outcome, deadline, cause) = this.stream.shared.with(|connection| {
                let (read, outcome) = connection.poll_read_inline(cx, buf);
                // The deadline matters only to a task that goes to sleep.
                let deadline = if read.is_pending() { connection.deadline() } else { None };
                (read, outcome, deadline, connection.close_cause)
            });
            if let Poll::Ready(more) = read {
                return Poll::Ready(if more { Ok(()) } else { this.stream.end_of_file(cause) });
            }
            if !this.driving.driver.wait(cx, outcome, deadline) {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for InlineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_driving(cx, |stream, cx| stream.poll_write_slices(cx, &[buf]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Always ready: writes are posted at once.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_shutdown(cx))
    }
}

impl fmt::Debug for BackgroundOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundOnDrop").finish_non_exhaustive()
    }
}
