//! [`ReplyTimer`]: ends the wait for a reply that never arrives.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep_until};

/// No complete reply arrived within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no complete reply within {0:?} (--reply-timeout)")]
pub(crate) struct NoReply(pub(crate) Duration);

/// The timer of one task. It stays armed from one request to the next and is moved only when it has fired, so that a
/// request costs no timer of its own.
#[derive(Debug)]
pub(crate) struct ReplyTimer {
    limit: Option<Duration>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl ReplyTimer {
    /// A timer for waits of at most `limit`; `None` for ever.
    pub(crate) fn new(limit: Option<Duration>) -> ReplyTimer {
        ReplyTimer { limit, sleep: None }
    }

    /// Checks the limit when there is nothing to do but wait; `progress` is when the last reply arrived, or when the
    /// requests were sent. Otherwise the task is woken when the limit has passed.
    ///
    /// All calls must come from the same task.
    pub(crate) fn check(
        &mut self,
        cx: &mut Context<'_>,
        progress: impl Fn() -> Instant,
    ) -> Result<(), NoReply> {
        let Some(limit) = self.limit else { return Ok(()) };
        let sleep = match &mut self.sleep {
            Some(armed) if !armed.is_elapsed() => return Ok(()),
            Some(fired) => fired,
            empty => empty.insert(Box::pin(sleep_until((progress() + limit).into()))),
        };
        loop {
            // It may have been armed for an earlier request.
            let due = progress() + limit;
            if sleep.is_elapsed() {
                if Instant::now() >= due {
                    return Err(NoReply(limit));
                }
                sleep.as_mut().reset(due.into());
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
        }
    }

    /// Awaits `reply`, or the limit after `progress`.
    /// `reply` is dropped if the limit passes first.
    pub(crate) async fn wait<F: Future>(
        &mut self,
        progress: impl Fn() -> Instant,
        reply: F,
    ) -> Result<F::Output, NoReply> {
        let mut reply = pin!(reply);
        poll_fn(|cx| match reply.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Ok(output)),
            Poll::Pending => match self.check(cx, &progress) {
                Ok(()) => Poll::Pending,
                Err(silent) => Poll::Ready(Err(silent)),
            },
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_wait_ends_at_its_limit_and_so_does_the_next_one() {
        let mut timer = ReplyTimer::new(Some(LIMIT));
        for _ in 0..2 {
            let begin = Instant::now();
            assert_eq!(timer.wait(|| begin, pending::<()>()).await, Err(NoReply(LIMIT)));
            assert!(begin.elapsed() >= LIMIT);
        }
    }

    #[tokio::test]
    async fn progress_moves_the_limit() {
        let mut timer = ReplyTimer::new(Some(LIMIT));
        let begin = Instant::now();
        assert_eq!(timer.wait(|| begin, std::future::ready(7)).await, Ok(7));
        // Armed for the first wait, which the second one must not end at.
        let later = Instant::now() + LIMIT;
        assert_eq!(timer.wait(|| begin, pending::<()>()).await, Err(NoReply(LIMIT)));
        assert_eq!(timer.wait(|| later, pending::<()>()).await, Err(NoReply(LIMIT)));
        assert!(Instant::now() >= later + LIMIT);
    }

    #[tokio::test]
    async fn without_a_limit_nothing_is_armed() {
        let mut timer = ReplyTimer::new(None);
        assert_eq!(timer.wait(Instant::now, async { tokio::task::yield_now().await }).await, Ok(()));
        assert!(timer.sleep.is_none());
    }
}
