//! What a stream over a socket of the kernel can do beyond reading and writing. For our other crates.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use super::AnyStream;

impl AnyStream {
    /// Whether TCP carries the bytes, encrypted or not.
    #[doc(hidden)]
    pub fn is_over_tcp(&self) -> bool {
        matches!(self.carrier(), Self::Tcp(_))
    }

    /// What a read of one byte would return, by the kernel, whatever the reactor knows. `None` if the kernel does not know: there is no
    /// socket, or the bytes in it are encrypted.
    #[doc(hidden)]
    pub fn peek(&self) -> Option<io::Result<usize>> {
        match self {
            Self::Tcp(stream) => Some(peek(&stream.into())),
            #[cfg(unix)]
            Self::Unix(stream) => Some(stream.socket().and_then(|socket| peek(&socket))),
            _ => None,
        }
    }

    /// Reads once. Asks the kernel, because the reactor may not know yet what has arrived; so the waker of `cx` may not be kept.
    #[doc(hidden)]
    pub fn poll_read_now(&mut self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<usize>> {
        let read = match self {
            Self::Tcp(stream) => read_now(&SockRef::from(&*stream), buffer),
            #[cfg(unix)]
            Self::Unix(stream) => stream.socket().and_then(|socket| read_now(&socket, buffer)),
            #[cfg(feature = "tls")]
            Self::Tls(stream) => stream.read_now(buffer),
            other => return pin!(other.read_buf(buffer)).poll(cx),
        };
        match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read),
        }
    }

    /// Lets the reactor of `runtime` wait for the bytes of a TCP socket, instead of that of the runtime it was made in.
    ///
    /// # Errors
    /// The system's. The stream is closed then.
    #[doc(hidden)]
    pub fn move_to(self, runtime: &Handle) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => {
                let stream = stream.into_std()?;
                let _entered = runtime.enter();
                Ok(Self::Tcp(TcpStream::from_std(stream)?))
            }
            #[cfg(feature = "tls")]
            Self::Tls(mut stream) => {
                stream.change_below(|below| below.move_to(runtime))?;
                Ok(Self::Tls(stream))
            }
            other => Ok(other),
        }
    }
}

fn peek(socket: &SockRef<'_>) -> io::Result<usize> {
    socket.peek(&mut [MaybeUninit::uninit()])
}

fn read_now(socket: &SockRef<'_>, buffer: &mut BytesMut) -> io::Result<usize> {
    let mut read = [0; 16 * 1024];
    let len = (&**socket).read(&mut read)?;
    buffer.extend_from_slice(&read[..len]);
    Ok(len)
}
