//! The stream.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf};

use super::reactor::{Guest, Reactor};
use super::readiness::Readiness;
use crate::config::Config;
use crate::device::{DeviceKind, Obstacle};
use crate::error::TransportError;
use crate::stats::{Info, Stats};
use crate::stream::Monitor;
use crate::sync::{Mutex, MutexGuard, lock};

/// An ordered, reliable byte stream over one RDMA connection: what `std::net::TcpStream` is over TCP, with the same methods.
///
/// What differs, the protocol asks for: it has no half-close. [`shutdown`](Self::shutdown) of writing delivers what was written and
/// then ends both directions, after [`Config::linger`]; what arrived before can still be read. Dropping the last clone does the same,
/// and waits for the peer's device to acknowledge what was written, for [`Config::close_timeout`] at most: a program that ends then
/// loses nothing.
///
/// Clones share the connection, and its deadlines. One thread may read while another writes. Of two that read, or write, the second
/// waits until the first has returned, and only then its deadline begins; if it may not wait, it returns
/// [`io::ErrorKind::WouldBlock`]. So let one thread read, and one write.
///
/// A stream belongs to the process that made it. In a child forked from that, reads and writes fail, and dropping it does nothing.
#[derive(Debug)]
pub struct Stream {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    reader: Mutex<ReadHalf<crate::Stream>>,
    writer: Mutex<WriteHalf<crate::Stream>>,
    readable: Readiness,
    writable: Readiness,
    settings: Mutex<Settings>,
    monitor: Monitor,
    reactor: Reactor,
    /// Of a nonblocking stream, whose descriptors the program waits for.
    guest: Mutex<Option<Guest>>,
    /// Reading was shut down here: there is nothing more to read.
    read_shut: Shut,
    /// Writing was shut down here: nothing more can be written.
    write_shut: Shut,
}

#[derive(Clone, Copy, Debug, Default)]
struct Settings {
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    nonblocking: bool,
}

impl Stream {
    /// Connects to a server and waits until both sides know each other's memory.
    ///
    /// # Errors
    /// As for [`Stream::connect`](crate::Stream::connect); the [`TransportError`] is the source. [`Config`] has the deadline.
    pub fn connect(kind: DeviceKind, peer: SocketAddr, config: &Config) -> io::Result<Self> {
        let reactor = Reactor::of_process()?;
        let connected = reactor.call_until(None, crate::Stream::connect(kind, peer, config));
        Self::new(connected.expect("without a deadline it waits").map_err(as_io_error)?, reactor)
    }

    pub(super) fn new(stream: crate::Stream, reactor: Reactor) -> io::Result<Self> {
        let monitor = stream.monitor();
        let (reader, writer) = tokio::io::split(stream);
        let shared = Shared {
            reader: Mutex::new(reader),
            writer: Mutex::new(writer),
            readable: Readiness::new()?,
            writable: Readiness::new()?,
            settings: Mutex::default(),
            monitor,
            reactor,
            guest: Mutex::default(),
            read_shut: Shut::default(),
            write_shut: Shut::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Another handle to the same connection.
    ///
    /// # Errors
    /// Never. It returns a result as [`TcpStream::try_clone`](std::net::TcpStream::try_clone) does, which duplicates a descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Ends writing, or both directions: delivers what was written and disconnects. See [`Stream`]. [`Shutdown::Read`] only
    /// makes reads on this side return end of file. Threads that wait in a read or write which this ends return: reads end of file,
    /// writes [`io::ErrorKind::BrokenPipe`].
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] if not all could be delivered within [`Config::close_timeout`], and the errors of a connection that
    /// has failed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.shared.read_shut.set();
        }
        if how == Shutdown::Read {
            return Ok(());
        }
        self.shared.write_shut.set();
        self.shared.close()
    }

    /// How long a read may wait, to a millisecond; `None` is for ever, the default.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for zero, as in the standard library.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.shared.settings().read_timeout = not_zero(limit)?;
        Ok(())
    }

    /// How long a write may wait, to a millisecond; `None` is for ever, the default.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for zero, as in the standard library.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.shared.settings().write_timeout = not_zero(limit)?;
        Ok(())
    }

    /// How long a read may wait.
    pub fn read_timeout(&self) -> Option<Duration> {
        self.shared.settings().read_timeout
    }

    /// How long a write may wait.
    pub fn write_timeout(&self) -> Option<Duration> {
        self.shared.settings().write_timeout
    }

    /// Whether reads and writes return [`io::ErrorKind::WouldBlock`] instead of waiting. [`readable_fd`](Self::readable_fd) and
    /// [`writable_fd`](Self::writable_fd) then say when to try again.
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.shared.settings().nonblocking = nonblocking;
        *lock(&self.shared.guest) = nonblocking.then(|| self.shared.reactor.guest());
    }

    /// A descriptor for `poll(2)` and the like, which becomes readable when a read that returned [`io::ErrorKind::WouldBlock`] is worth
    /// another try. Before such a read it is readable too. Only watch it: what is read from it means nothing.
    pub fn readable_fd(&self) -> BorrowedFd<'_> {
        self.shared.readable.as_fd()
    }

    /// The same for writes: it becomes readable when there is room.
    pub fn writable_fd(&self) -> BorrowedFd<'_> {
        self.shared.writable.as_fd()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.shared.monitor.info().peer_addr
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.monitor.info().local_addr
    }

    /// What the connection runs on: device, windows, polling.
    pub fn info(&self) -> Info {
        self.shared.monitor.info()
    }

    /// The connection's counters.
    pub fn stats(&self) -> Stats {
        self.shared.monitor.stats()
    }
}

impl Shared {
    fn settings(&self) -> MutexGuard<'_, Settings> {
        lock(&self.settings)
    }

    /// Runs `step` until it is ready, as the settings allow, in the turn of this thread.
    fn run<H, T>(
        &self,
        half: &Mutex<H>,
        timeout: impl FnOnce(&Settings) -> Option<Duration>,
        readiness: &Readiness,
        mut step: impl FnMut(&mut H, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        self.reactor.check_process("connection")?;
        let settings = *self.settings();
        let mut half = if settings.nonblocking { readiness.try_turn(half)? } else { lock(half) };
        let mut step = |cx: &mut Context<'_>| step(&mut half, cx);
        let done = if settings.nonblocking {
            let _entered = self.reactor.enter();
            readiness.attempt(step).map(Some)
        } else {
            // A limit beyond what the clock can say is none.
            let deadline = timeout(&settings).and_then(|limit| Instant::now().checked_add(limit));
            Poll::Ready(self.reactor.call_until(deadline, poll_fn(&mut step)))
        };
        drop(half);
        // A stream that waited woke this thread in place of the descriptor.
        if done.is_ready() {
            readiness.raise();
        }
        readiness.end_turn();
        match done {
            Poll::Ready(Some(done)) => done,
            // What the system calls of a socket return when their time is up, too.
            Poll::Ready(None) | Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn read(&self, room: &mut [u8]) -> io::Result<usize> {
        if room.is_empty() {
            return Ok(0);
        }
        self.run(
            &self.reader,
            |settings| settings.read_timeout,
            &self.readable,
            |reader, cx| {
                let read = |cx: &mut Context<'_>| {
                    let mut room = ReadBuf::new(room);
                    Pin::new(&mut *reader).poll_read(cx, &mut room).map_ok(|()| room.filled().len())
                };
                self.read_shut.unless_set(cx, read).map(|read| read.unwrap_or(Ok(0)))
            },
        )
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.run(
            &self.writer,
            |settings| settings.write_timeout,
            &self.writable,
            |writer, cx| {
                let written =
                    self.write_shut.unless_set(cx, |cx| Pin::new(&mut *writer).poll_write(cx, bytes));
                written.map(|written| written.unwrap_or(Err(io::ErrorKind::BrokenPipe.into())))
            },
        )
    }

    /// Delivers what was written, and disconnects. The connection's own deadlines end it.
    fn close(&self) -> io::Result<()> {
        self.reactor.check_process("connection")?;
        let mut writer = lock(&self.writer);
        let closed = self.reactor.call_until(None, poll_fn(|cx| Pin::new(&mut *writer).poll_shutdown(cx)));
        closed.unwrap_or(Ok(()))
    }
}

/// Whether a direction was shut down here. At most one thread waits for each direction: others wait for its lock.
#[derive(Debug, Default)]
struct Shut {
    set: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Shut {
    /// Sets it, and wakes the thread that waits.
    fn set(&self) {
        self.set.store(true, Ordering::SeqCst);
        if let Some(waiting) = lock(&self.waiting).take() {
            waiting.wake();
        }
    }

    /// Runs one try. `None`: it is set.
    fn unless_set<T>(
        &self,
        cx: &mut Context<'_>,
        step: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Option<T>> {
        if self.set.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(done) = step(cx) {
            return Poll::Ready(Some(done));
        }
        // The waker first: a thread that sets it after the look wakes this one.
        *lock(&self.waiting) = Some(cx.waker().clone());
        if self.set.load(Ordering::SeqCst) { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Dropping a child's copy would end its parent's connection: both have the same kernel objects.
        if self.shared.reactor.owner_elsewhere().is_some() {
            mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(%error, "not all that was written could be delivered");
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.shared.read(room)
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.shared.read(room)
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn as_io_error(error: TransportError) -> io::Error {
    let kind = match &error {
        TransportError::Refused { .. } | TransportError::Rejected { .. } => io::ErrorKind::ConnectionRefused,
        TransportError::Unreachable { .. } | TransportError::Resolve { .. } => io::ErrorKind::HostUnreachable,
        TransportError::ConnectTimeout { .. } | TransportError::SilentInHandshake { .. } => {
            io::ErrorKind::TimedOut
        }
        TransportError::ClosedInHandshake { .. } => io::ErrorKind::ConnectionReset,
        TransportError::Listen { source, .. } => source.kind(),
        TransportError::Obstacle { obstacle: Obstacle::Refused { error, .. }, .. } => error.kind(),
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

fn not_zero(limit: Option<Duration>) -> io::Result<Option<Duration>> {
    match limit {
        Some(Duration::ZERO) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout of zero: use set_nonblocking"))
        }
        limit => Ok(limit),
    }
}

#[cfg(all(test, feature = "emulated"))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;
    use crate::blocking::Listener;

    fn pair() -> (Stream, Stream) {
        let any_port = ([127, 0, 0, 1], 0).into();
        let listener = Listener::bind(DeviceKind::Emulated, any_port, &Config::default()).expect("listens");
        let addr = listener.local_addr();
        let connecting =
            thread::spawn(move || Stream::connect(DeviceKind::Emulated, addr, &Config::default()));
        let server = listener.accept().expect("accepts");
        (connecting.join().expect("no panic").expect("connects"), server)
    }

    #[test]
    fn a_nonblocking_call_does_not_wait_for_another_thread() {
        let (client, _server) = pair();
        client.set_nonblocking(true);
        // As threads that wait in a read and in a write hold them.
        let (_reading, _writing) = (lock(&client.shared.reader), lock(&client.shared.writer));
        let (done, tried) = mpsc::channel();
        let clone = client.try_clone().expect("shares");
        thread::spawn(move || {
            let read = (&clone).read(&mut [0]).map_err(|error| error.kind());
            let written = (&clone).write(&[0]).map_err(|error| error.kind());
            done.send([read, written])
        });
        let tried = tried.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        assert_eq!(tried, [Err(io::ErrorKind::WouldBlock); 2]);
        // A program that waits for the descriptors does not try again and again.
        for fd in [client.readable_fd(), client.writable_fd()] {
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&Timespec::default())).expect("polls"), 0);
        }
    }
}
