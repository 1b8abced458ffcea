//! [`SubscriptionRequest`]: what a program asks of the task that keeps its subscriptions.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

use super::Subscription;
use crate::error::{Error, TimedOut};
use crate::link::Deadline;

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

/// Requests a change from each of these tasks, and waits until the server has confirmed all of it. A task that has ended fails it with
/// `ended`; after its time limit it fails with what `late` returns.
pub(crate) async fn request(
    kind: Subscription,
    subscribe: bool,
    names_by_task: Vec<(mpsc::Sender<SubscriptionRequest>, Vec<Bytes>)>,
    deadline: Option<Deadline>,
    ended: impl Fn() -> Error,
    late: impl FnOnce(Deadline) -> Error,
) -> Result<(), Error> {
    let exchange = async {
        let mut confirmations = Vec::with_capacity(names_by_task.len());
        for (task, names) in names_by_task {
            let (done, confirmed) = oneshot::channel();
            let request = SubscriptionRequest { kind, subscribe, names, deadline, done };
            task.send(request).await.map_err(|_| ended())?;
            confirmations.push(confirmed);
        }
        for confirmed in confirmations {
            confirmed.await.unwrap_or_else(|_| Err(ended()))?;
        }
        Ok(())
    };
    match deadline {
        None => exchange.await,
        Some(deadline) => timeout_at(deadline.at, exchange).await.unwrap_or_else(|_| Err(late(deadline))),
    }
}

/// The error of a request that was sent, or may have been, and was not confirmed in time.
pub(crate) fn unconfirmed(peer: Arc<str>, deadline: Deadline) -> Error {
    TimedOut { peer, limit: deadline.limit, may_have_run: true }.into()
}
