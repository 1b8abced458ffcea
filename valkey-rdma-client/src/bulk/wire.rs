//! [`Wire`]: the connection for direct transfers with the calls in flight on it. [`SharedWire`]: it, shared by its task and its callers.
//!
//! A caller that finds nothing in flight writes its command itself, so no other task must run before the command leaves. The
//! [task](super::task) reads the reply: it has a read pending anyway, and only its waker is given to the stream. Where calls are in flight, the
//! task begins those that come meanwhile.
//!
//! A slice is exposed when its command is written, and withdrawn when the reply has been read (D-3). A call without a reply keeps its
//! slices exposed until the connection's device is gone (D-5): so the caller may be dropped at any time.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::sync::{Arc, TryLockError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use valkey_rdma_resp::{RespError, ServerError, Value};
use valkey_rdma_transport::Exposed;
use valkey_rdma_transport::sync::{DeadlineTimer, Mutex, lock};

use super::placed::{NotDirect, Way};
use super::transfer::{Answer, Attempt, Direction, Request, Transfer, answer};
use crate::command::Command;
use crate::error::{Error, LostCause, LostConnection, TimedOut};
use crate::link::{Connector, Deadline, RawConnection};

/// The wire, while there is one.
#[derive(Default)]
pub(crate) struct SharedWire(Mutex<Option<Wire>>);

pub(super) struct Wire {
    raw: RawConnection,
    peer: Arc<str>,
    prefix: Arc<str>,
    in_flight: VecDeque<InFlight>,
    /// A call that found the connection at its end.
    unsent: Option<Request>,
    /// Why the connection must end, found on a caller's task.
    failed: Option<LostCause>,
    /// For the time limit of the oldest call in flight.
    timer: DeadlineTimer,
    /// Wakes the connection's task.
    task: Waker,
}

/// A call whose command was written.
struct InFlight {
    direction: Direction,
    key: Bytes,
    exposed: Vec<Exposed>,
    room: usize,
    may_stream: bool,
    /// True if the next reply is that to ASKING.
    asking: bool,
    /// That of any command. [`Liveness`](crate::link::Liveness) is for calls without a limit: a server that answers elsewhere may keep the
    /// slices of this one for ever.
    deadline: Option<Deadline>,
    done: Option<oneshot::Sender<Attempt>>,
}

impl SharedWire {
    /// From now on, callers find this connection.
    pub(super) fn open(&self, wire: Wire) {
        *lock(&self.0) = Some(wire);
    }

    /// Takes the connection from its callers, at its end.
    pub(super) fn end(&self) -> Option<Wire> {
        lock(&self.0).take()
    }

    /// Does something with it, on the connection's task.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut Wire) -> R) -> R {
        step(lock(&self.0).as_mut().expect("only its task ends it"))
    }

    /// Begins a call on the task of its caller, if nothing is in flight. Otherwise the call comes back: the connection's task begins it.
    pub(super) fn begin(&self, request: Request) -> Option<Request> {
        let mut wire = match self.0.try_lock() {
            Ok(wire) => wire,
            Err(TryLockError::Poisoned(_) | TryLockError::WouldBlock) => return Some(request),
        };
        match &mut *wire {
            Some(wire) if wire.in_flight.is_empty() => wire.begin_inline(request),
            _ => Some(request),
        }
    }
}

impl Wire {
    pub(super) fn new(mut raw: RawConnection, connector: &Connector) -> Self {
        raw.drive_inline();
        Self {
            raw,
            peer: connector.peer().into(),
            prefix: connector.endpoint.direct_prefix().into(),
            in_flight: VecDeque::new(),
            unsent: None,
            failed: None,
            timer: DeadlineTimer::default(),
            task: Waker::noop().clone(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn begin_inline(&mut self, request: Request) -> Option<Request> {
        let task = self.task.clone();
        let mut cx = Context::from_waker(&task);
        // The timers of the stream need a runtime, and the caller may have none.
        let runtime = self.raw.runtime.clone();
        let _entered = runtime.enter();
        if self.failed.is_some() || !self.raw.decoder.is_empty() || self.raw.look(&mut cx).is_ready() {
            // It has ended, or something has come that nothing asked for: its task finds out what.
            task.wake();
            return Some(request);
        }
        let begun = self.begin(request).and_then(|()| match self.raw.poll_flush(&mut cx) {
            Poll::Ready(Err(error)) => Err(LostCause::Io(error)),
            // Its task writes the rest.
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        });
        self.failed = begun.err();
        let limit = self.in_flight.front().and_then(|call| call.deadline);
        if self.failed.is_some() || limit.is_some_and(|limit| !self.timer.fires_by(limit.at)) {
            task.wake();
        }
        None
    }

    /// As [`begin`](Self::begin), unless the connection has ended just before: then the call can go over another one.
    pub(super) fn begin_unless_ended(&mut self, request: Request) -> Result<(), LostCause> {
        match self.raw.ended() {
            Some(cause) => {
                self.unsent = Some(request);
                Err(cause)
            }
            None => self.begin(request),
        }
    }

    /// Exposes the slices of a call, and puts its command into the write buffer.
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

    /// Writes what waits, and gives the next reply to its call. Ready when something has come, or the connection must end.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), LostCause>> {
        if !self.task.will_wake(cx.waker()) {
            self.task.clone_from(cx.waker());
        }
        if let Some(cause) = self.failed.take() {
            return Poll::Ready(Err(cause));
        }
        let received = match self.raw.poll_receive(cx) {
            // A server may send these without end. They must not hide a time limit.
            Poll::Ready(Ok(Value::Push(_))) => Poll::Ready(Ok(())),
            Poll::Ready(reply) => return Poll::Ready(reply.and_then(|reply| self.answered(reply))),
            Poll::Pending => Poll::Pending,
        };
        match self.in_flight.front().and_then(|call| call.deadline) {
            Some(Deadline { at, limit }) if self.timer.poll_deadline(cx, at) => {
                Poll::Ready(Err(LostCause::TimedOut { limit }))
            }
            Some(_) => received,
            None => {
                // One that has fired is not taken for one that will.
                let _fired = self.timer.poll(cx);
                received
            }
        }
    }

    /// Gives a reply to the oldest call.
    fn answered(&mut self, reply: Value) -> Result<(), LostCause> {
        let Some(mut call) = self.in_flight.pop_front() else {
            return Err(LostCause::Protocol(RespError::Unsolicited));
        };
        // A server that refuses ASKING refuses the command too.
        if mem::take(&mut call.asking) {
            self.in_flight.push_front(call);
            return Ok(());
        }
        // The server carries calls out in order, and has time for each: a call does not pay for those before it.
        if let Some(next) = self.in_flight.front_mut() {
            next.deadline = next.deadline.and_then(|deadline| Deadline::after(deadline.limit));
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

    /// Ends the connection, and fails its calls. Returns the error for calls that the server knows nothing of.
    pub(super) fn end(mut self, cause: LostCause) -> Error {
        let cause = Arc::new(cause);
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
        let error = Error::from(LostConnection::new(self.peer.clone(), cause, false));
        if let Some(request) = self.unsent.take() {
            request.fails(error.clone());
        }
        error
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
