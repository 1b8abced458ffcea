//! Ends calls on a frozen node of a cluster that has given its slots to another. Such a node keeps its connections open, and what it owes may
//! be a large value that takes its time: so it is asked on the client's shared connection whether it lives.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::{sleep, sleep_until, timeout};

use super::silence::ask;
use crate::error::LostCause;
use crate::question::Answer;
use crate::server::Server;

/// When calls leave the server of a connection.
#[derive(Clone)]
pub(super) struct ReplacedCheck {
    client: Server,
    /// How long a call waits before the server is asked, and how long it has for its answer.
    limit: Duration,
    /// Called when it has not answered. Completes when it was replaced.
    replaced: Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl ReplacedCheck {
    pub(super) fn new(
        client: &Server,
        limit: Duration,
        replaced: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        // To ask without a pause would keep a processor busy.
        Self { client: client.clone(), limit: limit.max(SHORTEST), replaced: Arc::new(replaced) }
    }

    /// Completes when the server has not answered and was replaced. Boxed, because it is part of every call's future, and rarely of use.
    pub(super) fn failed(&self) -> BoxFuture<'static, LostCause> {
        let check = self.clone();
        Box::pin(async move {
            // Most calls end meanwhile, and cost no task.
            sleep(check.limit).await;
            let runtime = check.client.runtime().clone();
            match runtime.run(check.ask_until_it_is_replaced()).await {
                Some(cause) => cause,
                // What runs the connection has ended, and ends the call.
                None => pending().await,
            }
        })
    }

    async fn ask_until_it_is_replaced(self) -> LostCause {
        let limit = self.limit;
        loop {
            let client = self.client.clone();
            // Connections to a frozen server may take longer.
            let ask = || async move { timeout(limit, ask(client, limit)).await.unwrap_or(Answer::Silent) };
            let (asked, answer) = self.client.early_question().answer(limit, ask).await;
            if answer == Answer::Present {
                sleep_until(asked + limit).await;
                continue;
            }
            // Until it is time to ask again.
            if timeout(limit, (self.replaced)()).await.is_ok() {
                return LostCause::Silent { limit };
            }
        }
    }
}

impl fmt::Debug for ReplacedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplacedCheck").field("limit", &self.limit).finish_non_exhaustive()
    }
}

const SHORTEST: Duration = Duration::from_millis(10);
