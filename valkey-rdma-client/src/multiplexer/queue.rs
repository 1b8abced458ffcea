//! [`RequestQueue`]: requests that wait to be sent, on this connection or on the next.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::deadline::DeadlineTimer;
use super::request::Request;
use super::submit::{Ending, Pushed, Sleep, Submit, SubmitQueue};
use crate::error::Error;

/// The queue of a multiplexer. It outlives connections.
pub(crate) struct RequestQueue {
    pub(crate) submitted: SubmitQueue<Request>,
    /// Notified for each request taken out while callers wait for room.
    room: Notify,
    /// Whether there is no connection, so that offline deadlines count.
    offline: AtomicBool,
}

impl RequestQueue {
    pub(crate) fn new() -> Self {
        Self { submitted: SubmitQueue::new(), room: Notify::new(), offline: AtomicBool::new(false) }
    }

    /// Pushes a request once the queue has room. `Err`: its own deadline or `patience` has passed before.
    ///
    /// Cancel safe.
    pub(crate) async fn push_when_room(
        &self,
        mut request: Request,
        patience: Option<Instant>,
    ) -> Result<Pushed<Request>, Request> {
        let _starved = Starved::new(&self.submitted);
        loop {
            let mut room = pin!(self.room.notified());
            // Room that becomes free from here on is not missed.
            room.as_mut().enable();
            // Without a connection, the time that it has waited for room counts.
            let offline = self.offline.load(Ordering::SeqCst);
            request.offline_deadline = patience.filter(|_| offline);
            request = match self.submitted.push(request) {
                Pushed::Full(request) => request,
                pushed => {
                    if offline && !self.offline.load(Ordering::SeqCst) {
                        // The connection came meanwhile.
                        self.forget_offline_deadlines();
                    }
                    return Ok(pushed);
                }
            };
            let deadline = request.deadline.map(|deadline| deadline.at);
            match deadline.into_iter().chain(patience).min() {
                None => room.await,
                Some(due) => {
                    if timeout_at(due, room).await.is_err() {
                        return Err(request);
                    }
                }
            }
        }
    }

    /// Takes the next batch, as [`SubmitQueue::take`] does, without the requests whose callers have gone away.
    pub(crate) fn take(&self, only_full: bool, most: usize, mut add: impl FnMut(Request)) -> Ending {
        // Dropped without holding the lock: they may own what a program lent.
        let mut unwanted = Vec::new();
        let (freed, ending) = self.submitted.take(only_full, most, |request| {
            if request.is_wanted() { add(request) } else { unwanted.push(request) }
        });
        self.notify_room(freed);
        ending
    }

    fn notify_room(&self, freed: usize) {
        for _ in 0..freed {
            self.room.notify_one();
        }
    }

    /// A connection is available: requests wait up to their own deadline.
    pub(crate) fn resume(&self) {
        self.offline.store(false, Ordering::SeqCst);
        self.forget_offline_deadlines();
    }

    fn forget_offline_deadlines(&self) {
        self.submitted.edit(None, |waiting| {
            for request in waiting {
                request.offline_deadline = None;
            }
        });
    }

    /// Requeues requests in front of all others, in the order given.
    pub(crate) fn put_back(&self, requests: impl DoubleEndedIterator<Item = Request>) {
        self.submitted.edit(None, |waiting| {
            for request in requests.rev() {
                waiting.push_front(request);
            }
        });
    }

    /// Takes out the requests that have waited too long, and drops those whose callers have gone away. `others` is the first
    /// deadline of requests elsewhere.
    /// Also returns the first deadline that is left.
    pub(crate) fn expire(&self, now: Instant, others: Option<Instant>) -> (Vec<Request>, Option<Instant>) {
        let mut unwanted = Vec::new();
        let (expired, next) = self.submitted.edit(others, |waiting| {
            let mut expired = Vec::new();
            for _ in 0..waiting.len() {
                let Some(request) = waiting.pop_front() else { break };
                if !request.is_wanted() {
                    unwanted.push(request);
                } else if request.due().is_some_and(|due| due <= now) {
                    expired.push(request);
                } else {
                    waiting.push_back(request);
                }
            }
            expired
        });
        self.notify_room(unwanted.len() + expired.len());
        (expired, next)
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
        self.offline.store(true, Ordering::SeqCst);
        let mut timer = DeadlineTimer::default();
        poll_fn(|cx| self.poll_offline(cx, offline_timeout, &why, &mut timer)).await;
    }

    fn poll_offline(
        &self,
        cx: &mut Context<'_>,
        offline_timeout: Option<Duration>,
        why: &impl Fn(&Request) -> Error,
        timer: &mut DeadlineTimer,
    ) -> Poll<()> {
        loop {
            // From here on, every push and the end wake this task.
            drop(self.submitted.sleep(Sleep::Offline, cx.waker()));
            if self.submitted.ending() != Ending::No {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let offline_deadline = offline_timeout.and_then(|timeout| now.checked_add(timeout));
            self.submitted.edit(None, |waiting| {
                for request in waiting.iter_mut().filter(|new| new.offline_deadline.is_none()) {
                    request.offline_deadline = offline_deadline;
                }
            });
            let (expired, next) = self.expire(now, None);
            for request in expired {
                let error = why(&request);
                request.fail(error);
            }
            if let Some(due) = next {
                timer.arm(due);
            }
            if timer.poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Fails every waiting request, refuses new ones, and lets `close` return. Repeated calls do nothing.
    pub(crate) fn finish(&self, error: impl Fn(&Request) -> Error) {
        let (waiting, at_end) = self.submitted.finish();
        for request in waiting {
            let error = error(&request);
            request.fail(error);
        }
        self.room.notify_waiters();
        drop(at_end);
    }

    /// Refuses new requests; those that wait are still sent. `at_end` is dropped after that.
    pub(crate) fn close(&self, at_end: oneshot::Sender<()>) {
        self.submitted.close(at_end);
        self.room.notify_waiters();
    }
}

/// Counts a caller that waits for room.
struct Starved<'a>(&'a SubmitQueue<Request>);

impl<'a> Starved<'a> {
    fn new(queue: &'a SubmitQueue<Request>) -> Self {
        queue.count_starved(true);
        Self(queue)
    }
}

impl Drop for Starved<'_> {
    fn drop(&mut self) {
        self.0.count_starved(false);
    }
}
