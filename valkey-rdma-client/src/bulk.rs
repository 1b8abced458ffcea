//! [`Bulk`]: a server's connection for direct transfers. It has a connection of its own, so that no small command waits behind a large
//! value, and so that memory is registered once.
//!
//! [`transfer`] is one call with its command and its reply, [`wire`] the connection with the calls in flight, which [`task`] drives.

mod placed;
mod task;
mod transfer;
mod wire;

use std::mem;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::{self, error::SendError};
use tokio::time::Instant;
use valkey_rdma_transport::sync::lock;

pub use self::placed::{NotDirect, Placed, Way};
pub(crate) use self::task::Task;
pub(crate) use self::transfer::{Attempt, Caller, Direction, Request, Transfer};
pub(crate) use self::wire::SharedWire;
use crate::stats::ConnectionInfo;

/// The connection, once a call has needed it.
#[derive(Default)]
pub(crate) struct Bulk(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Closed,
    /// The task that makes the connection and drives it. When this is dropped, no call waits any more, and the task ends.
    Open(Open),
    /// The server that this shared connection leads to does not offer direct transfers.
    NotOffered(Arc<ConnectionInfo>),
}

struct Open {
    task: mpsc::UnboundedSender<Message>,
    wire: Arc<SharedWire>,
}

/// What a new task works with.
pub(crate) struct Orders {
    pub(crate) messages: mpsc::UnboundedReceiver<Message>,
    /// Where callers find the connection, once it is made.
    pub(crate) wire: Arc<SharedWire>,
}

/// What the task is asked for.
pub(crate) enum Message {
    Begin(Request),
    /// To begin no more, and to end after the replies to what is in flight, at this time at the latest.
    Close(Option<Instant>),
    /// To end, because the server is no longer the one to talk to.
    GiveUp,
}

impl Message {
    pub(crate) fn into_request(self) -> Option<Request> {
        match self {
            Self::Begin(request) => Some(request),
            Self::Close(_) | Self::GiveUp => None,
        }
    }
}

impl Bulk {
    /// Begins a call, or hands it to the connection's task. If there is none, it comes back, with what the next task works with. `shared`:
    /// the connection that leads to the server now.
    pub(crate) fn begin(&self, request: Request, shared: &Arc<ConnectionInfo>) -> Option<(Request, Orders)> {
        let wire = match &*lock(&self.0) {
            State::Open(Open { wire, .. }) => Some(wire.clone()),
            _ => None,
        };
        // Without the lock: it may register memory, which takes time.
        let request = match wire {
            Some(wire) => wire.begin(request)?,
            None => request,
        };
        let mut state = lock(&self.0);
        let request = match &*state {
            State::NotOffered(info) if Arc::ptr_eq(info, shared) => {
                request.goes_over_the_stream(NotDirect::NotOffered);
                return None;
            }
            State::Open(Open { task, .. }) => match task.send(Message::Begin(request)) {
                // The task has ended.
                Err(SendError(Message::Begin(request))) => request,
                _ => return None,
            },
            _ => request,
        };
        let (task, messages) = mpsc::unbounded_channel();
        let wire = Arc::<SharedWire>::default();
        let before = mem::replace(&mut *state, State::Open(Open { task, wire: wire.clone() }));
        drop(state);
        // Without the lock, because it may be the last to hold calls.
        drop(before);
        Some((request, Orders { messages, wire }))
    }

    /// Begins no more calls. Those in flight have time until the deadline.
    pub(crate) fn close(&self, deadline: Option<Instant>) {
        self.end(Message::Close(deadline));
    }

    /// Ends the connection, because the server is no longer the one to talk to.
    pub(crate) fn give_up(&self) {
        self.end(Message::GiveUp);
    }

    fn end(&self, message: Message) {
        let state = mem::take(&mut *lock(&self.0));
        if let State::Open(Open { task, .. }) = state {
            // Without its task, it has ended.
            drop(task.send(message));
        }
    }

    /// The server of this shared connection does not offer direct transfers.
    pub(crate) fn not_offered(&self, shared: Arc<ConnectionInfo>) {
        *lock(&self.0) = State::NotOffered(shared);
    }
}
