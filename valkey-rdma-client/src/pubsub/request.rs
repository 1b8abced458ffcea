//! [`SubscriptionRequest`]: what a program asks of the task that keeps its subscriptions.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Subscription;
use crate::error::{Error, TimedOut};

/// A request to change subscriptions, with a waiting caller.
#[derive(Debug)]
pub(crate) struct SubscriptionRequest {
    pub(crate) kind: Subscription,
    pub(crate) subscribe: bool,
    pub(crate) names: Vec<Bytes>,
    pub(crate) done: oneshot::Sender<Result<(), Error>>,
}

/// Requests a change from each of these tasks, and waits until the server has confirmed all of it. A task that has ended fails it with
/// `ended`.
pub(crate) async fn request(
    kind: Subscription,
    subscribe: bool,
    names_by_task: Vec<(mpsc::Sender<SubscriptionRequest>, Vec<Bytes>)>,
    limit: Option<Duration>,
    peer: &str,
    ended: impl Fn() -> Error,
) -> Result<(), Error> {
    let exchange = async {
        let mut confirmations = Vec::with_capacity(names_by_task.len());
        for (task, names) in names_by_task {
            let (done, confirmed) = oneshot::channel();
            let request = SubscriptionRequest { kind, subscribe, names, done };
            task.send(request).await.map_err(|_| ended())?;
            confirmations.push(confirmed);
        }
        for confirmed in confirmations {
            confirmed.await.unwrap_or_else(|_| Err(ended()))?;
        }
        Ok(())
    };
    match limit {
        None => exchange.await,
        Some(limit) => timeout(limit, exchange).await.map_err(|_| TimedOut {
            peer: peer.into(),
            limit,
            may_have_run: true,
        })?,
    }
}
