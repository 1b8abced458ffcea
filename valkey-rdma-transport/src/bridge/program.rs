//! [`Program`]: the pump's end of a socket pair.

use std::io;
use std::net::Shutdown;
use std::os::unix::net;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The socket whose other end the program has. What the program does not read because it has closed its end is dropped, and is no
/// error: what the program has written before is still to be delivered.
pub(super) struct Program(UnixStream);

impl Program {
    pub(super) fn new(socket: net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(UnixStream::from_std(socket)?))
    }

    /// Ends the program's reading also where a forked child has inherited this descriptor, which it never closes.
    pub(super) fn end(self) -> io::Result<()> {
        self.0.into_std()?.shutdown(Shutdown::Both)
    }
}

impl AsyncRead for Program {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A program that closes its end with unread bytes resets the pair. That comes after the last byte, as the end of file.
        let read = ready!(Pin::new(&mut self.0).poll_read(cx, buf));
        Poll::Ready(read.or_else(|error| if has_closed(&error) { Ok(()) } else { Err(error) }))
    }
}

impl AsyncWrite for Program {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.0).poll_write(cx, buf));
        Poll::Ready(written.or_else(|error| if has_closed(&error) { Ok(buf.len()) } else { Err(error) }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}
