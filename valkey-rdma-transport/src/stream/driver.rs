//! Who drives a stream: takes the device's events, so that receives are posted again and keepalives are answered even while
//! the application does nothing.
//!
//! Each [`Stream`] has a background task that does so, a [`Driver`]. An [`InlineStream`] drives itself, with a driver of its own.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep};

use super::Stream;
use super::connection::SharedConnection;
use super::connection::progress::{DriveOutcome, DriveUntil};

/// Drives until the connection has ended, or another driver has replaced this one.
pub(super) struct Driver {
    shared: SharedConnection,
    /// Identifies this driver among those that the connection has had.
    id: u64,
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes, since it was last set.
    timer_wakes: Option<Waker>,
}

impl Driver {
    /// Replaces the connection's current driver, if it has one.
    pub(super) fn new(shared: SharedConnection) -> Self {
        let (id, previous) = shared.with(|connection| connection.replace_driver());
        if let Some(previous) = previous {
            previous.wake();
        }
        Self { shared, id, timer: None, timer_wakes: None }
    }

    pub(super) fn shared(&self) -> &SharedConnection {
        &self.shared
    }

    /// Drives the connection until it has nothing to do. Ready when there is nothing left to drive.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let driven = self.shared.with(|connection| {
                (connection.driver == self.id)
                    .then(|| (connection.poll_device(cx, DriveUntil::Idle), connection.deadline()))
            });
            let Some((outcome, deadline)) = driven else { return Poll::Ready(()) };
            if let DriveOutcome::Done = outcome {
                return Poll::Ready(());
            }
            if !self.wait(cx, outcome, deadline) {
                return Poll::Pending;
            }
        }
    }

    /// Registers for the deadline, and for another poll if the outcome is to yield. Returns true if the deadline has
    /// passed: it was handled, so drive again.
    pub(super) fn wait(
        &mut self,
        cx: &mut Context<'_>,
        outcome: DriveOutcome,
        deadline: Option<Instant>,
    ) -> bool {
        // Deadlines first, so that a busy peer cannot keep us from noticing them.
        if self.poll_deadline(cx, deadline) {
            self.shared.with(|connection| connection.handle_timeout());
            return true;
        }
        if let DriveOutcome::Yield = outcome {
            // To the end of the run queue: ready tasks, timers and sockets come first.
            cx.waker().wake_by_ref();
        }
        false
    }

    /// Waits for the deadline. Returns whether it has passed. A deadline that moves later, as with every message, does not
    /// move the timer: it fires early, and is then set again.
    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else { return false };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() > deadline {
            timer.as_mut().reset(deadline);
            self.timer_wakes = None;
        }
        // Cheaper than another poll.
        if !timer.is_elapsed() && self.timer_wakes.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            return false;
        }
        loop {
            // Not counted, so that it keeps the waker although the task may have used up its share.
            if pin!(unconstrained(timer.as_mut())).poll(cx).is_pending() {
                self.timer_wakes = Some(cx.waker().clone());
                return false;
            }
            self.timer_wakes = None;
            if timer.deadline() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
    }
}

/// The background task of a stream.
impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().drive(cx)
    }
}

/// A [`Stream`] that is driven by the task that reads and writes it, from [`Stream::into_inline`]. No task runs in the
/// background, so a message wakes one task and not two, and an answer leaves before the device is armed again.
///
/// In return the connection makes progress only while it is polled: nothing else posts receives, notices the peer's
/// disconnect, or sends what the peer's window had no room for. So this is for tasks that **always have a read pending**
/// while they wait for anything, as a server's connection and a client's multiplexer have. To leave a connection idle,
/// turn it [back into a `Stream`](Self::into_stream). Use it from one task, or at least with one waker: the halves of
/// `tokio::io::split` in two tasks would take each other's wake-ups.
///
/// Reading, writing and shutdown work as on a [`Stream`], cancel safety included. Dropping it closes the connection in
/// the background.
///
/// # Panics
/// If it is read outside of a tokio runtime. Writing and shutdown use the one that it was made in.
#[derive(Debug)]
pub struct InlineStream {
    /// Dropped before the stream, so that the background drives again when the stream closes.
    driving: BackgroundOnDrop,
    stream: Stream,
}

/// Starts the background task again when it is dropped.
struct BackgroundOnDrop {
    driver: Driver,
    runtime: Handle,
}

impl InlineStream {
    pub(super) fn new(stream: Stream) -> Self {
        let driver = Driver::new(stream.shared.clone());
        Self { driving: BackgroundOnDrop { driver, runtime: Handle::current() }, stream }
    }

    /// Lets a background task drive the connection from now on.
    pub fn into_stream(self) -> Stream {
        let Self { driving, stream } = self;
        drop(driving);
        stream
    }

    /// [`Stream::poll_write_with`], which also drives the connection while it has to wait.
    ///
    /// # Errors
    /// Same errors as [`Stream::write_with`].
    ///
    /// # Panics
    /// If `fill` returns more than `len`.
    pub fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> usize,
    ) -> Poll<io::Result<usize>> {
        self.poll_driving(cx, |stream, cx| stream.poll_write_with(cx, len, fill))
    }

    /// Polls. If that returns `Pending`, drives the connection and polls again, because driving may have brought what
    /// was missing.
    fn poll_driving<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Stream, &mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let polled = poll(&mut self.stream, cx);
        if polled.is_ready() {
            return polled;
        }
        // The timer needs the runtime, which the caller's thread may not have.
        let _entered = self.driving.runtime.enter();
        // When the connection has ended, the second poll reports it.
        let _ = self.driving.driver.drive(cx);
        poll(&mut self.stream, cx)
    }
}

impl Drop for BackgroundOnDrop {
    fn drop(&mut self) {
        if !self.driver.shared().with(|connection| connection.close_cause.is_some()) {
            self.runtime.spawn(Driver::new(self.driver.shared().clone()));
        }
    }
}

impl AsRef<Stream> for InlineStream {
    fn as_ref(&self) -> &Stream {
        &self.stream
    }
}

impl AsyncRead for InlineStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let (read, outcome, deadline, cause) = this.stream.shared.with(|connection| {
                let (read, outcome) = connection.poll_read_inline(cx, buf);
                // The deadline matters only to a task that goes to sleep.
                let deadline = if read.is_pending() { connection.deadline() } else { None };
                (read, outcome, deadline, connection.close_cause)
            });
            if let Poll::Ready(more) = read {
                return Poll::Ready(if more { Ok(()) } else { this.stream.end_of_file(cause) });
            }
            if !this.driving.driver.wait(cx, outcome, deadline) {
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for InlineStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_driving(cx, |stream, cx| stream.poll_write_slices(cx, &[buf]))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Always ready: writes are posted at once.
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_driving(cx, |stream, cx| Pin::new(stream).poll_shutdown(cx))
    }
}

impl fmt::Debug for BackgroundOnDrop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundOnDrop").finish_non_exhaustive()
    }
}
