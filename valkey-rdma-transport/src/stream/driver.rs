//! The task behind every stream: takes the device's events, so that receives are posted again and keepalives
//! answered by the device even while the application does nothing (hazard H9).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::crank::Next;
use super::shared::Shared;

/// Runs until the connection has ended.
pub(super) struct Driver {
    shared: Shared,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    pub(super) fn new(shared: Shared) -> Self {
        Self { shared, sleep: None }
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

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (next, deadline) = self.shared.with(|session| (session.turn(cx), session.deadline()));
            if next == Next::Stop {
                return Poll::Ready(());
            }
            // Deadlines first: a peer that never lets us rest does not escape them.
            if self.poll_deadline(cx, deadline) {
                self.shared.with(|session| session.handle_timeout());
                continue;
            }
            if next == Next::Again {
                // To the end of the queue: tasks that are ready, timers and sockets come first.
                cx.waker().wake_by_ref();
            }
            return Poll::Pending;
        }
    }
}
