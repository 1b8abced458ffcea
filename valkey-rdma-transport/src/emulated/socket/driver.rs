//! The task behind one end: moves bytes between its socket and the regions, and keeps time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::Socket;
use super::frame::{Frame, HEADER};
use super::session::{Incoming, OutgoingBytes, Phase, SocketLink, Violation};
use crate::emulated::queue_pair::{QueuePair, QueuePairState};
use crate::sync::DeadlineTimer;

/// Starts one end over a connected socket, with its task.
pub(super) fn start(side: QueuePair, phase: Phase, socket: Box<dyn Socket>) -> SocketLink {
    let link = SocketLink::idle(side, phase);
    tokio::spawn(Driver::new(link.clone(), socket));
    link
}

/// Runs until both ends know that the connection is over.
#[derive(Debug)]
pub(super) struct Driver {
    link: SocketLink,
    /// `None` once the peer is gone.
    socket: Option<Box<dyn Socket>>,
    input: Input,
    output: Output,
    timer: DeadlineTimer,
    /// This side leaves: until when it waits for the peer to take its good-bye and to close.
    goodbye_deadline: Option<Instant>,
    /// Nothing is written any more.
    shut: bool,
}

/// Why the socket is of no use any more.
#[derive(Debug)]
enum End {
    Closed,
    Broken(io::Error),
    Violation(&'static str),
}

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        End::Violation(violation.0)
    }
}

impl Driver {
    pub(super) fn new(link: SocketLink, socket: Box<dyn Socket>) -> Self {
        let (input, output) = (Input::new(), Output::default());
        let timer = DeadlineTimer::default();
        Self { link, socket: Some(socket), input, output, timer, goodbye_deadline: None, shut: false }
    }

    /// Reads and writes until neither goes on.
    fn exchange(&mut self, cx: &mut Context<'_>) -> Result<(), End> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        if self.link.with(|session| session.is_cut()) {
            // Silence, until the peer closes or this side has left: that much must be noticed, to give the socket back.
            while self.input.poll_discard(cx, socket)?.is_ready() {}
            return Ok(());
        }
        loop {
            let read = self.input.poll(cx, socket, &self.link)?;
            let written = self.output.poll(cx, socket, &self.link)?;
            if read.is_pending() && written.is_pending() {
                return Ok(());
            }
            // That the socket takes a frame says nothing of the peer; that it takes one again does.
            if read.is_ready() || self.output.unblocked {
                self.link.with(|session| session.heard());
            }
        }
    }

    /// The socket is of no use any more.
    fn end(&mut self, end: &End) {
        match end {
            End::Violation(what) => tracing::warn!(what, "the peer is no emulated device: connection closed"),
            End::Broken(error) => tracing::debug!(%error, "socket lost"),
            End::Closed => {}
        }
        self.link.with(|session| {
            if !session.is_cut() {
                session.peer_gone();
            }
        });
        self.socket = None;
    }

    /// Says good-bye, as far as that is due. `true`: the task has nothing more to do.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> bool {
        let (phase, cut, failed) = self
            .link
            .with(|session| (session.phase(), session.is_cut(), session.side.state == QueuePairState::Error));
        match phase {
            // Nothing can come of this socket. What is posted runs into its deadline, until the program disconnects.
            Phase::Gone => {
                self.socket = None;
                return failed;
            }
            Phase::NoListener => return true,
            Phase::Leaving { .. } => {}
            _ => return false,
        }
        let Some(socket) = &mut self.socket else { return true };
        let flushed = self.output.is_flushed() || self.output.is_torn();
        if flushed && !cut && !self.shut {
            self.shut = Pin::new(socket).poll_shutdown(cx).is_ready();
        }
        let now = Instant::now();
        *self.goodbye_deadline.get_or_insert(now + GOODBYE_LIMIT) <= now
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            // Before looking: what comes after the look wakes us again.
            this.link.with(|session| {
                session.driver = Some(cx.waker().clone());
                session.expire();
            });
            if let Err(end) = this.exchange(cx) {
                this.end(&end);
            }
            if this.poll_leave(cx) {
                return Poll::Ready(());
            }
            let deadline = this.link.with(|session| session.deadline());
            let Some(deadline) = deadline.into_iter().chain(this.goodbye_deadline).min() else {
                return Poll::Pending;
            };
            if !this.timer.poll_deadline(cx, deadline) {
                return Poll::Pending;
            }
        }
    }
}

/// What has come over the socket and was not acted on yet.
#[derive(Debug)]
struct Input {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes that are coming, and how many have come.
    landing: Option<(Incoming, usize)>,
}

impl Input {
    fn new() -> Self {
        Self { buffer: vec![0; INPUT].into_boxed_slice(), start: 0, end: 0, landing: None }
    }

    /// Reads once and acts on what came.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        socket: &mut dyn Socket,
        link: &SocketLink,
    ) -> Result<Poll<()>, End> {
        let read = match &mut self.landing {
            // Many bytes to come go straight to their place.
            Some((Incoming { len, place: Some((memory, range)), .. }, come))
                if memory.is_own()
                    && *len as usize - *come >= INPUT
                    && link.with(|session| session.takes_bytes()) =>
            {
                let mut memory = memory.lock();
                let read = poll_read(cx, socket, &mut memory[range.start + *come..range.end])?;
                read.map(|count| *come += count)
            }
            _ => {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
                let read = poll_read(cx, socket, &mut self.buffer[self.end..])?;
                read.map(|count| self.end += count)
            }
        };
        if read.is_ready() {
            self.act(link)?;
        }
        Ok(read)
    }

    /// Reads once and forgets what came.
    fn poll_discard(&mut self, cx: &mut Context<'_>, socket: &mut dyn Socket) -> Result<Poll<()>, End> {
        (self.start, self.end) = (0, 0);
        Ok(poll_read(cx, socket, &mut self.buffer)?.map(|_| ()))
    }

    /// Takes frames and their bytes out of the buffer, as far as they have come.
    fn act(&mut self, link: &SocketLink) -> Result<(), End> {
        loop {
            let held = &self.buffer[self.start..self.end];
            let Some((landing, come)) = &mut self.landing else {
                let Some(header) = held.first_chunk::<HEADER>() else { return Ok(()) };
                let frame = Frame::decode(header).map_err(|_| End::Violation("bytes that are no frame"))?;
                self.start += HEADER;
                let landing = link.with(|session| session.handle(frame))?;
                self.landing = landing.map(|landing| (landing, 0));
                continue;
            };
            let count = held.len().min(landing.len as usize - *come);
            if count > 0
                && let Some((memory, range)) = &landing.place
                && link.with(|session| session.takes_bytes())
            {
                let at = range.start + *come;
                memory.copy_in(at, &held[..count]);
            }
            self.start += count;
            *come += count;
            if *come < landing.len as usize {
                return Ok(());
            }
            link.with(|session| session.landed(landing));
            self.landing = None;
        }
    }
}

fn poll_read(cx: &mut Context<'_>, mut socket: &mut dyn Socket, room: &mut [u8]) -> Result<Poll<usize>, End> {
    let mut room = ReadBuf::new(room);
    match Pin::new(&mut socket).poll_read(cx, &mut room) {
        Poll::Ready(Ok(())) if room.filled().is_empty() => Err(End::Closed),
        Poll::Ready(Ok(())) => Ok(Poll::Ready(room.filled().len())),
        Poll::Ready(Err(error)) => Err(End::Broken(error)),
        Poll::Pending => Ok(Poll::Pending),
    }
}

/// What is to go over the socket.
#[derive(Debug, Default)]
struct Output {
    buffer: Vec<u8>,
    written: usize,
    /// Bytes that are going, from the first that is not in the buffer yet.
    going: Option<OutgoingBytes>,
    /// A request's bytes ended before its length: nothing can follow.
    torn: bool,
    /// The socket took nothing when it was last asked to.
    blocked: bool,
    /// It took something again after that.
    unblocked: bool,
}

impl Output {
    fn is_flushed(&self) -> bool {
        self.written == self.buffer.len() && self.going.is_none()
    }

    fn is_torn(&self) -> bool {
        self.torn && self.written == self.buffer.len()
    }

    /// Writes once, if there is anything to write.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut socket: &mut dyn Socket,
        link: &SocketLink,
    ) -> Result<Poll<()>, End> {
        self.unblocked = false;
        if self.written == self.buffer.len() {
            self.buffer.clear();
            self.written = 0;
            self.fill(link);
            if self.buffer.is_empty() {
                return Ok(Poll::Pending);
            }
        }
        match Pin::new(&mut socket).poll_write(cx, &self.buffer[self.written..]) {
            Poll::Ready(Ok(0)) => Err(End::Closed),
            Poll::Ready(Ok(count)) => {
                self.written += count;
                self.unblocked = std::mem::take(&mut self.blocked);
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Err(error)) => Err(End::Broken(error)),
            Poll::Pending => {
                self.blocked = true;
                Ok(Poll::Pending)
            }
        }
    }

    /// Puts frames and their bytes into the buffer until it is full.
    fn fill(&mut self, link: &SocketLink) {
        while self.buffer.len() < OUTPUT && !self.torn {
            if let Some(bytes) = &mut self.going {
                let start = bytes.range.start;
                let end = bytes.range.end.min(start + OUTPUT - self.buffer.len());
                if !link.with(|session| session.sends_bytes(bytes))
                    || !bytes.memory.copy_to(start..end, &mut self.buffer)
                {
                    self.torn = true;
                    self.going = None;
                    return;
                }
                bytes.range.start = end;
                if bytes.range.is_empty() {
                    self.going = None;
                }
                continue;
            }
            let Some(next) = link.with(|session| session.next_frame()) else { return };
            self.buffer.extend_from_slice(&next.frame.encode());
            self.going = next.bytes;
        }
    }
}

/// Bytes read at once, unless they go straight into a region.
const INPUT: usize = 16 << 10;

/// Bytes written at once.
const OUTPUT: usize = 64 << 10;

/// How long an end that leaves waits for the other to read its good-bye and to close. Closing earlier could make the
/// kernel take back what the peer has not read.
const GOODBYE_LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
