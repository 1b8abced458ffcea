//! What a TCP socket offers beyond a byte stream: one read into several places, and another reactor that waits for it.

use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

/// Reads once into several buffers, in order. Returns how many bytes were read; 0 at the end of the stream.
pub(super) fn poll_read_vectored(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    buffers: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>> {
    let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let mut read = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let count = *read.insert(stream.try_read_vectored(buffers)?);
            // A read that leaves room has emptied the socket. Without this, the next one would be a system call that finds nothing.
            if count > 0 && count < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (read, tried) {
            (Some(count), _) => return Poll::Ready(Ok(count)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            (None, Err(error)) => return Poll::Ready(Err(error)),
            (None, Ok(())) => {}
        }
    }
}

/// What a read would return, of one byte. Asks the kernel, whatever the reactor knows.
pub(super) fn peek(stream: &TcpStream) -> io::Result<usize> {
    SockRef::from(stream).peek(&mut [MaybeUninit::uninit()])
}

/// Reads once, whatever the reactor knows.
pub(super) fn read_now(stream: &TcpStream, buffer: &mut BytesMut) -> io::Result<usize> {
    let mut read = [0; 16 * 1024];
    let len = (&*SockRef::from(stream)).read(&mut read)?;
    buffer.extend_from_slice(&read[..len]);
    Ok(len)
}

/// Lets the reactor of `runtime` wait for the socket, instead of that of the runtime it was made in.
pub(super) fn move_to(stream: TcpStream, runtime: &Handle) -> io::Result<TcpStream> {
    let stream = stream.into_std()?;
    let _entered = runtime.enter();
    TcpStream::from_std(stream)
}
