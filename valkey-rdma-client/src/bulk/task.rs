//! [`Task`]: drives the connection for direct transfers to its end. Calls are in flight together, and are answered in order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::transfer::Request;
use super::wire::{SharedWire, Wire};
use super::{Message, Orders};
use crate::error::LostCause;
use crate::link::{Connector, Finding, RawConnection};
use crate::runtime::until;

pub(crate) struct Task {
    wire: Arc<SharedWire>,
    messages: mpsc::UnboundedReceiver<Message>,
    /// Calls that have waited for the connection.
    waiting: VecDeque<Request>,
    closing: Option<Closing>,
    /// Completes when another server is the primary.
    moved: Option<Finding<'static, ()>>,
}

/// No call begins any more. Those in flight have time until then.
struct Closing(Option<Instant>);

impl Task {
    pub(crate) fn new(
        raw: RawConnection,
        connector: &Connector,
        Orders { messages, wire }: Orders,
        waiting: VecDeque<Request>,
    ) -> Self {
        let moved = connector.moved(&raw);
        wire.open(Wire::new(raw, connector));
        Self { wire, messages, waiting, closing: None, moved }
    }

    /// Drives the connection to its end.
    pub(crate) async fn run(mut self) {
        let cause = self.drive().await.err().unwrap_or(LostCause::Closed);
        let Some(wire) = self.wire.end() else { return };
        let error = wire.end(cause);
        mem::take(&mut self.waiting).into_iter().for_each(|request| request.fails(error.clone()));
        self.messages.close();
        // Waits for senders in the middle of it.
        while let Some(message) = self.messages.recv().await {
            message.into_request().into_iter().for_each(|request| request.fails(error.clone()));
        }
    }

    /// Returns when no call can come any more, and all are answered, or their callers have gone away.
    async fn drive(&mut self) -> Result<(), LostCause> {
        while self.closing.is_none() || !self.wire.with(|wire| wire.is_idle()) {
            // Calls that have waited may each register memory, which blocks the thread: other tasks run between them. So do timers.
            match self.waiting.is_empty() {
                true => consume_budget().await,
                false => yield_now().await,
            }
            tokio::select! {
                answered = poll_fn(|cx| self.wire.with(|wire| wire.poll(cx))) => answered?,
                message = next(&mut self.waiting, &mut self.messages), if self.closing.is_none() => match message {
                    Some(Message::Begin(request)) => self.wire.with(|wire| wire.begin_unless_ended(request))?,
                    Some(Message::Close(deadline)) => self.closing = Some(Closing(deadline)),
                    Some(Message::GiveUp) => return Err(LostCause::Moved),
                    // All handles of the client are gone, and with them its calls.
                    None => return Ok(()),
                },
                () = until(self.closing.as_ref().and_then(|closing| closing.0)) => return Ok(()),
                () = moved(&mut self.moved) => return Err(LostCause::Moved),
            }
        }
        Ok(())
    }
}

/// The runtime may drop the task. Then callers do not find the connection any more.
impl Drop for Task {
    fn drop(&mut self) {
        if let Some(wire) = self.wire.end() {
            wire.end(LostCause::Stopped);
        }
    }
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

async fn moved(moved: &mut Option<Finding<'static, ()>>) {
    match moved {
        Some(moved) => moved.await,
        None => std::future::pending().await,
    }
}
