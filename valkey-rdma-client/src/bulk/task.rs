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
use tokio::time::{Instant, sleep_until};
use valkey_rdma_resp::{RespError, ServerError, Value};
use valkey_rdma_transport::Exposed;

use super::placed::{NotDirect, Way};
use super::transfer::{Answer, Attempt, Direction, Transfer};
use crate::command::Command;
use crate::error::{Error, LostCause, LostConnection, TimedOut};
use crate::link::{Connector, Deadline, Finding, RawConnection};

/// A call, before its command is written.
pub(crate) struct Request {
    pub(crate) transfer: Transfer,
    /// True if the command must follow ASKING.
    pub(crate) asking: bool,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) done: oneshot::Sender<Attempt>,
}

/// A call whose command was written.
struct InFlight {
    direction: Direction,
    key: Bytes,
    exposed: Vec<Exposed>,
    room: usize,
    /// True if the next reply is that to ASKING.
    asking: bool,
    deadline: Option<Deadline>,
    done: oneshot::Sender<Attempt>,
}

pub(crate) struct Task {
    raw: RawConnection,
    peer: Arc<str>,
    prefix: Arc<str>,
    requests: mpsc::UnboundedReceiver<Request>,
    in_flight: VecDeque<InFlight>,
    /// Completes when another server is the primary.
    moved: Option<Finding<'static, ()>>,
}

impl Task {
    pub(crate) fn new(
        mut raw: RawConnection,
        connector: &Connector,
        requests: mpsc::UnboundedReceiver<Request>,
    ) -> Self {
        raw.drive_inline();
        let moved = connector.moved(&raw);
        let (peer, prefix) = (connector.peer().into(), connector.endpoint.direct_prefix().into());
        Self { raw, peer, prefix, requests, in_flight: VecDeque::new(), moved }
    }

    pub(crate) async fn run(mut self) {
        let cause = match self.drive().await {
            Ok(()) => LostCause::Closed,
            Err(cause) => cause,
        };
        // At once, although replies are outstanding: only servers that offer direct transfers get here, and the ranges come back when
        // the device is gone.
        drop(self.raw.abandon());
        let (now, cause) = (Instant::now(), Arc::new(cause));
        for call in mem::take(&mut self.in_flight) {
            let error = match call.deadline {
                Some(deadline) if deadline.at <= now => self.timed_out(deadline, true),
                _ => LostConnection::new(self.peer.clone(), cause.clone(), true).into(),
            };
            answer(call.done, Attempt::Failed(error, None));
        }
        self.requests.close();
        while let Ok(Request { transfer, done, .. }) = self.requests.try_recv() {
            answer(done, not_sent(LostConnection::new(self.peer.clone(), cause.clone(), false), transfer));
        }
    }

    /// Returns when no call can come any more, and all are answered.
    async fn drive(&mut self) -> Result<(), LostCause> {
        let mut is_open = true;
        while is_open || !self.in_flight.is_empty() {
            let due =
                self.in_flight.iter().filter_map(|call| call.deadline).min_by_key(|deadline| deadline.at);
            tokio::select! {
                biased;
                reply = self.raw.receive() => self.answered(reply?)?,
                request = self.requests.recv(), if is_open => match request {
                    Some(request) => self.begin(request)?,
                    None => is_open = false,
                },
                limit = passed(due) => return Err(LostCause::TimedOut { limit }),
                () = moved(&mut self.moved) => return Err(LostCause::Moved),
            }
        }
        Ok(())
    }

    /// Exposes the slices of a call, and writes its command.
    fn begin(&mut self, request: Request) -> Result<(), LostCause> {
        let Request { transfer, asking, deadline, done } = request;
        if done.is_closed() {
            return Ok(());
        }
        if let Some(deadline) = deadline.filter(|deadline| deadline.has_passed()) {
            answer(done, Attempt::Failed(self.timed_out(deadline, false), Some(transfer)));
            return Ok(());
        }
        let (room, access) = (transfer.room(), transfer.direction.access());
        let mut memories = transfer.slices.iter().map(|slice| slice.memory());
        if let Err(error) = memories.try_for_each(|memory| self.raw.socket.register(memory, access)) {
            if self.raw.socket.close_error().is_none() {
                answer(done, Attempt::NotDirect(NotDirect::NotRegistered(error), transfer));
                return Ok(());
            }
            let cause = LostCause::Io(io::Error::other(error.clone()));
            let lost = LostConnection::new(self.peer.clone(), Arc::new(cause), false);
            answer(done, not_sent(lost, transfer));
            return Err(LostCause::Io(io::Error::other(error)));
        }
        let Transfer { direction, key, slices } = transfer;
        let exposed = slices.into_iter().map(|slice| self.raw.socket.expose(slice, access));
        let exposed = exposed.collect::<Result<Vec<_>, _>>();
        let exposed = exposed.map_err(|error| LostCause::Io(io::Error::other(error)))?;
        if asking {
            self.raw.write_buffer.push(&Command::new("ASKING"));
        }
        let ranges = exposed.iter().map(Exposed::remote);
        self.raw.write_buffer.push(&direction.command(&self.prefix, &key, room, ranges));
        self.in_flight.push_back(InFlight { direction, key, exposed, room, asking, deadline, done });
        Ok(())
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
        let transfer = Transfer { direction: self.direction, key: self.key, slices };
        answer(
            self.done,
            match reply {
                Answer::Moved { len, crc32c } => {
                    Attempt::Done(transfer.placed(Some(len), Way::Direct, crc32c))
                }
                Answer::Missing => Attempt::Done(transfer.placed(None, Way::Direct, None)),
                Answer::Refused(error) => Attempt::Failed(explained(error, prefix).into(), Some(transfer)),
            },
        );
    }
}

/// Says what may be wrong if the server has no such command, although it offers what the command is for.
fn explained(mut error: ServerError, prefix: &str) -> ServerError {
    if error.message.starts_with("unknown command") {
        error.message.push_str(&format!(
            "; the server offers direct transfers, but not by {prefix}.GET and {prefix}.SET: set direct_prefix= in the URL"
        ));
    }
    error
}

/// The connection ended before the command was written.
pub(crate) fn not_sent(lost: LostConnection, transfer: Transfer) -> Attempt {
    Attempt::Failed(LostConnection { may_have_run: false, ..lost }.into(), Some(transfer))
}

/// The caller may have gone away. Then the slices go back to their memory.
fn answer(done: oneshot::Sender<Attempt>, attempt: Attempt) {
    drop(done.send(attempt));
}

/// Completes with the limit when the time is up.
async fn passed(deadline: Option<Deadline>) -> Duration {
    match deadline {
        Some(deadline) => {
            sleep_until(deadline.at).await;
            deadline.limit
        }
        None => std::future::pending().await,
    }
}

async fn moved(moved: &mut Option<Finding<'static, ()>>) {
    match moved {
        Some(moved) => moved.await,
        None => std::future::pending().await,
    }
}
