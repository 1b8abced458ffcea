//! [`Driver`]: the one task that owns a connection's stream.
//!
//! Reading and writing make progress independently of each other: a peer that stops reading until we have read its
//! replies, as every server with a full output window does, is never waited for. What waits when the stream is ready
//! leaves in one batch:
//!
//! - with fewer than [`UNANSWERED_BATCHES`] batches unanswered, whatever waits leaves at once: an idle connection
//!   costs no delay;
//! - with more, commands pile up until a reply arrives or a batch is full. There are no timers.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use crate::client::Shared;
use crate::command::Command;
use crate::decoder::{Decoder, ProtocolError};
use crate::endpoint::Protocol;
use crate::error::{Error, LostCause};
use crate::in_flight::{InFlight, Reply, Waiter};
use crate::outbox::Outbox;
use crate::value::Value;

/// Requests that may wait for the driver. Beyond it, callers wait before handing theirs over.
pub(crate) const QUEUE: usize = 512;

/// Batches that may be unanswered before smaller ones are held back: one on its way to the server, one on its way
/// back. With a single one, the link would idle for a round trip after each.
const UNANSWERED_BATCHES: usize = 2;
/// A batch of this many commands is full. The server executes a whole batch before it writes any reply, so larger
/// ones only make its first command wait.
const BATCH_COMMANDS: usize = 64;
/// A batch of this many bytes is full. The request that crosses the limit still belongs to it.
const BATCH_BYTES: u64 = 16 * 1024;
/// Commands without a reply beyond which no more are sent.
const MAX_IN_FLIGHT: usize = 8 * 1024;
/// Reads after which other tasks get their turn.
const READS_PER_TURN: usize = 32;

/// What a [`Client`](crate::Client) asks of the driver.
pub(crate) enum Request {
    Command(Command, oneshot::Sender<Result<Reply, Error>>),
    Pipeline(Vec<Command>, oneshot::Sender<Result<Vec<Reply>, Error>>),
    /// Finish what is under way, then end. The sender is dropped when that is done.
    Close(oneshot::Sender<()>),
}

/// Owns the stream. As a future, it ends with the connection, every waiter told.
pub(crate) struct Driver<S> {
    stream: S,
    requests: mpsc::Receiver<Request>,
    decoder: Decoder,
    in_flight: InFlight,
    outbox: Outbox,
    batch: Batch,
    /// Whether a batch is being handed to the stream; until it is, no other is begun.
    writing: bool,
    stopping: Stopping,
    shared: Arc<Shared>,
}

/// The batch that is being filled.
#[derive(Default)]
struct Batch {
    commands: usize,
    bytes: u64,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.commands >= BATCH_COMMANDS || self.bytes >= BATCH_BYTES
    }
}

/// Whether requests still come.
enum Stopping {
    No,
    /// Every client is gone: end when no caller waits any more.
    Abandoned,
    /// `close` was called: end when every reply is here.
    Closing(Vec<oneshot::Sender<()>>),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    pub(crate) fn new(
        stream: S,
        protocol: Protocol,
        requests: mpsc::Receiver<Request>,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            stream,
            requests,
            decoder: Decoder::new(protocol),
            in_flight: InFlight::default(),
            outbox: Outbox::new(),
            batch: Batch::default(),
            writing: false,
            stopping: Stopping::No,
            shared,
        }
    }

    /// Moves bytes both ways until neither way can go on. Ready once the connection is at its end.
    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        for _ in 0..READS_PER_TURN {
            if let Err(error) = self.write_batches(cx) {
                return Poll::Ready(self.last_words(cx, error));
            }
            if let Poll::Ready(cause) = self.poll_stopped(cx) {
                return Poll::Ready(cause);
            }
            if let Err(cause) = ready!(self.poll_read(cx)) {
                return Poll::Ready(cause);
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Fills and writes batches until nothing waits, the stream takes no more, or the rest has to pile up.
    fn write_batches(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            if !self.writing {
                self.fill_batch(cx);
                let pile_up = self.in_flight.batches() >= UNANSWERED_BATCHES && !self.batch.is_full();
                if self.batch.commands == 0 || pile_up {
                    return Ok(());
                }
                self.end_batch();
            }
            match self.outbox.poll_write_all(cx, &mut self.stream)? {
                Poll::Ready(()) => {}
                Poll::Pending => return Ok(()),
            }
            match Pin::new(&mut self.stream).poll_flush(cx)? {
                Poll::Ready(()) => self.writing = false,
                Poll::Pending => return Ok(()),
            }
        }
    }

    /// Takes waiting requests until none waits or the batch is full.
    fn fill_batch(&mut self, cx: &mut Context<'_>) {
        while !self.batch.is_full() && self.in_flight.commands() < MAX_IN_FLIGHT {
            match self.requests.poll_recv(cx) {
                Poll::Ready(Some(request)) => self.take(request),
                Poll::Ready(None) => {
                    if let Stopping::No = self.stopping {
                        self.stopping = Stopping::Abandoned;
                    }
                    return;
                }
                Poll::Pending => return,
            }
        }
    }

    /// Encodes a request into the batch, unless nobody waits for it any more.
    fn take(&mut self, request: Request) {
        match (&mut self.stopping, request) {
            (Stopping::Closing(waiting), Request::Close(done)) => waiting.push(done),
            (_, Request::Close(done)) => {
                self.shared.closing.store(true, Ordering::Relaxed);
                self.requests.close();
                self.stopping = Stopping::Closing(vec![done]);
            }
            (Stopping::Closing(_), request) => fail(request, &self.shared, &Arc::new(LostCause::Closed)),
            (_, Request::Command(command, sender)) if !sender.is_closed() => {
                self.encode(Waiter::One(sender), vec![command]);
            }
            (_, Request::Pipeline(commands, sender)) if !sender.is_closed() => {
                let expected = commands.len();
                let replies = Vec::with_capacity(expected);
                self.encode(Waiter::Many { sender, replies, expected }, commands);
            }
            (_, Request::Command(..) | Request::Pipeline(..)) => {}
        }
    }

    fn encode(&mut self, waiter: Waiter, commands: Vec<Command>) {
        let begin = self.outbox.pushed();
        self.batch.commands += commands.len();
        let mut first_end = None;
        for command in commands {
            self.outbox.push(command);
            first_end.get_or_insert(self.outbox.pushed());
        }
        self.batch.bytes += self.outbox.pushed() - begin;
        self.in_flight.push(waiter, first_end.unwrap_or(begin));
    }

    fn end_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.in_flight.end_batch();
        self.writing = true;
        self.shared.tally.commands.fetch_add(batch.commands as u64, Ordering::Relaxed);
        self.shared.tally.batches.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads once and hands out the replies that are complete.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        let read = pin!(self.stream.read_buf(self.decoder.room())).poll(cx);
        Poll::Ready(match ready!(read) {
            Ok(0) => Err(LostCause::PeerClosed),
            Ok(_) => self.hand_out().map_err(LostCause::Protocol),
            Err(error) => Err(LostCause::Io(error)),
        })
    }

    fn hand_out(&mut self) -> Result<(), ProtocolError> {
        while let Some(value) = self.decoder.next()? {
            let reply = match value {
                Value::Push(message) => {
                    debug!(kind = ?message.first(), "push message ignored");
                    self.shared.tally.pushes.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                Value::Error(error) => Err(error),
                value => Ok(value),
            };
            self.shared.tally.replies.fetch_add(1, Ordering::Relaxed);
            if !self.in_flight.answer(reply) {
                return Err(ProtocolError::Unasked);
            }
        }
        Ok(())
    }

    /// A peer that will not be written to may have said why, such as "max number of clients reached".
    fn last_words(&mut self, cx: &mut Context<'_>, error: io::Error) -> LostCause {
        for _ in 0..READS_PER_TURN {
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(LostCause::PeerClosed)) => return LostCause::PeerClosed,
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        LostCause::Io(error)
    }

    /// Ready when this side has ended the connection.
    fn poll_stopped(&mut self, cx: &mut Context<'_>) -> Poll<LostCause> {
        match self.stopping {
            Stopping::No => return Poll::Pending,
            Stopping::Abandoned => ready!(self.in_flight.poll_abandoned(cx)),
            Stopping::Closing(_) if !self.in_flight.is_empty() => return Poll::Pending,
            Stopping::Closing(_) => {
                if let Err(error) = ready!(Pin::new(&mut self.stream).poll_shutdown(cx)) {
                    debug!(%error, "shutdown failed");
                }
            }
        }
        Poll::Ready(LostCause::Closed)
    }

    /// Tells everybody who waits.
    fn end(&mut self, cause: LostCause) {
        debug!(%cause, "connection ended");
        let cause = self.shared.end(cause);
        self.in_flight.fail_all(self.outbox.written(), |may_have_run| self.shared.lost(&cause, may_have_run));
        self.requests.close();
        while let Ok(request) = self.requests.try_recv() {
            fail(request, &self.shared, &cause);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Driver<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let cause = ready!(this.poll_connection(cx));
        this.end(cause);
        Poll::Ready(())
    }
}

/// Fails a request of which nothing was written.
fn fail(request: Request, shared: &Shared, cause: &Arc<LostCause>) {
    match request {
        Request::Command(_, sender) => drop(sender.send(Err(shared.lost(cause, false)))),
        Request::Pipeline(_, sender) => drop(sender.send(Err(shared.lost(cause, false)))),
        Request::Close(done) => drop(done),
    }
}

#[cfg(test)]
mod tests;
