//! [`Task`]: drives the connection for direct transfers. Calls are in flight together, and are answered in order.
//!
//! A slice is exposed when its command is written, and withdrawn when the reply has been read (D-3). A call without a reply keeps its
//! slices exposed until the connection's device is gone (D-5): so the caller may be dropped at any time.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use valkey_rdma_resp::{RespError, ServerError, Value};
use valkey_rdma_transport::Exposed;

use super::Message;
use super::placed::{NotDirect, Way};
use super::transfer::{Answer, Attempt, Direction, Request, Transfer, answer};
use crate::command::Command;
use crate::error::{Error, LostCause, LostConnection, TimedOut};
use crate::link::{Connector, Deadline, Finding, RawConnection};

/// A call whose command was written.
struct InFlight {
    direction: Direction,
    key: Bytes,
    exposed: Vec<Exposed>,
    room: usize,
    may_stream: bool,
    /// True if the next reply is that to ASKING.
    asking: bool,
    deadline: Option<Deadline>,
    done: Option<oneshot::Sender<Attempt>>,
}

pub(crate) struct Task {
    raw: RawConnection,
    peer: Arc<str>,
    prefix: Arc<str>,
    messages: mpsc::UnboundedReceiver<Message>,
    /// Calls that have waited for the connection.
    waiting: VecDeque<Request>,
    in_flight: VecDeque<InFlight>,
    /// A call that found the connection at its end.
    unsent: Option<Request>,
    closing: Option<Closing>,
    /// Completes when another server is the primary.
    moved: Option<Finding<'static, ()>>,
}

/// No call begins any more. Those in flight have time until then.
struct Closing(Option<Instant>);

impl Task {
    pub(crate) fn new(
        mut raw: RawConnection,
        connector: &Connector,
        messages: mpsc::UnboundedReceiver<Message>,
        waiting: VecDeque<Request>,
    ) -> Self {
        raw.drive_inline();
        let moved = connector.moved(&raw);
        let (peer, prefix) = (connector.peer().into(), connector.endpoint.direct_prefix().into());
        let in_flight = VecDeque::new();
        Self { raw, peer, prefix, messages, waiting, in_flight, unsent: None, closing: None, moved }
    }

    /// Drives the connection to its end.
    pub(crate) async fn run(mut self) {
        let cause = Arc::new(self.drive().await.err().unwrap_or(LostCause::Closed));
        // At once, although replies are outstanding: only servers that offer direct transfers get here, and the ranges come back when
        // the device is gone.
        drop(self.raw.abandon());
        let now = Instant::now();
        for call in mem::take(&mut self.in_flight) {
            let error = match call.deadline {
                Some(deadline) if deadline.at <= now => self.timed_out(deadline, true),
                _ => LostConnection::new(self.peer.clone(), cause.clone(), true).into(),
            };
            answer(call.done, Attempt::Failed(error, None));
        }
        let fails = |request: Request| {
            request.fails(LostConnection::new(self.peer.clone(), cause.clone(), false).into());
        };
        mem::take(&mut self.waiting).into_iter().chain(self.unsent.take()).for_each(fails);
        self.messages.close();
        // Waits for senders in the middle of it.
        while let Some(message) = self.messages.recv().await {
            message.into_request().into_iter().for_each(fails);
        }
    }

    /// Returns when no call can come any more, and all are answered, or their callers have gone away.
    async fn drive(&mut self) -> Result<(), LostCause> {
        while self.closing.is_none() || !self.in_flight.is_empty() {
            let due = earliest(self.in_flight.iter().filter_map(|call| call.deadline));
            // A server may send push messages without end. They must not hide a time limit: so no branch comes first, and timers get to run.
            // Calls that have waited may each register memory, which blocks the thread: other tasks run between them.
            match self.waiting.is_empty() {
                true => consume_budget().await,
                false => yield_now().await,
            }
            tokio::select! {
                reply = self.raw.receive() => self.answered(reply?)?,
                message = next(&mut self.waiting, &mut self.messages), if self.closing.is_none() => match message {
                    Some(Message::Begin(request)) => match self.raw.ended() {
                        // Just before, so this call can go over another one.
                        Some(cause) => {
                            self.unsent = Some(request);
                            return Err(cause);
                        }
                        None => self.begin(request)?,
                    },
                    Some(Message::Close(deadline)) => self.closing = Some(Closing(deadline)),
                    Some(Message::GiveUp) => return Err(LostCause::Moved),
                    // All handles of the client are gone, and with them its calls.
                    None => return Ok(()),
                },
                limit = passed(due) => return Err(LostCause::TimedOut { limit }),
                () = until(self.closing.as_ref()) => return Ok(()),
                () = moved(&mut self.moved) => return Err(LostCause::Moved),
            }
        }
        Ok(())
    }

    /// Exposes the slices of a call, and writes its command.
    fn begin(&mut self, request: Request) -> Result<(), LostCause> {
        if request.caller.is_gone() {
            return Ok(());
        }
        let Some(request) = self.on_time(request) else { return Ok(()) };
        let (room, access) = (request.transfer.room(), request.transfer.direction.access());
        let mut memories = request.transfer.slices.iter().map(|slice| slice.memory());
        if let Err(error) = memories.try_for_each(|memory| self.raw.socket.register(memory, access)) {
            if self.raw.socket.close_error().is_none() {
                request.goes_over_the_stream(NotDirect::NotRegistered(error));
                return Ok(());
            }
            self.unsent = Some(request);
            return Err(LostCause::Io(io::Error::other(error)));
        }
        // Registering takes time. The server knows nothing of a call that is late by then, so the connection stays.
        let Some(Request { transfer, asking, deadline, caller }) = self.on_time(request) else {
            return Ok(());
        };
        let Transfer { direction, key, slices, may_stream } = transfer;
        let exposed = slices.into_iter().map(|slice| self.raw.socket.expose(slice, access));
        let exposed = exposed.collect::<Result<Vec<_>, _>>();
        let exposed = exposed.map_err(|error| LostCause::Io(io::Error::other(error)))?;
        if asking {
            self.raw.write_buffer.push(&Command::new("ASKING"));
        }
        let ranges = exposed.iter().map(Exposed::remote);
        self.raw.write_buffer.push(&direction.command(&self.prefix, &key, room, ranges));
        let done = caller.waits();
        self.in_flight.push_back(InFlight {
            direction,
            key,
            exposed,
            room,
            may_stream,
            asking,
            deadline,
            done,
        });
        Ok(())
    }

    /// The request, unless it is too late for it.
    fn on_time(&self, request: Request) -> Option<Request> {
        match request.deadline.filter(|deadline| deadline.has_passed()) {
            None => Some(request),
            Some(deadline) => {
                request.fails(self.timed_out(deadline, false));
                None
            }
        }
    }

    /// Gives a reply to the oldest call.
    fn answered(&mut self, reply: Value) -> Result<(), LostCause> {
        if let Value::Push(_) = reply {
            return Ok(());
        }
        let Some(mut call) = self.in_flight.pop_front() else {
            return Err(LostCause::Protocol(RespError::Unsolicited));
        };
        // A server that refuses ASKING refuses the command too.
        if mem::take(&mut call.asking) {
            self.in_flight.push_front(call);
            return Ok(());
        }
        match call.direction.read(reply, call.room) {
            Ok(reply) => {
                call.finish(&self.prefix, reply);
                Ok(())
            }
            Err(unexpected) => {
                let unexpected = unexpected.in_reply_to(format!("{}.{}", self.prefix, call.direction.verb()));
                answer(call.done, Attempt::Failed(unexpected.clone().into(), None));
                Err(LostCause::OutOfStep(unexpected))
            }
        }
    }

    fn timed_out(&self, deadline: Deadline, may_have_run: bool) -> Error {
        TimedOut { peer: self.peer.clone(), limit: deadline.limit, may_have_run }.into()
    }
}

impl InFlight {
    /// The server is done with the slices.
    fn finish(self, prefix: &str, reply: Answer) {
        let slices = self.exposed.into_iter().map(Exposed::withdraw).collect();
        let transfer =
            Transfer { direction: self.direction, key: self.key, slices, may_stream: self.may_stream };
        answer(
            self.done,
            match reply {
                Answer::Moved { len, crc32c } => {
                    Attempt::Done(transfer.placed(Some(len), Way::Direct, crc32c))
                }
                Answer::Missing => Attempt::Done(transfer.placed(None, Way::Direct, None)),
                Answer::Refused(error) if error.code == NO_DIRECT => {
                    Attempt::NotDirect(NotDirect::Refused(error), transfer)
                }
                Answer::Refused(error) => Attempt::Failed(explained(error, prefix).into(), Some(transfer)),
            },
        );
    }
}

/// The code of an error reply: the server cannot move the bytes of this command directly (D-7).
const NO_DIRECT: &str = "NODIRECT";

/// Says what may be wrong if the server has no such command, although it offers what the command is for.
fn explained(mut error: ServerError, prefix: &str) -> ServerError {
    if error.message.starts_with("unknown command") {
        error.message.push_str(&format!(
            "; the server offers direct transfers, but not by {prefix}.GET and {prefix}.SET: set direct_prefix= in the URL"
        ));
    }
    error
}

/// The next message: first the calls that have waited.
///
/// Cancel safe: takes nothing before it is ready.
async fn next(
    waiting: &mut VecDeque<Request>,
    messages: &mut mpsc::UnboundedReceiver<Message>,
) -> Option<Message> {
    match waiting.pop_front() {
        Some(request) => Some(Message::Begin(request)),
        None => messages.recv().await,
    }
}

/// The deadline that comes first.
pub(crate) fn earliest(deadlines: impl Iterator<Item = Deadline>) -> Option<Deadline> {
    deadlines.min_by_key(|deadline| deadline.at)
}

/// Completes with the limit when the time is up.
pub(crate) async fn passed(deadline: Option<Deadline>) -> Duration {
    match deadline {
        Some(deadline) => {
            sleep_until(deadline.at).await;
            deadline.limit
        }
        None => std::future::pending().await,
    }
}

async fn until(closing: Option<&Closing>) {
    match closing {
        Some(Closing(Some(deadline))) => sleep_until(*deadline).await,
        Some(Closing(None)) | None => std::future::pending().await,
    }
}

async fn moved(moved: &mut Option<Finding<'static, ()>>) {
    match moved {
        Some(moved) => moved.await,
        None => std::future::pending().await,
    }
}
