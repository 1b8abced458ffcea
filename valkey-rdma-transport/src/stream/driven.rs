//! A stream that its only task drives.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;

use super::Stream;
use super::driver::Driver;

/// A [`Stream`] that the task which reads and writes it drives too, from [`Stream::into_inline`]: nothing runs in
/// the background, so a message wakes one task and not two, and an answer leaves before the device is asked for the
/// next event.
///
/// In return the connection moves only while it is polled: nothing else posts receives, notices the peer's end, or
/// delivers what a write has taken and the peer's window had no room for. So it is for tasks that **always have a
/// read pending** while they wait for anything, as a server's connection and a client's multiplexer do; to let it
/// rest, make a [stream](Self::into_stream) of it again. And it is for one task, or at least one waker: the halves of
/// `tokio::io::split` in two tasks would take each other's wake-ups.
///
/// Reading, writing and shutdown are otherwise as a [`Stream`]'s, cancel safety included. Dropped, it closes in the
/// background.
///
/// # Panics
/// If it is polled outside of a tokio runtime.
#[derive(Debug)]
pub struct InlineStream {
    /// Before the stream: when that is dropped, the background drives again.
    driving: Driving,
    stream: Stream,
}

/// Gives the driving back to the background when it is dropped.
struct Driving {
    driver: Driver,
    runtime: Handle,
}

impl InlineStream {
    pub(super) fn new(stream: Stream) -> Self {
        let driver = Driver::new(stream.shared.clone());
        Self { driving: Driving { driver, runtime: Handle::current() }, stream }
    }

    /// Lets the background drive it from now on.
    pub fn into_stream(self) -> Stream {
        let Self { driving, stream } = self;
        drop(driving);
        stream
    }

    /// Polls, and if that has to wait, drives and polls again: what it waits for may have come by that.
    fn poll_driving<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Stream, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let polled = poll(&mut self.stream, cx);
        if polled.is_ready() {
            return polled;
        }
        // What ends the driving ends the wait.
        let _ = self.driving.driver.drive(cx);
        poll(&mut self.stream, cx)
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        if !self.driver.shared().with(|session| session.end.is_some()) {
            self.runtime.spawn(Driver::new(self.driver.shared().clone()));
        }
    }
}

/// What can be asked of it.
impl AsRef<Stream> for InlineStream {
    fn as_ref(&self) -> &Stream {
        &self.stream
    }
}

impl AsyncRead for InlineStream {
    /// As [`Stream`]'s.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let (read, next, deadline, end) = this.stream.shared.with(|session| {
                let (read, next) = session.poll_read_driving(cx, buf);
                // Nobody waits for a deadline while there is something to read.
                let deadline = if read.is_pending() { session.deadline() } else { None };
                (read, next, deadline, session.end)
            });
            if let Poll::Ready(more) = read {
                return Poll::Ready(if more { Ok(()) } else { this.stream.end_of_file(end) });
            }
            if !this.driving.driver.rest(cx, next, deadline) {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for InlineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_write(cx, buf))
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

    /// Ready at once: what was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// As [`Stream`]'s.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_shutdown(cx))
    }
}

impl std::fmt::Debug for Driving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driving").finish_non_exhaustive()
    }
}
