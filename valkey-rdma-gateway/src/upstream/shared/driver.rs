//! [`Driver`]: moves bytes between the queue, the connection and the inboxes, until the connection ends.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::time::{Sleep, sleep};
use tracing::{info, warn};
use valkey_rdma_client::ByteStream;
use valkey_rdma_resp::{FrameScanner, RespError};
use valkey_rdma_transport::sync::DeadlineTimer;

use super::{IDLE, SILENT, Shared};
use crate::config::limits::Limits;
use crate::core::Core;
use crate::session::inbox::{End, Inbox};
use crate::upstream::pool::Pool;
use crate::upstream::server::Upstream;

/// Serves one connection.
pub(super) struct Driver<'a> {
    shared: &'a Arc<Shared>,
    pool: &'a Arc<Pool>,
    core: &'a Core,
    /// Those at the last read.
    limits: Arc<Limits>,
    upstream: Upstream,
    /// Being written, from `begin` on.
    batch: Vec<u8>,
    begin: usize,
    /// Bytes were written that the stream may still hold.
    unflushed: bool,
    /// When the batch's first command was read from its client, and how many commands it has.
    batch_queued: (Instant, usize),
    scanner: FrameScanner,
    replies: BytesMut,
    /// Bytes of `replies` that the scanner has passed.
    scanned: usize,
    /// Bytes of the present frame were passed on.
    begun: bool,
    /// The present frame is a push message, which no client has asked for here.
    dropping: bool,
    /// While all clients together leave too many replies unread: one that does, and until when it may.
    slow: Option<(Arc<Inbox>, Pin<Box<Sleep>>)>,
    timer: DeadlineTimer,
    /// When it is time to look for clients, and for a reply that the server owes.
    due: tokio::time::Instant,
    /// The log says that the server owes a reply.
    is_silent: bool,
    /// When something last came from the server, or the connection was made.
    heard: Instant,
}

/// How a connection ended.
pub(super) enum Ended {
    /// It had no clients for a while, and the queue is closed.
    Idle,
    /// The server's name has come to mean another one. All that was sent on it is answered; `batch` was sent last.
    Moved { batch: Vec<u8> },
    /// `batch` was being written.
    Lost { cause: String, batch: Vec<u8> },
}

impl<'a> Driver<'a> {
    pub(super) fn new(
        shared: &'a Arc<Shared>,
        pool: &'a Arc<Pool>,
        core: &'a Core,
        mut upstream: Upstream,
    ) -> Self {
        upstream.stream = upstream.stream.driven();
        Self {
            shared,
            pool,
            core,
            limits: core.limits(),
            upstream,
            batch: Vec::new(),
            begin: 0,
            unflushed: false,
            batch_queued: (Instant::now(), 0),
            scanner: FrameScanner::default(),
            replies: BytesMut::new(),
            scanned: 0,
            begun: false,
            dropping: false,
            slow: None,
            timer: DeadlineTimer::default(),
            due: tokio::time::Instant::now() + SILENT,
            is_silent: false,
            heard: Instant::now(),
        }
    }

    pub(super) async fn run(mut self) -> Ended {
        match poll_fn(|cx| self.poll(cx)).await {
            None if self.shared.is_closed() => Ended::Idle,
            None => Ended::Moved { batch: self.batch },
            Some(cause) => Ended::Lost { cause, batch: self.batch },
        }
    }

    /// Ready with the reason if the connection is lost, with none if it is not needed any more or new commands belong to another server.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<String>> {
        if let Poll::Ready(cause) = self.poll_read(cx) {
            return Poll::Ready(Some(cause));
        }
        if let Poll::Ready(cause) = self.poll_write(cx) {
            return Poll::Ready(Some(cause));
        }
        // A closed queue gives way to another connection.
        if self.shared.is_closed() || self.has_moved() && self.is_answered() {
            return Poll::Ready(None);
        }
        while self.timer.poll_deadline(cx, self.due) {
            self.due = tokio::time::Instant::now() + SILENT;
            if self.shared.close_idle(self.upstream.idle_limit(IDLE)) {
                return Poll::Ready(None);
            }
            self.report_silence();
        }
        Poll::Pending
    }

    /// Whether new commands belong to another server.
    fn has_moved(&self) -> bool {
        !self.pool.server.is_current(&self.upstream)
    }

    /// Whether all that was taken from the queue is written and answered.
    fn is_answered(&self) -> bool {
        self.begin == self.batch.len() && self.shared.queue().first().is_none()
    }

    /// Logs that the server does not answer, and that it does again. The connection may stay: over TCP nothing ends it.
    fn report_silence(&mut self) {
        let (key, server) = (&self.shared.key, self.shared.standing.server());
        let now = Instant::now();
        // The command may have waited for this connection, and a long reply may be on its way.
        let owed = self.shared.owed_for(now).min(now.saturating_duration_since(self.heard));
        // While clients leave too much unread, nothing is read from the server.
        let is_silent = owed > SILENT && self.slow.is_none();
        match (std::mem::replace(&mut self.is_silent, is_silent), is_silent) {
            (false, true) => {
                let owed_ms = owed.as_millis();
                warn!(%key, %server, owed_ms, "the server owes a reply: it is frozen, or runs a slow command");
            }
            (true, false) => info!(%key, %server, "the server answers again"),
            _ => {}
        }
    }

    /// Ready with the reason if writing failed.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if self.begin == self.batch.len() {
                if self.has_moved() {
                    return self.poll_flush(cx);
                }
                self.begin = 0;
                match self.shared.queue().take(&mut self.batch, cx) {
                    Some(queued) => self.batch_queued = queued,
                    None => return self.poll_flush(cx),
                }
            }
            let stream: &mut ByteStream = &mut self.upstream.stream;
            match Pin::new(stream).poll_write(cx, &self.batch[self.begin..]) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready("it takes no more bytes".to_owned()),
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Ready(Ok(len)) => {
                    self.begin += len;
                    self.unflushed = true;
                    self.shared.queue().wrote(len);
                }
            }
            let (queued, commands) = self.batch_queued;
            if self.begin == self.batch.len() && commands > 0 {
                let commands_u32 = u32::try_from(commands).unwrap_or(u32::MAX);
                self.shared.metrics.request_hop.record(queued, Instant::now(), commands_u32);
                self.shared.metrics.commands.add(commands as u64);
                self.shared.metrics.batches.add(1);
                self.shared.commands.fetch_add(commands as u64, Ordering::Relaxed);
                self.shared.batches.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Ready with the reason if writing failed.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        if self.unflushed {
            match ready!(Pin::new(&mut self.upstream.stream).poll_flush(cx)) {
                Ok(()) => self.unflushed = false,
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
        Poll::Pending
    }

    /// Ready with the reason if the connection has ended or is not RESP.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if self.poll_slow(cx).is_pending() {
                return Poll::Pending;
            }
            self.replies.reserve(READ);
            match pin!(self.upstream.stream.read_buf(&mut self.replies)).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(0)) => return Poll::Ready("the server closed it".to_owned()),
                Poll::Ready(Err(error)) => return Poll::Ready(error.to_string()),
                Poll::Ready(Ok(_)) => {
                    self.heard = Instant::now();
                    self.limits = self.core.limits();
                    if let Err(error) = self.pass_on() {
                        return Poll::Ready(format!("the server broke the protocol: {error}"));
                    }
                    self.shared.look_for_primary(self.pool, &self.upstream);
                    if self.is_silent {
                        self.report_silence();
                    }
                }
            }
        }
    }

    /// Passes replies on to their clients.
    fn pass_on(&mut self) -> Result<(), RespError> {
        let now = Instant::now();
        // Replies of one client that follow each other are passed on together: `complete` of them, up to `frame`.
        let (mut complete, mut frame) = (0, 0);
        loop {
            let found = self.scanner.scan(&self.replies[self.scanned..])?;
            self.scanned += found.len;
            if self.dropping || (!self.begun && self.replies.get(frame) == Some(&b'>')) {
                if complete > 0 {
                    self.deliver(frame, complete, None, now);
                    (complete, frame) = (0, 0);
                }
                self.replies.advance(std::mem::take(&mut self.scanned));
                self.dropping = !found.complete;
                if self.dropping {
                    break;
                }
                continue;
            }
            let left = match self.shared.queue().first() {
                Some(slot) => slot.replies - complete,
                None if self.scanned == 0 => break,
                None => return Err(RespError::Unsolicited),
            };
            if !found.complete {
                let large = self.begun || self.scanned - frame >= PIECE;
                let end = if large { self.scanned } else { frame };
                self.deliver(end, complete, large.then_some(end - frame), now);
                break;
            }
            // Of a long reply only the end is here, and no error is that long.
            if !std::mem::take(&mut self.begun) {
                self.upstream.note(&self.replies[frame..self.scanned], now);
            }
            complete += 1;
            frame = self.scanned;
            if left == 1 {
                self.deliver(frame, complete, None, now);
                (complete, frame) = (0, 0);
            }
        }
        Ok(())
    }

    /// Passes on the first `end` bytes, with which `complete` replies of the first client end, and of which the last `begun` are of a reply
    /// that does not end there.
    fn deliver(&mut self, end: usize, complete: u32, begun: Option<usize>, now: Instant) {
        self.begun = begun.is_some();
        let mut queue = self.shared.queue();
        let Some(slot) = queue.first() else { return };
        let (inbox, queued) = (slot.inbox.clone(), slot.queued);
        queue.answered(complete, begun);
        drop(queue);
        if complete > 0 && !inbox.is_of_gateway() {
            self.shared.metrics.server.record(queued, now, complete);
        }
        if end == 0 {
            return;
        }
        self.scanned -= end;
        let waiting = if end < PIECE {
            let waiting = inbox.put(&self.replies[..end], complete, now);
            self.replies.advance(end);
            waiting
        } else {
            inbox.put_shared(&self.replies.split_to(end).freeze(), complete, now)
        };
        // Replies are taken from the server whether this client reads them or not, for those behind it: its own task ends one that does
        // not read. Only memory is a reason to wait.
        if self.slow.is_none() && self.limits.exceeds_total(waiting, inbox.total()) {
            self.slow = Some((inbox, Box::pin(sleep(self.limits.slow_reader()))));
        }
    }

    /// Ready if there is memory for more replies. Ends a client that takes too much of it for too long.
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some((inbox, limit)) = &mut self.slow else { return Poll::Ready(()) };
        if self.core.limits().exceeds_total(inbox.poll_waiting(cx), inbox.total()) {
            if limit.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            inbox.end(End::TooSlow);
        }
        self.slow = None;
        Poll::Ready(())
    }
}

/// Room for one read.
const READ: usize = 64 * 1024;
/// Parts of replies from this length on are passed on without a copy, and before their reply is complete.
const PIECE: usize = 16 * 1024;
