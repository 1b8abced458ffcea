//! [`UnixSocket`]: a Unix socket that waits for room only while there is none.
//!
//! Linux says that a Unix socket has room each time its peer reads, also where there was room before. A process that has asked for both
//! events, as tokio's `UnixStream` does, is therefore woken once more for each message that it sends.

use std::io::{self, IoSlice};
use std::mem;
use std::net::Shutdown;
use std::os::unix::net;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::task::coop;

/// A connected Unix socket. Make it from tokio's or from that of the standard library, inside the runtime that uses it.
#[derive(Debug)]
pub struct UnixSocket {
    asks: Asks,
    /// The task that waits for something to read.
    reader: Option<Waker>,
}

/// The socket, by what the kernel is asked for.
#[derive(Debug)]
enum Asks {
    /// Something to read. It need not be a pipe.
    Read(pipe::Receiver),
    /// Room as well.
    Both(UnixStream),
    /// Nothing: asking has failed.
    Nothing,
}

impl UnixSocket {
    /// The socket itself.
    pub(crate) fn socket(&self) -> io::Result<SockRef<'_>> {
        match &self.asks {
            Asks::Read(socket) => Ok(SockRef::from(socket)),
            Asks::Both(socket) => Ok(SockRef::from(socket)),
            Asks::Nothing => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Sends now, or as soon as there is room. `send` sends some of `len` bytes.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        send: impl Fn(SockRef<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let sent = match &self.asks {
                Asks::Both(socket) => {
                    ready!(socket.poll_write_ready(cx))?;
                    socket.try_io(Interest::WRITABLE, || send(SockRef::from(socket)))
                }
                // Who sends without waiting for anything must let other tasks run, too.
                _ => {
                    ready!(coop::poll_proceed(cx)).made_progress();
                    self.socket().and_then(&send)
                }
            };
            match sent {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.ask_for_room()?,
                Ok(sent) if sent == len => {
                    self.ask_for_no_room()?;
                    return Poll::Ready(Ok(sent));
                }
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn ask_for_room(&mut self) -> io::Result<()> {
        match mem::replace(&mut self.asks, Asks::Nothing) {
            Asks::Read(socket) => {
                let socket = net::UnixStream::from(socket.into_nonblocking_fd()?);
                self.asks = Asks::Both(UnixStream::from_std(socket)?);
                self.wake_reader();
            }
            both => self.asks = both,
        }
        Ok(())
    }

    fn ask_for_no_room(&mut self) -> io::Result<()> {
        match mem::replace(&mut self.asks, Asks::Nothing) {
            Asks::Both(socket) => {
                self.asks = Asks::Read(pipe::Receiver::from_owned_fd_unchecked(socket.into_std()?.into())?);
                self.wake_reader();
            }
            read => self.asks = read,
        }
        Ok(())
    }

    /// What it has waited for is gone.
    fn wake_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl TryFrom<net::UnixStream> for UnixSocket {
    type Error = io::Error;

    /// # Panics
    /// Outside of a runtime of tokio's that has I/O enabled.
    fn try_from(stream: net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let asks = Asks::Read(pipe::Receiver::from_owned_fd_unchecked(stream.into())?);
        Ok(Self { asks, reader: None })
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
        let read = match &mut self.asks {
            Asks::Read(socket) => Pin::new(socket).poll_read(cx, buf),
            Asks::Both(socket) => Pin::new(socket).poll_read(cx, buf),
            Asks::Nothing => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        if read.is_pending() && !self.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
            self.reader = Some(cx.waker().clone());
        }
        read
    }
}

impl AsyncWrite for UnixSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, buf.len(), |socket| socket.send_with_flags(buf, NO_SIGNAL))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let bufs = &bufs[..bufs.len().min(MOST_SLICES)];
        self.poll_send(cx, len, |socket| socket.send_vectored_with_flags(bufs, NO_SIGNAL))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.socket().and_then(|socket| socket.shutdown(Shutdown::Write)))
    }
}

/// More in one call are refused. Source: `UIO_MAXIOV` in Linux's `uio.h`.
const MOST_SLICES: usize = 1024;

/// A peer that has gone away is an error, not the end of the process.
#[cfg(target_os = "linux")]
const NO_SIGNAL: i32 = nix::sys::socket::MsgFlags::MSG_NOSIGNAL.bits();
#[cfg(not(target_os = "linux"))]
const NO_SIGNAL: i32 = 0;

#[cfg(target_os = "linux")]
#[cfg(test)]
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
        let inode = fs::read_link(format!("/proc/self/fd/{}", socket.socket().expect("open").as_raw_fd()))
            .expect("a socket");
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

    /// The task that reads waits while another one begins to wait for room, and while that ends.
    #[tokio::test]
    async fn a_reader_that_waits_gets_what_comes_while_a_writer_waits_for_room() {
        for first in ["bytes", "room"] {
            let (ours, mut theirs) = pair();
            let (mut read, mut write) = tokio::io::split(ours);
            let reading = tokio::spawn(async move {
                let mut received = [0; 4];
                read.read_exact(&mut received).await.map(|_| received)
            });
            tokio::task::yield_now().await;
            let large = vec![7; 4 << 20];
            let writing = tokio::spawn(async move { write.write_all(&large).await.map(|()| write) });
            tokio::task::yield_now().await;
            let mut received = vec![0; 4 << 20];
            if first == "room" {
                theirs.read_exact(&mut received).await.expect("reads");
            }
            theirs.write_all(b"ping").await.expect("there is room");
            assert_eq!(&reading.await.expect("no panic").expect("reads"), b"ping", "{first}");
            if first == "bytes" {
                theirs.read_exact(&mut received).await.expect("reads");
            }
            writing.await.expect("no panic").expect("writes");
        }
    }

    #[tokio::test]
    async fn more_slices_than_the_system_takes_at_once_are_written() {
        let (mut ours, mut theirs) = pair();
        let slices = vec![IoSlice::new(b"x"); 1500];
        let written = ours.write_vectored(&slices).await.expect("there is room");
        assert_eq!(written, MOST_SLICES);
        theirs.read_exact(&mut [0; MOST_SLICES]).await.expect("reads");
    }

    #[tokio::test]
    async fn a_task_that_only_writes_lets_others_run() {
        let (mut ours, _theirs) = pair();
        let written = std::future::poll_fn(|cx| {
            let write = |_: &i32| Pin::new(&mut ours).poll_write(cx, b"x").is_ready();
            Poll::Ready((0..200).take_while(write).count())
        });
        assert!((1..200).contains(&written.await));
        assert!(events(&ours).iter().all(|events| events & WRITABLE == 0), "there is room");
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
        let error = theirs.write_all(b"reply").await.expect_err("without a reader");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
