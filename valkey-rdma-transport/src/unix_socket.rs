//! [`UnixSocket`]: a Unix socket that waits for room only while there is none.
//!
//! Linux says that a Unix socket has room each time its peer reads, also where there was room before. A process that has asked for both
//! events, as tokio's `UnixStream` does, is therefore woken once more for each message that it sends.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// A connected Unix socket. Make it from tokio's or from that of the standard library, inside the runtime that it is to be used in.
pub struct UnixSocket {
    /// Reads, and waits for that only. It need not be a pipe.
    reader: pipe::Receiver,
    /// The same socket by another descriptor, while the peer leaves no room.
    room: Option<UnixStream>,
}

impl UnixSocket {
    /// Sends now, or as soon as there is room.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        send: impl Fn(SockRef<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let send = || send(SockRef::from(&self.reader));
            let sent = match &self.room {
                None => send(),
                Some(room) => {
                    ready!(room.poll_write_ready(cx))?;
                    room.try_io(Interest::WRITABLE, send)
                }
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.room.is_none() {
                        let same = net::UnixStream::from(self.as_fd().try_clone_to_owned()?);
                        self.room = Some(UnixStream::from_std(same)?);
                    }
                }
                sent => {
                    self.room = None;
                    return Poll::Ready(sent);
                }
            }
        }
    }
}

impl TryFrom<net::UnixStream> for UnixSocket {
    type Error = io::Error;

    /// # Panics
    /// Outside of a runtime of tokio's that has I/O enabled.
    fn try_from(stream: net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { reader: pipe::Receiver::from_owned_fd_unchecked(stream.into())?, room: None })
    }
}

impl TryFrom<UnixStream> for UnixSocket {
    type Error = io::Error;

    fn try_from(stream: UnixStream) -> io::Result<Self> {
        stream.into_std()?.try_into()
    }
}

impl AsyncRead for UnixSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| socket.send_with_flags(buf, NO_SIGNAL))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(cx, |socket| socket.send_vectored_with_flags(bufs, NO_SIGNAL))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.reader).shutdown(Shutdown::Write))
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

impl fmt::Debug for UnixSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnixSocket").field(&self.as_fd()).finish()
    }
}

/// A peer that has gone away is an error, not the end of the process.
#[cfg(target_os = "linux")]
const NO_SIGNAL: i32 = nix::sys::socket::MsgFlags::MSG_NOSIGNAL.bits();
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: i32 = 0;

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (UnixSocket, UnixSocket) {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        (ours.try_into().expect("a reactor"), theirs.try_into().expect("a reactor"))
    }

    /// The events for which this process has asked the kernel, of the file behind the socket.
    fn events(socket: &UnixSocket) -> Vec<u32> {
        let inode = fs::read_link(format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd())).expect("a socket");
        let inode = inode.to_string_lossy().trim_matches(|byte: char| !byte.is_ascii_digit()).to_owned();
        let inode = format!("ino:{:x}", inode.parse::<u64>().expect("socket:[N]"));
        let infos = fs::read_dir("/proc/self/fdinfo").expect("descriptors").filter_map(|entry| {
            // Other tests close theirs meanwhile.
            fs::read_to_string(entry.ok()?.path()).ok()
        });
        let registered = infos.flat_map(|info| info.lines().map(str::to_owned).collect::<Vec<_>>());
        let registered = registered.filter(|line| line.split_whitespace().any(|word| word == inode));
        let words = registered.map(|line| line.split_whitespace().nth(3).expect("events: MASK").to_owned());
        words.map(|mask| u32::from_str_radix(&mask, 16).expect("a hexadecimal number")).collect()
    }

    const WRITABLE: u32 = 4;

    #[tokio::test]
    async fn it_asks_for_room_only_while_there_is_none() {
        let (mut ours, mut theirs) = pair();
        let asks_for_room = |socket: &UnixSocket| events(socket).iter().any(|events| events & WRITABLE != 0);
        assert!(!events(&ours).is_empty(), "something to read is asked for");
        ours.write_all(b"small").await.expect("there is room");
        assert!(!asks_for_room(&ours));

        let large = vec![7; 4 << 20];
        let mut received = vec![0; 5 + large.len()];
        {
            let mut write = std::pin::pin!(ours.write_all(&large));
            assert!(std::future::poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_pending())).await);
            let (written, read) = tokio::join!(write, theirs.read_exact(&mut received));
            written.expect("writes");
            read.expect("reads");
        }
        assert!(received.starts_with(b"small") && received[5..] == large);
        ours.write_all(b"small").await.expect("there is room");
        assert!(!asks_for_room(&ours));
    }

    #[tokio::test]
    async fn what_does_not_fit_asks_for_room() {
        let (mut ours, _theirs) = pair();
        let large = vec![7; 4 << 20];
        {
            let mut write = std::pin::pin!(ours.write_all(&large));
            assert!(std::future::poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx).is_pending())).await);
        }
        assert!(events(&ours).iter().any(|events| events & WRITABLE != 0), "{:x?}", events(&ours));
    }

    #[tokio::test]
    async fn an_end_arrives_behind_the_bytes_and_a_lost_peer_is_an_error() {
        let (mut ours, mut theirs) = pair();
        ours.write_all(b"last").await.expect("there is room");
        ours.shutdown().await.expect("open");
        let mut received = Vec::new();
        theirs.read_to_end(&mut received).await.expect("reads");
        assert_eq!(received, b"last");
        drop(ours);
        let error = theirs.write_all(b"reply").await.expect_err("nobody reads");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
