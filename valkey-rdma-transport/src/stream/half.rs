//! The two halves of a stream: one reads, one writes.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Stream;

/// The reading half of [`Stream::split`]. `as_ref()` is the stream.
#[derive(Debug)]
pub struct ReadHalf<'a>(&'a Stream);

/// The writing half of [`Stream::split`]. `as_ref()` is the stream.
#[derive(Debug)]
pub struct WriteHalf<'a>(&'a Stream);

/// The reading half of [`Stream::into_split`]. `as_ref()` is the stream.
///
/// Dropping it closes nothing. Nobody reads any more then, so a peer that goes on writing stops when it has filled
/// the windows.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<Stream>);

/// The writing half of [`Stream::into_split`]. `as_ref()` is the stream.
///
/// Dropping it closes nothing, unlike tokio's half of a `TcpStream`: the wire has no half-close, and what the
/// [reading half](OwnedReadHalf) waits for would be lost. The connection is closed when both halves are gone, or
/// by `shutdown`.
#[derive(Debug)]
pub struct OwnedWriteHalf(Arc<Stream>);

/// The halves belong to different streams. Holds both.
#[derive(Debug, thiserror::Error)]
#[error("these are halves of different streams")]
pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

pub(super) fn split(stream: &mut Stream) -> (ReadHalf<'_>, WriteHalf<'_>) {
    (ReadHalf(stream), WriteHalf(stream))
}

pub(super) fn into_split(stream: Stream) -> (OwnedReadHalf, OwnedWriteHalf) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(stream.clone()), OwnedWriteHalf(stream))
}

impl OwnedReadHalf {
    /// Puts the stream together again.
    ///
    /// # Errors
    /// [`ReuniteError`] if the other half is another stream's.
    pub fn reunite(self, other: OwnedWriteHalf) -> Result<Stream, ReuniteError> {
        if !Arc::ptr_eq(&self.0, &other.0) {
            return Err(ReuniteError(self, other));
        }
        drop(other);
        Ok(Arc::into_inner(self.0).expect("the halves are the only holders, and this is the last"))
    }
}

impl OwnedWriteHalf {
    /// Puts the stream together again.
    ///
    /// # Errors
    /// [`ReuniteError`] if the other half is another stream's.
    pub fn reunite(self, other: OwnedReadHalf) -> Result<Stream, ReuniteError> {
        other.reunite(self)
    }
}

macro_rules! reads {
    ($($half:ty),*) => {$(
        impl $half {
            /// As [`Stream::read_bytes`].
            ///
            /// # Errors
            /// As there.
            pub async fn read_bytes(&mut self, max: usize) -> io::Result<Bytes> {
                poll_fn(|cx| self.0.poll_read_bytes_shared(cx, max)).await
            }

            /// As [`Stream::poll_read_bytes`].
            ///
            /// # Errors
            /// As there.
            pub fn poll_read_bytes(&mut self, cx: &mut Context<'_>, max: usize) -> Poll<io::Result<Bytes>> {
                self.0.poll_read_bytes_shared(cx, max)
            }
        }

        impl AsRef<Stream> for $half {
            fn as_ref(&self) -> &Stream {
                &self.0
            }
        }

        impl AsyncRead for $half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.0.poll_read_shared(cx, buf)
            }
        }
    )*};
}

macro_rules! writes {
    ($($half:ty),*) => {$(
        impl $half {
            /// As [`Stream::write_with`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Panics
            /// As there.
            pub async fn write_with(
                &mut self,
                len: usize,
                fill: impl FnOnce(&mut [u8]) -> usize,
            ) -> io::Result<usize> {
                self.0.write_with_shared(len, fill).await
            }

            /// As [`Stream::poll_write_with`].
            ///
            /// # Errors
            /// As there.
            ///
            /// # Panics
            /// As there.
            pub fn poll_write_with(
                &mut self,
                cx: &mut Context<'_>,
                len: usize,
                fill: &mut dyn FnMut(&mut [u8]) -> usize,
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write_with_shared(cx, len, fill)
            }
        }

        impl AsRef<Stream> for $half {
            fn as_ref(&self) -> &Stream {
                &self.0
            }
        }

        impl AsyncWrite for $half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_write_shared(cx, &[buf])
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_vectored_shared(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_shutdown_shared(cx)
            }
        }
    )*};
}

reads!(ReadHalf<'_>, OwnedReadHalf);
writes!(WriteHalf<'_>, OwnedWriteHalf);
