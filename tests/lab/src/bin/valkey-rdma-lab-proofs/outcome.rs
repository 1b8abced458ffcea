//! How a proof fails.

use std::error::Error;
use std::time::Duration;

/// What a proof returns: nothing, or why it failed.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// Longer than every deadline of the transport, so that only a hang exceeds it.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);

/// Fails with `what` unless `condition` is true.
pub(crate) fn ensure(condition: bool, what: impl Into<String>) -> Outcome {
    if condition { Ok(()) } else { Err(what.into().into()) }
}

/// Fails instead of hanging.
pub(crate) async fn bounded<T>(what: &str, work: impl Future<Output = T>) -> Outcome<T> {
    tokio::time::timeout(LIMIT, work)
        .await
        .map_err(|_| format!("{what}: not within {} s", LIMIT.as_secs()).into())
}
