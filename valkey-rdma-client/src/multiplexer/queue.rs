//! [`RequestQueue`]: requests that wait to be sent, on this connection or on the next.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::deadline::DeadlineTimer;
use super::request::Request;
use super::submit::{Claim, Ending, Pushed, Sleep, Submit, SubmitQueue};
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

    /// Pushes a request once the queue has room. Callers are notified in the order in which they came. `Err`: its own
    /// deadline or `patience` has passed before.
    ///
    /// Cancel safe.
    pub(crate) async fn push_when_room(
        &self,
        mut request: Request,
        patience: Option<Instant>,
    ) -> Result<Pushed<Request>, Request> {
        let _starved = Starved::new(&self.submitted);
        let mut claim = Claim::Waiting;
        loop {
            let mut room = pin!(self.room.notified());
            // Room that becomes free from here on is not missed.
            room.as_mut().enable();
            // Without a connection, the time that it has waited for room counts.
            let offline = self.offline.load(Ordering::SeqCst);
            request.offline_deadline = patience.filter(|_| offline);
            request = match self.submitted.push(request, claim) {
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
            claim = Claim::Notified;
        }
    }

    /// Takes the next batch, as [`SubmitQueue::take`] does, without the requests whose callers have gone away.
    pub(crate) fn take(&self, only_full: bool, most: usize, mut add: impl FnMut(Request)) -> Option<Ending> {
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
        self.submitted.edit(|waiting| {
            for request in waiting {
                request.offline_deadline = None;
            }
        });
    }

    /// Requeues requests in front of all others, in the order given.
    pub(crate) fn put_back(&self, requests: impl DoubleEndedIterator<Item = Request>) {
        self.submitted.edit(|waiting| {
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
        let (expired, next) = self.submitted.expire(others, |waiting| {
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

    /// Fails every request that waits. Those that come later wait for the next attempt.
    pub(crate) fn fail_waiting(&self, error: impl Fn(&Request) -> Error) {
        let mut waiting = VecDeque::new();
        self.submitted.edit(|queue| waiting = std::mem::take(queue));
        self.notify_room(waiting.len());
        for request in waiting {
            let error = error(&request);
            request.fail(error);
        }
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
            if self.submitted.ending().is_some() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let offline_deadline = offline_timeout.and_then(|timeout| now.checked_add(timeout));
            self.submitted.edit(|waiting| {
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::multiplexer::deadline::Deadline;
    use crate::multiplexer::reply_slot::{ReplyReceiver, channel};
    use crate::multiplexer::request::ReplySink;
    use crate::multiplexer::submit::QUEUE_CAPACITY;
    use crate::resp::{Command, Commands};

    fn request() -> (Request, ReplyReceiver) {
        let (sender, reply) = channel();
        (Request::new(Commands::One(Command::new("PING")), ReplySink::One(sender), None), reply)
    }

    /// Polls a future once. Returns true if it is ready.
    fn is_ready(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// A queue without room, and the callers of its requests.
    fn full() -> (RequestQueue, Vec<ReplyReceiver>) {
        let queue = RequestQueue::new();
        let callers = (0..QUEUE_CAPACITY)
            .map(|_| {
                let (request, reply) = request();
                assert!(matches!(queue.submitted.push(request, Claim::New), Pushed::Queued));
                reply
            })
            .collect();
        (queue, callers)
    }

    #[test]
    fn a_caller_that_waits_for_room_is_overtaken_neither_by_new_ones_nor_by_those_behind_it() {
        let (queue, _callers) = full();
        let [(first, _a), (second, _b), (third, _c), (new, _d)] = std::array::from_fn(|_| request());
        let mut first = pin!(queue.push_when_room(first, None));
        let mut second = pin!(queue.push_when_room(second, None));
        assert!(!is_ready(first.as_mut()) && !is_ready(second.as_mut()));
        queue.take(false, 1, drop);
        assert!(matches!(queue.submitted.push(new, Claim::New), Pushed::Full(_)));
        let mut third = pin!(queue.push_when_room(third, None));
        assert!(!is_ready(second.as_mut()) && !is_ready(third.as_mut()), "there is room for the first only");
        assert!(is_ready(first));
        queue.take(false, 2, drop);
        assert!(is_ready(third) && is_ready(second));
    }

    /// A caller that waited for room finds that a connection came meanwhile, whose driver has taken its request already.
    #[test]
    fn deadlines_of_requests_that_were_taken_are_not_forgotten() {
        let queue = RequestQueue::new();
        let (mut request, _reply) = request();
        request.deadline = Deadline::after(Duration::from_secs(1));
        let at = request.deadline.map(|deadline| deadline.at);
        assert!(matches!(queue.submitted.push(request, Claim::New), Pushed::Queued));
        queue.take(false, 1, drop);
        queue.forget_offline_deadlines();
        assert_eq!(queue.submitted.sleep(Sleep::Listening, Waker::noop()).expect("nothing waits"), at);
    }

    /// Somebody may hold a future that is not polled any more. Room that is not needed for it is there for others.
    #[test]
    fn a_caller_that_does_not_come_keeps_one_place_and_no_more() {
        let (queue, _callers) = full();
        let (waiting, _reply) = request();
        let mut forgotten = Box::pin(queue.push_when_room(waiting, None));
        assert!(!is_ready(forgotten.as_mut()));
        queue.take(false, 3, drop);
        for has_room in [true, true, false] {
            let (new, _reply) = request();
            let full = matches!(queue.submitted.push(new, Claim::New), Pushed::Full(_));
            assert_eq!(full, !has_room);
        }
        drop(forgotten);
        let (new, _reply) = request();
        assert!(matches!(queue.submitted.push(new, Claim::New), Pushed::Queued));
    }
}
