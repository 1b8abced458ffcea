//! Panics of a handler. They are caught where they end a connection, so that its earlier replies are sent, and the log says which
//! connection and which command it was.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::Poll;

use valkey_rdma_resp::Command;

/// Waits for `future`. An error is the message of its panic, which the panic hook has reported already.
///
/// It takes a reference, because a future that is moved into another one takes its place twice.
pub(crate) async fn caught<F: Future>(mut future: Pin<&mut F>) -> Result<F::Output, String> {
    poll_fn(|cx| {
        // What a panic leaves half changed belongs to one connection, which ends. What connections share is the handler's own
        // concern: its locks are poisoned.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(message(&*payload))),
        }
    })
    .await
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a payload that is not text").to_owned()
}

/// The name of a command, or the beginning of a long one, to be shown when the command itself is gone. It keeps no memory alive.
pub(crate) struct CommandName {
    bytes: [u8; 32],
    len: usize,
}

impl CommandName {
    pub(crate) fn of(command: &Command) -> Self {
        let mut bytes = [0; 32];
        let len = command.name().len().min(bytes.len());
        bytes[..len].copy_from_slice(&command.name()[..len]);
        Self { bytes, len }
    }
}

impl fmt::Display for CommandName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes[..self.len].escape_ascii().fmt(f)
    }
}
