//! RDMA connections as file descriptors, for programs that know sockets only: in C, in Python, in any language.
//!
//! [`connect`] and [`accept`] return one end of a Unix socket pair. The process's background thread copies between the other end and
//! the RDMA connection. All that sockets can do works: blocking and non-blocking calls, `poll`, deadlines, end of file,
//! `shutdown`. Each byte is copied twice more than by a [`Stream`](crate::blocking::Stream), and each message takes two more
//! system calls: this is for reach, not for speed.
//!
//! The protocol has no half-close. When a program shuts down writing and goes on reading, the answers to its last requests have
//! [`Config::linger`] to arrive.

mod connection;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, copy_bidirectional_with_sizes};

use self::connection::Connection;
use crate::blocking::{Listener, Reactor, as_io_error};
use crate::config::Config;
use crate::device::DeviceKind;
use crate::process::PerProcess;
use crate::stream::Stream;
use crate::sync::{Mutex, lock};
use crate::unix_socket::UnixSocket;

/// Connects to a server, and returns a socket that stands for the connection.
///
/// # Errors
/// As for [`Stream::connect`]; the [`TransportError`](crate::TransportError) is the source. And those of making a socket pair.
pub fn connect(kind: DeviceKind, peer: SocketAddr, config: &Config) -> io::Result<OwnedFd> {
    over(block_on(Stream::connect(kind, peer, config))?.map_err(as_io_error)?)
}

/// Waits for the next connection of a listener, and returns a socket that stands for it.
///
/// # Errors
/// As for [`Listener::accept`], and those of making a socket pair.
pub fn accept(listener: &Listener) -> io::Result<OwnedFd> {
    over(listener.accept_async()?)
}

/// Waits for a future on this thread. What it starts runs on the background thread: to make streams for [`over`].
///
/// # Errors
/// If the background thread cannot be started.
pub fn block_on<T>(future: impl Future<Output = T>) -> io::Result<T> {
    Ok(Reactor::of_process()?.wait(future))
}

/// Puts any byte stream behind a socket.
///
/// # Errors
/// Those of making a socket pair.
pub fn over<S>(stream: S) -> io::Result<OwnedFd>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (near, far) = UnixStream::pair()?;
    let reactor = Reactor::of_process()?;
    let near = File::from(OwnedFd::from(near));
    let inode = near.metadata()?.ino();
    let (sender, outcome) = channel();
    let ends = ends()?;
    lock(ends).outcomes.insert(inode, outcome);
    reactor.spawn(async move {
        let ended = pump(far, stream).await;
        let failed = ended.is_err();
        if let Err(error) = &ended {
            tracing::debug!(%error, "a bridged connection has ended");
        }
        // No receiver: `close` has given up.
        let _ = sender.send(ended);
        lock(ends).ended(inode, failed);
    });
    Ok(near.into())
}

/// Delivers what was written to a socket that [`over`], [`connect`] or [`accept`] returned, waits for that, and closes it. What still
/// arrives is dropped.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if it takes longer than `patience`, and the error of a connection that has failed: what was written may
/// be lost then. In a child of the process that connected, always: there it closes the child's copy of the descriptor, and does nothing
/// to the connection. The socket is closed in either case.
pub fn close(socket: OwnedFd, patience: Duration) -> io::Result<()> {
    // A limit beyond what the clock can say is none.
    let end = Instant::now().checked_add(patience);
    let file = File::from(socket);
    // Who made the pair. A forked child shares no state with its parent to look that up in.
    let owner = getsockopt(&file, sockopt::PeerCredentials)?.pid();
    if u32::try_from(owner) != Ok(process::id()) {
        let inherited = format!("the connection belongs to process {owner}, which this one was forked from");
        return Err(io::Error::other(inherited));
    }
    let outcome = lock(ends()?).take(file.metadata()?.ino());
    let mut socket = UnixStream::from(OwnedFd::from(file));
    socket.shutdown(Shutdown::Write)?;
    socket.set_nonblocking(false)?;
    let late =
        || io::Error::new(io::ErrorKind::TimedOut, format!("not all could be delivered within {patience:?}"));
    let left = || match end {
        None => Ok(Duration::MAX),
        Some(end) => {
            end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()).ok_or_else(late)
        }
    };
    let mut unwanted = [0; 4096];
    let reset = loop {
        socket.set_read_timeout(Some(left()?))?;
        match socket.read(&mut unwanted) {
            Ok(0) => break Ok(()),
            // The pump has left unread what was written last.
            Err(error) if has_closed(&error) => break Err(error),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    };
    // The peer's end of file comes before the end of the connection.
    let ended =
        outcome.map_or(Ok(()), |outcome| outcome.recv_timeout(left()?).unwrap_or_else(|_| Err(late())));
    ended.and(reset)
}

/// How connections have ended, for [`close`], by the inode of the program's socket.
#[derive(Default)]
struct Ends {
    outcomes: HashMap<u64, Receiver<io::Result<()>>>,
    /// Those in `outcomes` that have failed, the oldest first.
    failed: VecDeque<u64>,
}

impl Ends {
    fn take(&mut self, inode: u64) -> Option<Receiver<io::Result<()>>> {
        self.failed.retain(|failed| *failed != inode);
        self.outcomes.remove(&inode)
    }

    /// A connection has ended. A failure is kept until `close`; programs that close the socket themselves never ask for it, so only
    /// the last ones are.
    fn ended(&mut self, inode: u64, failed: bool) {
        if !failed {
            self.outcomes.remove(&inode);
        } else if self.outcomes.contains_key(&inode) {
            self.failed.push_back(inode);
            if self.failed.len() > MOST_FAILED
                && let Some(oldest) = self.failed.pop_front()
            {
                self.outcomes.remove(&oldest);
            }
        }
    }
}

fn ends() -> io::Result<&'static Mutex<Ends>> {
    static ENDS: PerProcess<Mutex<Ends>> = PerProcess::new();
    ENDS.get()
}

/// Copies between a byte stream and a socket whose other end a program has, until both have ended. [`over`] does this on the
/// background thread.
///
/// What the program does not read because it has closed its end is dropped. What it has written before is delivered. A stream that cannot be
/// written any more is still read to its end.
///
/// # Errors
/// Those of the stream. What was written may be lost then.
///
/// # Panics
/// Outside a runtime of tokio's that has I/O enabled.
///
/// # Cancel safety
/// Dropping the future closes both. Where a forked child has inherited the socket, the program sees its end only when the child ends
/// too.
pub async fn pump(socket: UnixStream, stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
    let mut program = Program::new(socket)?;
    let mut connection = Connection::new(stream, program.has_all.clone());
    let copied = copy_bidirectional_with_sizes(&mut program, &mut connection, BUFFER, BUFFER).await;
    let delivered = match connection.into_stream() {
        Ok(mut stream) => stream.shutdown().await,
        Err(error) => Err(error),
    };
    // It fails where the program has closed its end.
    let _ = program.end();
    delivered.and(copied.map(drop))
}

/// Bytes copied at once.
const BUFFER: usize = 64 << 10;

/// How many failures are kept for [`close`].
const MOST_FAILED: usize = 1024;

/// The socket whose other end the program has. What the program does not read because it has closed its end is dropped, and is no
/// error: what the program has written before is still to be delivered.
struct Program {
    socket: UnixSocket,
    /// It has all that the peer has sent, and knows of the end.
    has_all: Arc<AtomicBool>,
}

impl Program {
    fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self { socket: socket.try_into()?, has_all: Arc::default() })
    }

    /// Ends the program's reading also where a forked child has inherited this descriptor, which it never closes.
    fn end(self) -> io::Result<()> {
        self.socket.socket()?.shutdown(Shutdown::Both)
    }
}

impl AsyncRead for Program {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A program that closes its end with unread bytes resets the pair. That comes after the last byte, as the end of file.
        let read = ready!(Pin::new(&mut self.socket).poll_read(cx, buf));
        Poll::Ready(read.or_else(|error| if has_closed(&error) { Ok(()) } else { Err(error) }))
    }
}

impl AsyncWrite for Program {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.socket).poll_write(cx, buf));
        Poll::Ready(written.or_else(|error| if has_closed(&error) { Ok(buf.len()) } else { Err(error) }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.has_all.store(true, Ordering::Relaxed);
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

fn has_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::thread;

    use tokio::io::{AsyncReadExt, ReadBuf};

    use super::*;

    /// It takes everything, and reports at the end that it is lost; or it was cut, as TLS reports it.
    struct Broken {
        is_cut: bool,
    }

    impl AsyncRead for Broken {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.is_cut { Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())) } else { Poll::Pending }
        }
    }

    impl AsyncWrite for Broken {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(if self.is_cut { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) })
        }
    }

    #[test]
    fn a_connection_that_was_cut_is_reported() {
        let socket = over(Broken { is_cut: true }).expect("sockets");
        // The end of file comes after the cut.
        UnixStream::from(socket.try_clone().expect("a copy")).read_exact(&mut [0]).expect_err("the end");
        let lost = close(socket, Duration::from_secs(60)).expect_err("it was cut");
        assert_eq!(lost.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_was_written_arrives_though_the_answers_are_not_read() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let mut socket = UnixStream::from(over(ours).expect("sockets"));
        let requests = [b'r'; 10_000];
        socket.write_all(&requests).expect("there is room");
        block_on(theirs.write_all(b"answer")).expect("starts").expect("open");
        socket.read_exact(&mut [0]).expect("the first byte");
        drop(socket);
        let mut arrived = Vec::new();
        let serving = async {
            // More than the connection takes at once: the pump has found out that the socket is closed.
            theirs.write_all(&[b'a'; 1000]).await?;
            theirs.read_to_end(&mut arrived).await
        };
        block_on(serving).expect("starts").expect("end of file");
        assert!(arrived == requests, "{} of {} bytes", arrived.len(), requests.len());
    }

    #[test]
    fn what_has_arrived_is_read_though_nothing_can_be_written_any_more() {
        // Also more than the socket takes, but less than that and what the pump holds.
        for len in (100_000..500_000).step_by(20_011).chain([4 << 20]) {
            reads_all_that_has_arrived(len);
        }
    }

    fn reads_all_that_has_arrived(len: usize) {
        let sent: Vec<u8> = (0..len).map(|byte| byte as u8).collect();
        let (gone, _) = tokio::io::duplex(1);
        let left = tokio::io::join(io::Cursor::new(sent.clone()), gone);
        let mut socket = UnixStream::from(over(left).expect("sockets"));
        // More than the socket takes: the pump has read some of it before this returns, and has failed to write it.
        let written = socket.write_all(&vec![b'x'; 1 << 20]);
        let mut arrived = Vec::new();
        let read = socket.read_to_end(&mut arrived);
        for ended in [written.err(), read.err()].into_iter().flatten() {
            assert!(has_closed(&ended), "{ended}");
        }
        assert!(arrived == sent, "{} of {} bytes", arrived.len(), sent.len());
        // The first write may be lost before the pump knows of the end.
        let failed = (0..100_000).find_map(|_| socket.write_all(b"x").err()).expect("an error");
        assert!(has_closed(&failed), "{failed}");
        let lost = close(socket.into(), Duration::from_secs(60)).expect_err("it is lost");
        assert_eq!(lost.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn closing_reports_what_was_lost() {
        let socket = over(Broken { is_cut: false }).expect("sockets");
        let lost = close(socket, Duration::from_secs(60)).expect_err("it is lost");
        assert_eq!(lost.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn closing_reports_a_failure_of_before() {
        let mut socket = UnixStream::from(over(Broken { is_cut: false }).expect("sockets"));
        socket.shutdown(Shutdown::Write).expect("connected");
        assert_eq!(socket.read(&mut [0]).expect("end of file"), 0);
        let lost = close(socket.into(), Duration::from_secs(60)).expect_err("it is lost");
        assert_eq!(lost.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn closing_what_has_delivered_everything_succeeds() {
        for patience in [Duration::from_secs(60), Duration::MAX] {
            let (ours, mut theirs) = tokio::io::duplex(64);
            let mut socket = UnixStream::from(over(ours).expect("sockets"));
            socket.write_all(b"all").expect("there is room");
            let closing = thread::spawn(move || close(socket.into(), patience));
            let mut all = Vec::new();
            block_on(theirs.read_to_end(&mut all)).expect("starts").expect("end of file");
            assert_eq!(all, b"all");
            drop(theirs);
            closing.join().expect("no panic").expect("delivered");
        }
    }
}
