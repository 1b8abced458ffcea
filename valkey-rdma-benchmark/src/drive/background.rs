//! What the transport still does for connects that were given up.
//!
//! A Valkey server does not survive a client that vanishes between its request and the accept, so the transport
//! completes such a connect in the background (spec clause H-6). The background ends with the process, which must
//! therefore wait for it.

use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::{interval, timeout};

/// How often to look.
const LOOK: Duration = Duration::from_millis(10);

/// The tasks of a runtime from some point on: each connection of the transport is one, until it has ended or the task that
/// uses it drives it; and each completion queue that connections share has one, until the last of them is gone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Background {
    before: usize,
}

impl Background {
    /// Counts from now on.
    ///
    /// Must be called within a tokio runtime, none of whose tasks ends while [`finish`](Self::finish) waits.
    pub(crate) fn from_now() -> Background {
        Background { before: alive() }
    }

    /// Waits until everything that began has ended. Returns whether it has within `limit`.
    pub(crate) async fn finish(self, limit: Duration) -> bool {
        let ended = async {
            // There is no notification when another task ends.
            let mut look = interval(LOOK);
            while alive() > self.before {
                look.tick().await;
            }
        };
        timeout(limit, ended).await.is_ok()
    }
}

fn alive() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
