//! [`Transfer`]: a call, its command and its reply. [`Request`] and [`Attempt`]: it at one server, and what has become of it there.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::oneshot;
use valkey_rdma_resp::{ServerError, UnexpectedReply, Value};
use valkey_rdma_transport::raw::Access;
use valkey_rdma_transport::{DirectSlice, RemoteRange};

use super::placed::{NotDirect, Placed, Way};
use crate::command::Command;
use crate::error::{Error, LostCause, LostConnection};
use crate::link::Deadline;

/// A value to move between the server and the slices.
pub(crate) struct Transfer {
    pub(crate) direction: Direction,
    pub(crate) key: Bytes,
    pub(crate) slices: Vec<DirectSlice>,
    /// False if the caller has a way of its own for what is not direct.
    pub(crate) may_stream: bool,
}

/// As the caller sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Into the slices.
    Get,
    /// Out of them.
    Set,
}

/// A transfer, before its command is written.
pub(crate) struct Request {
    pub(crate) transfer: Transfer,
    /// True if the command must follow ASKING.
    pub(crate) asking: bool,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) caller: Caller,
}

/// Who waits for the outcome of a [`Request`]. If the runtime has shut down, this is dropped, and says that nothing was sent.
pub(crate) struct Caller {
    done: Option<oneshot::Sender<Attempt>>,
    peer: Arc<str>,
}

/// What has become of a transfer at one server.
pub(crate) enum Attempt {
    Done(Placed),
    /// It has to go over the stream.
    NotDirect(NotDirect, Transfer),
    /// With the transfer, unless the server may still use its slices.
    Failed(Error, Option<Transfer>),
}

/// What a reply says.
pub(super) enum Answer {
    Moved { len: usize, crc32c: Option<u32> },
    Missing,
    Refused(ServerError),
}

impl Transfer {
    pub(crate) fn new(
        direction: Direction,
        key: &[u8],
        slices: impl IntoIterator<Item = DirectSlice>,
    ) -> Self {
        let (key, slices) = (Bytes::copy_from_slice(key), slices.into_iter().collect());
        Self { direction, key, slices, may_stream: true }
    }

    /// Bytes in the slices.
    pub(crate) fn room(&self) -> usize {
        self.slices.iter().map(|slice| slice.len()).sum()
    }

    /// It has been carried out.
    pub(crate) fn placed(self, len: Option<usize>, way: Way, crc32c: Option<u32>) -> Placed {
        Placed { len, slices: self.slices, way, crc32c }
    }
}

impl Request {
    /// It has to go over the stream.
    pub(crate) fn goes_over_the_stream(self, reason: NotDirect) {
        answer(self.caller.waits(), Attempt::NotDirect(reason, self.transfer));
    }

    /// The server knows nothing of it.
    pub(crate) fn fails(self, error: Error) {
        answer(self.caller.waits(), Attempt::Failed(error, Some(self.transfer)));
    }
}

impl Caller {
    pub(crate) fn new(peer: Arc<str>) -> (Self, oneshot::Receiver<Attempt>) {
        let (done, outcome) = oneshot::channel();
        (Self { done: Some(done), peer }, outcome)
    }

    /// Takes the way back to the caller, for a request whose command is written.
    pub(super) fn waits(mut self) -> Option<oneshot::Sender<Attempt>> {
        self.done.take()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.done.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Ready when the caller has gone away.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.done.as_mut().map_or(Poll::Ready(()), |done| done.poll_closed(cx))
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if self.done.is_some() {
            let lost = LostConnection::new(self.peer.clone(), Arc::new(LostCause::Stopped), false);
            answer(self.done.take(), Attempt::Failed(lost.into(), None));
        }
    }
}

/// The caller may have gone away. Then the slices go back to their memory.
pub(super) fn answer(done: Option<oneshot::Sender<Attempt>>, attempt: Attempt) {
    if let Some(done) = done {
        drop(done.send(attempt));
    }
}

impl Direction {
    /// What the server has to do with the caller's memory: the least that it needs.
    pub(super) fn access(self) -> Access {
        match self {
            Self::Get => Access::RemoteWrite,
            Self::Set => Access::RemoteRead,
        }
    }

    /// The command over the stream.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Set => "SET",
        }
    }

    /// The direct command: `PREFIX.GET key` or `PREFIX.SET key length`, and then `rkey address length` of each range. A range without
    /// bytes is left out, because a server may refuse it.
    pub(super) fn command(
        self,
        prefix: &str,
        key: &Bytes,
        room: usize,
        ranges: impl Iterator<Item = RemoteRange>,
    ) -> Command {
        let mut command = Command::new(format!("{prefix}.{}", self.verb())).arg(key);
        if self == Self::Set {
            command.push(room);
        }
        for range in ranges.filter(|range| range.len > 0) {
            command.push(range.rkey).push(range.addr).push(range.len);
        }
        command
    }

    /// Reads the reply to a direct command for `room` bytes.
    ///
    /// # Errors
    /// The server has broken the rules of the commands, so it may do so with the ranges.
    pub(super) fn read(self, reply: Value, room: usize) -> Result<Answer, UnexpectedReply> {
        match (self, reply) {
            (_, Value::Error(error)) => Ok(Answer::Refused(error)),
            (Self::Get, Value::Nil) => Ok(Answer::Missing),
            (Self::Get, reply) => {
                let (len, crc32c): (usize, u32) = reply.convert()?;
                match len <= room {
                    true => Ok(Answer::Moved { len, crc32c: Some(crc32c) }),
                    false => {
                        let got = format!("a length of {len} bytes for slices of {room}");
                        Err(UnexpectedReply::new("a value that fits", got))
                    }
                }
            }
            (Self::Set, reply) if reply.is_ok() => Ok(Answer::Moved { len: room, crc32c: None }),
            (Self::Set, reply) => Err(UnexpectedReply::new("OK", reply.describe())),
        }
    }
}
