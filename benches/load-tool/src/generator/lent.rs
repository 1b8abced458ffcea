//! [`Lent`]: a stream lent to the client library for its login.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::sync::lock;

/// A stream lent out, and taken back after the login. Once it is back, the borrower sees the end of the stream.
#[derive(Debug, Clone)]
pub(super) struct Lent(Arc<Mutex<Option<AnyStream>>>);

impl Lent {
    pub(super) fn new(stream: AnyStream) -> Lent {
        Lent(Arc::new(Mutex::new(Some(stream))))
    }

    /// Takes the stream back.
    pub(super) fn take_back(&self) -> Option<AnyStream> {
        lock(&self.0).take()
    }

    fn with<T>(&self, ended: T, call: impl FnOnce(Pin<&mut AnyStream>) -> T) -> T {
        match &mut *lock(&self.0) {
            Some(stream) => call(Pin::new(stream)),
            None => ended,
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(Poll::Ready(Ok(())), |stream| stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.with(Poll::Ready(Ok(0)), |stream| stream.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(Poll::Ready(Ok(())), |stream| stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The borrower's end is not the stream's.
        Poll::Ready(Ok(()))
    }
}
