//! Driving a stream: taking the device's events, so that receives are posted again and keepalives answered by the
//! device even while the application does nothing (hazard H9).
//!
//! Behind every [`Stream`](super::Stream) is a task that does it, unless its [only task](super::driven) wants to.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::crank::{Next, Until};
use super::shared::Shared;

/// Drives until the connection has ended, or another driver has taken over.
pub(super) struct Driver {
    shared: Shared,
    /// Which driver of this session it is.
    number: u64,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    /// Takes over from the session's last driver, if it had one.
    pub(super) fn new(shared: Shared) -> Self {
        let (number, last) = shared.with(|session| session.change_drivers());
        if let Some(last) = last {
            last.wake();
        }
        Self { shared, number, sleep: None }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Lets the session turn until it sleeps. Ready when there is nothing left to drive.
    pub(super) fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let turned = self.shared.with(|session| {
                session.is_driver(self.number).then(|| (session.turn(cx, Until::Quiet), session.deadline()))
            });
            let Some((next, deadline)) = turned else { return Poll::Ready(()) };
            if next == Next::Stop {
                return Poll::Ready(());
            }
            if !self.rest(cx, next, deadline) {
                return Poll::Pending;
            }
        }
    }

    /// After a turn: waits for the deadline, and for whatever else the turn has asked to be woken by. `true`: the
    /// deadline has passed and was handled; turn again.
    pub(super) fn rest(&mut self, cx: &mut Context<'_>, next: Next, deadline: Option<Instant>) -> bool {
        // Deadlines first: a peer that never lets us rest does not escape them.
        if self.poll_deadline(cx, deadline) {
            self.shared.with(|session| session.handle_timeout());
            return true;
        }
        if next == Next::Again {
            // To the end of the queue: tasks that are ready, timers and sockets come first.
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

/// The task behind a stream.
impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().drive(cx)
    }
}
