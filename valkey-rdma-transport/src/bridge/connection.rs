//! [`Connection`]: a byte stream that is read to its end although it can no longer be written.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The peer may have sent its last bytes and have left, before it was written to. A socket of the kernel would keep these bytes for the
/// program; so what is written after an error is dropped, until the program has had all of them.
pub(super) struct Connection<S> {
    stream: S,
    /// Why it cannot be written.
    failed: Option<io::Error>,
    /// The program has all that was read, and knows of the end.
    has_all: Arc<AtomicBool>,
}

impl<S> Connection<S> {
    pub(super) fn new(stream: S, has_all: Arc<AtomicBool>) -> Self {
        Self { stream, failed: None, has_all }
    }

    /// The stream, or why it could not be written.
    pub(super) fn into_stream(self) -> Result<S, io::Error> {
        self.failed.map_or(Ok(self.stream), Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Connection<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Connection<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.failed.is_none() {
            match ready!(Pin::new(&mut this.stream).poll_write(cx, buf)) {
                Ok(written) => return Poll::Ready(Ok(written)),
                Err(error) => this.failed = Some(error),
            }
        }
        Poll::Ready(match this.failed.take_if(|_| this.has_all.load(Ordering::Relaxed)) {
            Some(error) => Err(error),
            None => Ok(buf.len()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.failed.is_some() { Poll::Ready(Ok(())) } else { Pin::new(&mut this.stream).poll_flush(cx) }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.failed.is_some() { Poll::Ready(Ok(())) } else { Pin::new(&mut this.stream).poll_shutdown(cx) }
    }
}
