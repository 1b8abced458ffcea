//! What a subscriber and its tasks share: [`Shared`] by all of them, a [`Status`] and a [`TaskHandle`] for each task.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Event, SlowConsumer, Subscription};
use crate::error::{Error, LostCause, LostConnection, TimedOut};
use crate::link::{Deadline, RawConnection};
use crate::stats::ConnectionInfo;
use valkey_rdma_transport::sync::{Mutex, lock};

/// A request to change subscriptions, with a waiting caller.
#[derive(Debug)]
pub(crate) struct SubscriptionRequest {
    pub(crate) kind: Subscription,
    pub(crate) subscribe: bool,
    pub(crate) names: Vec<Bytes>,
    /// Until when its caller waits.
    pub(crate) deadline: Option<Deadline>,
    pub(crate) done: oneshot::Sender<Result<(), Error>>,
}

/// How callers reach a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskHandle {
    pub(super) orders: mpsc::Sender<SubscriptionRequest>,
    pub(super) status: Arc<Status>,
}

/// The queue of events, and the end of the subscriber.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) peer: Arc<str>,
    pub(super) slow: SlowConsumer,
    missed: AtomicU64,
    /// Given to tasks. `None` after the end: the queue then ends behind the events that are in it.
    events: Mutex<Option<mpsc::Sender<Event>>>,
    /// Why the subscriber has ended.
    end: watch::Sender<Option<Arc<LostCause>>>,
}

impl Shared {
    /// `capacity`: how many events wait for the program.
    pub(crate) fn new(
        peer: Arc<str>,
        capacity: usize,
        slow: SlowConsumer,
    ) -> (Arc<Self>, mpsc::Receiver<Event>) {
        let (sender, events) = mpsc::channel(capacity.max(1));
        let (missed, end) = (AtomicU64::new(0), watch::Sender::new(None));
        let shared = Self { peer, slow, missed, events: Mutex::new(Some(sender)), end };
        (Arc::new(shared), events)
    }

    pub(super) fn events(&self) -> Option<mpsc::Sender<Event>> {
        lock(&self.events).clone()
    }

    /// Ends the subscriber, with all its tasks. The first cause stands.
    pub(crate) fn finish(&self, cause: Arc<LostCause>) {
        let is_first = |end: &mut Option<_>| end.is_none() && end.replace(cause).is_none();
        if self.end.send_if_modified(is_first) {
            let events = lock(&self.events).take();
            // It wakes the program.
            drop(events);
        }
    }

    /// Waits until the subscriber has ended.
    pub(super) async fn ended(&self) {
        // The sender lives as long as `self`.
        let mut end = self.end.subscribe();
        let _ended = end.wait_for(Option::is_some).await;
    }

    /// Why there are no more events.
    pub(super) fn ended_error(&self) -> Error {
        LostConnection::without_command(self.peer.clone(), self.cause()).into()
    }

    /// Why a subscription cannot be requested.
    pub(super) fn lost_error(&self) -> Error {
        LostConnection::new(self.peer.clone(), self.cause(), false).into()
    }

    fn cause(&self) -> Arc<LostCause> {
        self.end.borrow().clone().unwrap_or_else(|| Arc::new(LostCause::Stopped))
    }

    /// The error of a request that was sent, or may have been, and was not confirmed in time.
    pub(super) fn unconfirmed(&self, deadline: Deadline) -> Error {
        TimedOut { peer: self.peer.clone(), limit: deadline.limit, may_have_run: true }.into()
    }

    /// Counts a message that was dropped.
    pub(super) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// What is known of the connection of a task.
pub(crate) struct Status {
    peer: Arc<str>,
    known: Mutex<Known>,
    explain: Explain,
}

struct Known {
    /// The connection, or the last one.
    info: Option<Arc<ConnectionInfo>>,
    is_online: bool,
    /// The latest reason for being disconnected, if there is one.
    outage: Option<Error>,
}

/// Says why a server cannot be connected to, as far as others know: nodes of a cluster have connections of their own.
pub(crate) type Explain = Box<dyn Fn() -> Option<Error> + Send + Sync>;

impl Status {
    /// Without a connection.
    pub(crate) fn new(peer: Arc<str>, explain: Explain) -> Arc<Self> {
        let known = Known { info: None, is_online: false, outage: None };
        Arc::new(Self { peer, known: Mutex::new(known), explain })
    }

    pub(crate) fn connected(&self, raw: &RawConnection) {
        *lock(&self.known) = Known { info: Some(raw.info.clone()), is_online: true, outage: None };
    }

    pub(super) fn disconnected(&self, why: Option<Error>) {
        let mut known = lock(&self.known);
        known.is_online = false;
        known.outage = why;
    }

    /// An attempt to connect has failed.
    pub(crate) fn failed(&self, why: Error) {
        lock(&self.known).outage = Some(why);
    }

    /// There is nothing to connect for.
    pub(super) fn rests(&self) {
        *lock(&self.known) = Known { info: None, is_online: false, outage: None };
    }

    pub(super) fn is_online(&self) -> bool {
        lock(&self.known).is_online
    }

    /// The error of a change that has waited this long for a connection.
    pub(super) fn not_connected(&self, limit: Duration) -> Error {
        let outage = lock(&self.known).outage.clone();
        let why = match outage {
            // Why there is no next connection says more than how the last one ended.
            None | Some(Error::Lost(_)) => (self.explain)().or(outage),
            outage => outage,
        };
        why.unwrap_or_else(|| TimedOut { peer: self.peer.clone(), limit, may_have_run: false }.into())
    }

    pub(super) fn info(&self) -> Option<Arc<ConnectionInfo>> {
        lock(&self.known).info.clone()
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("is_online", &self.is_online()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{ClusterError, Fate};

    /// What kept an earlier subscription from being made says nothing of a later one.
    #[test]
    fn a_task_without_subscriptions_forgets_why_it_could_not_connect() {
        let status = Status::new("server".into(), Box::new(|| None));
        status.failed(ClusterError::Uncovered { slot: None }.into());
        let limit = Duration::from_secs(1);
        assert!(matches!(status.not_connected(limit), Error::Cluster(_)));
        status.rests();
        let error = status.not_connected(limit);
        assert!(matches!(error, Error::TimedOut(_)) && error.fate() == Fate::NotSent, "{error:?}");
    }

    #[test]
    fn why_there_is_no_next_connection_says_more_than_how_the_last_one_ended() {
        let status =
            Status::new("server".into(), Box::new(|| Some(ClusterError::Uncovered { slot: None }.into())));
        let lost = LostConnection::new("server".into(), Arc::new(LostCause::PeerClosed), false);
        status.disconnected(Some(lost.into()));
        assert!(matches!(status.not_connected(Duration::ZERO), Error::Cluster(_)));
    }
}
