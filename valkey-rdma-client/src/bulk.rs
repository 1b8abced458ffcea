//! [`Bulk`]: a server's connection for direct transfers. It has a connection of its own, so that no small command waits behind a large
//! value, and so that memory is registered once.
//!
//! [`transfer`] is one call with its command and its reply, [`task`] drives the connection.

mod placed;
mod task;
mod transfer;

use std::sync::Arc;

use tokio::sync::{Mutex, mpsc};

pub use self::placed::{NotDirect, Placed, Way};
pub(crate) use self::task::{Request, Task, not_sent};
pub(crate) use self::transfer::{Attempt, Direction, Transfer};
use crate::stats::ConnectionInfo;

/// The connection, once a call has needed it.
#[derive(Default)]
pub(crate) struct Bulk(pub(crate) Mutex<Option<State>>);

pub(crate) enum State {
    /// To its task, which ends when this is dropped, after the replies to what is in flight.
    Open(mpsc::UnboundedSender<Request>),
    /// The server that this shared connection leads to does not offer direct transfers.
    NotOffered(Arc<ConnectionInfo>),
}

impl Bulk {
    /// Begins no more calls.
    pub(crate) fn close(&self) {
        // A call that is connecting finds out.
        if let Ok(mut state) = self.0.try_lock() {
            *state = None;
        }
    }
}
