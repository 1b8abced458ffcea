//! Drives a stream: takes the device's events, so that receives are posted again and keepalives are answered even while
//! the application does nothing.
//!
//! Each [`Stream`](super::Stream) has a background task that does so. An [`InlineStream`](super::InlineStream) drives
//! itself.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::connection::SharedConnection;
use super::connection::progress::{DriveOutcome, DriveUntil};

/// Drives until the connection has ended, or another driver has replaced this one.
pub(super) struct Driver {
    shared: SharedConnection,
    /// Identifies this driver among those that the connection has had.
    id: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    /// Replaces the connection's current driver, if it has one.
    pub(super) fn new(shared: SharedConnection) -> Self {
        let (id, previous) = shared.with(|connection| connection.replace_driver());
        if let Some(previous) = previous {
            previous.wake();
        }
        Self { shared, id, sleep: None }
    }

    pub(super) fn shared(&self) -> &SharedConnection {
        &self.shared
    }

    /// Drives the connection until it has nothing to do. Ready when there is nothing left to drive.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let driven = self.shared.with(|connection| {
                (connection.driver == self.id)
                    .then(|| (connection.poll_device(cx, DriveUntil::Idle), connection.deadline()))
            });
            let Some((outcome, deadline)) = driven else { return Poll::Ready(()) };
            if outcome == DriveOutcome::Done {
                return Poll::Ready(());
            }
            if !self.wait(cx, outcome, deadline) {
                return Poll::Pending;
            }
        }
    }

    /// Registers for the deadline, and for another poll if the outcome is to yield. Returns true if the deadline has
    /// passed: it was handled, so drive again.
    pub(super) fn wait(
        &mut self,
        cx: &mut Context<'_>,
        outcome: DriveOutcome,
        deadline: Option<Instant>,
    ) -> bool {
        // Deadlines first, so that a busy peer cannot keep us from noticing them.
        if self.poll_deadline(cx, deadline) {
            self.shared.with(|connection| connection.handle_timeout());
            return true;
        }
        if outcome == DriveOutcome::Yield {
            // To the end of the run queue: ready tasks, timers and sockets come first.
            cx.waker().wake_by_ref();
        }
        false
    }

    /// Waits for the deadline. Returns whether it has passed.
    fn poll_deadline(&mut self, cx: &mut Context<'_>, deadline: Option<Instant>) -> bool {
        let Some(deadline) = deadline else { return false };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if sleep.deadline() != deadline {
            sleep.as_mut().reset(deadline);
        }
        sleep.as_mut().poll(cx).is_ready()
    }
}

/// The background task of a stream.
impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().drive(cx)
    }
}
