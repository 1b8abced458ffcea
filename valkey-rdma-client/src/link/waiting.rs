//! Requests that wait in the [`SubmitQueue`]: those that go to the next connection are put back, and those that wait too long fail.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::Instant;

use super::queue::{Sleep, Submit, SubmitQueue};
use super::request::Request;
use crate::error::Error;
use valkey_rdma_transport::sync::DeadlineTimer;

impl SubmitQueue<Request> {
    /// Requeues requests in front of all others, in the order given.
    pub(crate) fn put_back(&self, requests: impl DoubleEndedIterator<Item = Request>) {
        self.edit(|waiting| {
            for request in requests.rev() {
                waiting.push_front(request);
            }
        });
    }

    /// Takes out the requests that have waited too long, and drops those whose callers have gone away. `others` is the first
    /// deadline of requests elsewhere.
    pub(crate) fn take_late(&self, now: Instant, others: Option<Instant>) -> Vec<Request> {
        let mut unwanted = Vec::new();
        self.expire(others, |waiting| {
            let mut late = Vec::new();
            for _ in 0..waiting.len() {
                let Some(request) = waiting.pop_front() else { break };
                if !request.is_wanted() {
                    unwanted.push(request);
                } else if request.due().is_some_and(|due| due <= now) {
                    late.push(request);
                } else {
                    waiting.push_back(request);
                }
            }
            late
        })
    }

    /// Fails every request that waits. Those that come later wait for the next attempt.
    pub(crate) fn fail_waiting(&self, error: impl Fn(&Request) -> Error) {
        let mut waiting = VecDeque::new();
        self.edit(|queue| waiting = std::mem::take(queue));
        fail_each(waiting, error);
    }

    /// Watches the waiting requests while disconnected: each waits for `offline_timeout` at most, and not past its
    /// deadline. Returns when no request or client needs a connection any more.
    ///
    /// Cancel safe: dropping the future loses nothing.
    pub(crate) async fn wait_offline(
        &self,
        offline_timeout: Option<Duration>,
        why: impl Fn(&Request) -> Error,
    ) {
        self.begin_outage(offline_timeout);
        let mut timer = DeadlineTimer::default();
        poll_fn(|cx| self.poll_offline(cx, &why, &mut timer)).await;
    }

    fn poll_offline(
        &self,
        cx: &mut Context<'_>,
        why: &impl Fn(&Request) -> Error,
        timer: &mut DeadlineTimer,
    ) -> Poll<()> {
        loop {
            // From here on, the end wakes this task, and a request that is due before all others.
            if let Ok(Some(due)) = self.sleep(Sleep::Blocked, cx.waker()) {
                timer.arm(due);
            }
            if self.ending().is_some() {
                return Poll::Ready(());
            }
            ready!(timer.poll(cx));
            fail_each(self.take_late(Instant::now(), None), why);
        }
    }

    /// Fails every waiting request, refuses new ones, and lets `close` return. Repeated calls do nothing.
    pub(crate) fn fail_and_finish(&self, error: impl Fn(&Request) -> Error) {
        let (waiting, at_end) = self.finish();
        fail_each(waiting, error);
        drop(at_end);
    }
}

fn fail_each(requests: impl IntoIterator<Item = Request>, error: impl Fn(&Request) -> Error) {
    for request in requests {
        let error = error(&request);
        request.fail(error);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Commands};
    use crate::link::queue::BATCH_COMMANDS;
    use crate::link::reply_slot::Delivery;
    use crate::link::request::Deadline;

    /// The search for late requests is rarer the more requests wait.
    #[test]
    fn a_request_that_is_late_is_not_sent_if_many_wait() {
        let queue = SubmitQueue::new();
        let mut callers = Vec::new();
        let mut push = |limit: Option<Duration>| {
            let commands = Commands::One(Command::new("PING"));
            let (request, reply) =
                Request::new(commands, Delivery::Together, limit.and_then(Deadline::after));
            callers.push(reply);
            drop(queue.push(request));
        };
        (0..=BATCH_COMMANDS).for_each(|_| push(Some(Duration::ZERO)));
        push(None);
        let (mut sent, mut late) = (0, Vec::new());
        queue.take(false, usize::MAX, |request| sent += usize::from(request.deadline.is_none()), &mut late);
        assert_eq!((sent, late.len()), (1, BATCH_COMMANDS + 1));
    }
}
