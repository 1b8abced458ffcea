//! [`Private`]: a connection to the server for one local client, while the client has state or streams a long command.

mod tracker;

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use valkey_rdma_resp::{FrameScanner, Output, words};

pub(crate) use self::tracker::{Event, database};
use self::tracker::{Fate, Mark, Tracker};
use crate::command::class::Class;
use crate::command::hello;
use crate::command::words::{encode, is};
use crate::session::clients::Target;
use crate::upstream::server::Upstream;

pub(crate) struct Private {
    pub(crate) upstream: Upstream,
    pub(crate) tracker: Tracker,
    /// Commands on their way to the server.
    commands: Output,
    /// Bytes were written that the stream may still hold.
    unflushed: bool,
    /// The last of them has begun, and not ended: only its rest may follow.
    is_open: bool,
    /// Whether `unanswered` includes that command.
    open_is_counted: bool,
    scanner: FrameScanner,
    replies: BytesMut,
    scanned: usize,
    /// The first bytes of the present frame, once a part of it was passed on.
    begun: Option<Bytes>,
    name: String,
    /// The number of the local client.
    client: u64,
    /// The client that invalidations are redirected to, and the server's number of its connection.
    redirect: Option<(Target, u64)>,
}

impl Private {
    pub(crate) fn new(upstream: Upstream, name: &str) -> Self {
        Self {
            upstream,
            tracker: Tracker::default(),
            commands: Output::default(),
            unflushed: false,
            is_open: false,
            open_is_counted: false,
            scanner: FrameScanner::default(),
            replies: BytesMut::new(),
            scanned: 0,
            begun: None,
            name: name.to_owned(),
            client: 0,
            redirect: None,
        }
    }

    /// Whether an idle connection is still open, and the server has sent nothing.
    pub(crate) fn is_usable(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let silent = pin!(self.upstream.stream.read_buf(&mut self.replies)).poll(&mut cx).is_pending();
        silent && self.replies.is_empty()
    }

    /// Forgets what the last client did. Only a [plain](Self::is_plain) connection may have another.
    pub(crate) fn forget(&mut self) {
        self.tracker = Tracker::default();
        self.redirect = None;
    }

    /// Gives the connection to a local client, which has this number.
    pub(crate) fn set_client(&mut self, id: u64) {
        self.client = id;
    }

    /// Keeps the client that invalidations are redirected to on its private connection, which has this number at the server.
    pub(crate) fn set_redirect(&mut self, target: Target, theirs: u64) {
        self.redirect = Some((target, theirs));
    }

    /// A reply with the gateway's number in place of the server's.
    fn renumbered(&self, reply: Bytes) -> Bytes {
        let (Some((target, theirs)), Ok(text)) = (&self.redirect, str::from_utf8(&reply)) else {
            return reply;
        };
        text.replace(&format!(":{theirs}\r\n"), &format!(":{}\r\n", target.id())).into()
    }

    /// Names the connection at the server as its client is named. The reply is dropped.
    pub(crate) fn set_name(&mut self, name: &str) {
        if self.name != name {
            name.clone_into(&mut self.name);
            self.commands.put(&encode(["CLIENT", "SETNAME", name]));
            self.tracker.sent_ours();
        }
    }

    /// Queues a command, or without `complete` the first part of one.
    ///
    /// WAIT is about the last write of its connection, and the client's writes went over another one. So a message to no subscriber goes
    /// first: the server replicates it as a write, after all that the client has written.
    pub(crate) fn send(&mut self, class: Class, command: &Bytes, complete: bool) {
        let waits = || words(command).next().is_some_and(|name| is(name, "WAIT") || is(name, "WAITAOF"));
        if class == Class::Alone && !self.tracker.is_opaque() && waits() {
            self.commands.put(&encode(["PUBLISH", env!("CARGO_PKG_NAME"), "wait"]));
            self.tracker.sent_before_wait();
        }
        let before = self.unanswered();
        self.tracker.sent(class, command);
        self.open_is_counted = self.unanswered() > before;
        self.send_on(command, complete);
        // It was RESET, and nothing follows until its end was seen.
        if let Some(mark) = self.tracker.mark() {
            self.commands.put(&mark.command());
        }
    }

    /// Queues the next part of a command; its last one if `complete`.
    pub(crate) fn send_on(&mut self, part: &Bytes, complete: bool) {
        self.commands.put_shared(part);
        self.is_open = !complete;
    }

    /// Queues bytes that are not commands.
    pub(crate) fn send_raw(&mut self, bytes: &Bytes) {
        self.commands.put_shared(bytes);
    }

    /// Whether a command has begun and not ended. Nothing but its rest may be sent: the server would read it as part of an argument.
    pub(crate) fn has_open_command(&self) -> bool {
        self.is_open
    }

    /// Bytes that wait to be sent.
    pub(crate) fn unsent(&self) -> usize {
        self.commands.remaining()
    }

    /// Whether all commands were sent.
    pub(crate) fn has_sent_all(&self) -> bool {
        !self.commands.has_remaining() && !self.unflushed
    }

    /// Commands without a reply.
    pub(crate) fn unanswered(&self) -> usize {
        self.tracker.unanswered()
    }

    /// Same, without the [open](Self::has_open_command) one: the server answers a command when it has all of it.
    pub(crate) fn owed(&self) -> usize {
        self.unanswered().saturating_sub(usize::from(self.is_open && self.open_is_counted))
    }

    /// Whether the next reply that the server owes may take for ever.
    pub(crate) fn blocks_now(&self) -> bool {
        self.owed() > 0 && self.tracker.blocks_now()
    }

    /// Whether the connection has no state, and owes no reply.
    pub(crate) fn is_plain(&self) -> bool {
        self.tracker.is_plain()
            && !self.is_open
            && self.begun.is_none()
            && self.replies.is_empty()
            && !self.commands.has_remaining()
    }

    /// Changes of the client's identity, as far as the server has confirmed them.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let events = self.tracker.take_events();
        for event in &events {
            if let Event::Name(name) = event {
                self.name = String::from_utf8_lossy(name).into_owned();
            }
        }
        events
    }

    /// Writes what waits. Ready with the reason if the connection is lost.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        while self.commands.has_remaining() {
            let mut slices = [io::IoSlice::new(&[]); SLICES];
            let count = self.commands.chunks_vectored(&mut slices);
            let stream = Pin::new(&mut self.upstream.stream);
            match stream.poll_write_vectored(cx, &slices[..count]) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready("it takes no more bytes".to_owned()),
                Poll::Ready(Ok(len)) => self.commands.advance(len),
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
            }
            self.unflushed = true;
        }
        if self.unflushed {
            match Pin::new(&mut self.upstream.stream).poll_flush(cx) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
            }
        }
        Poll::Pending
    }

    /// Whether the server sends its last replies after this side has ended. RDMA has no half-close.
    pub(crate) fn keeps_half_open(&self) -> bool {
        self.upstream.stream.info().device.is_none()
    }

    /// Writes what waits, and then the end, if the server [can reply](Self::keeps_half_open) after that. Ready with the reason if the
    /// connection is lost.
    pub(crate) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        if let Poll::Ready(cause) = self.poll_send(cx) {
            return Poll::Ready(cause);
        }
        if self.has_sent_all() && self.keeps_half_open() {
            // A failure is that of the next read, too.
            let _ = Pin::new(&mut self.upstream.stream).poll_shutdown(cx);
        }
        Poll::Pending
    }

    /// Moves replies to `out`, up to `most` bytes. Ready with the reason if the connection is lost.
    pub(crate) fn poll_replies(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Output,
        most: usize,
    ) -> Poll<String> {
        while out.remaining() < most {
            self.replies.reserve(READ);
            match pin!(self.upstream.stream.read_buf(&mut self.replies)).poll(cx) {
                Poll::Pending => {
                    if self.replies.is_empty() {
                        self.replies = BytesMut::new();
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => return Poll::Ready("the server closed it".to_owned()),
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Ready(Ok(_)) => {}
            }
            if let Err(error) = self.pass_on(out) {
                return Poll::Ready(format!("the server broke the protocol: {error}"));
            }
        }
        Poll::Pending
    }

    /// Reads on into `room` in the middle of a string, of which at least that much is still to come, and the first part was
    /// [passed on](Self::poll_replies). So it is copied once less.
    pub(crate) fn poll_string(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Result<usize, String>> {
        debug_assert!(self.begun.is_some() && self.replies.is_empty(), "the first part is passed on");
        let mut room = ReadBuf::new(room);
        let read = ready!(Pin::new(&mut self.upstream.stream).poll_read(cx, &mut room));
        Poll::Ready(match (read, room.filled()) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), []) => Err("the server closed it".to_owned()),
            (Ok(()), bytes) => match self.scanner.scan(bytes) {
                Ok(found) if !found.complete => Ok(bytes.len()),
                _ => Err("the server broke the protocol: a string is shorter than announced".to_owned()),
            },
        })
    }

    /// Writes some of the rest of the [open](Self::has_open_command) command from where it lies, behind all that waits.
    pub(crate) fn poll_argument(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, String>> {
        if let Poll::Ready(cause) = self.poll_send(cx) {
            return Poll::Ready(Err(cause));
        }
        if self.commands.has_remaining() {
            return Poll::Pending;
        }
        let written = ready!(Pin::new(&mut self.upstream.stream).poll_write(cx, bytes));
        self.unflushed = true;
        Poll::Ready(match written {
            Ok(0) => Err("it takes no more bytes".to_owned()),
            written => written.map_err(|error| error.to_string()),
        })
    }

    fn pass_on(&mut self, out: &mut Output) -> Result<(), valkey_rdma_resp::RespError> {
        loop {
            if self.tracker.passes_raw() {
                self.scanned = 0;
                out.put_shared(&self.replies.split().freeze());
                return Ok(());
            }
            let found = self.scanner.scan(&self.replies[self.scanned..])?;
            self.scanned += found.len;
            if !found.complete {
                if self.begun.is_some() || self.scanned >= PIECE {
                    let part = self.take_scanned();
                    self.begun.get_or_insert_with(|| part.slice(..part.len().min(HEAD)));
                    out.put_shared(&part);
                }
                return Ok(());
            }
            let part = self.take_scanned();
            let fate = match self.begun.take() {
                Some(head) => self.tracker.received(&head, false),
                None => {
                    if part.starts_with(b"-") {
                        self.upstream.note(&part, Instant::now());
                    }
                    self.tracker.received(&part, true)
                }
            };
            match fate {
                Fate::PassOn => out.put_shared(&part),
                Fate::Hello => out.put_shared(&hello::with_id(&part, self.client)),
                Fate::Renumber => out.put_shared(&self.renumbered(part)),
                Fate::Replace(reply) => out.put_shared(&reply),
                Fate::Drop => {}
            }
        }
    }

    fn take_scanned(&mut self) -> Bytes {
        self.replies.split_to(std::mem::take(&mut self.scanned)).freeze()
    }

    /// Ends all state, after the replies that the server owes.
    ///
    /// Which replies those are need not be known, and a script may have answered `+RESET`. So a [mark](Mark) follows RESET.
    pub(crate) async fn reset(&mut self) -> io::Result<()> {
        if self.is_open || self.commands.has_remaining() || self.tracker.is_raw() {
            return Err(io::Error::other("its last command is incomplete"));
        }
        let mark = Mark::new();
        self.commands.put(&[encode(["RESET"]), mark.command()].concat());
        let mut before = false;
        poll_fn(|cx| {
            if let Poll::Ready(cause) = self.poll_send(cx) {
                return Poll::Ready(Err(io::Error::other(cause)));
            }
            loop {
                while let Some(frame) = self.next_dropped().map_err(io::Error::other)? {
                    if mark.is_in(&frame) {
                        let clean = before && self.replies.is_empty();
                        let result =
                            if clean { Ok(()) } else { Err(io::Error::other("RESET did not succeed")) };
                        return Poll::Ready(result);
                    }
                    before = frame == b"+RESET\r\n"[..];
                }
                self.replies.reserve(READ);
                if ready!(pin!(self.upstream.stream.read_buf(&mut self.replies)).poll(cx))? == 0 {
                    return Poll::Ready(Err(io::Error::other("the server closed it")));
                }
            }
        })
        .await
    }

    /// The next frame of a client that has gone: nothing of it, if it is long.
    fn next_dropped(&mut self) -> Result<Option<Bytes>, valkey_rdma_resp::RespError> {
        let found = self.scanner.scan(&self.replies[self.scanned..])?;
        self.scanned += found.len;
        if found.complete {
            let begun = self.begun.take().is_some();
            let part = self.take_scanned();
            return Ok(Some(if begun { Bytes::new() } else { part }));
        }
        if self.begun.is_some() || self.scanned >= PIECE {
            self.begun = Some(Bytes::new());
            drop(self.take_scanned());
        }
        Ok(None)
    }
}

/// Room for one read.
const READ: usize = 64 * 1024;
/// A reply is passed on before it is complete from this length on.
const PIECE: usize = 16 * 1024;
/// Bytes of a long reply that are kept, to see what it is.
const HEAD: usize = 64;
/// Slices of one write.
const SLICES: usize = 16;
