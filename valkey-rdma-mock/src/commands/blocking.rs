//! Commands that block until a key has something for them.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Failure, Outcome};
use crate::args::float;
use crate::context::{Context, Wait};
use crate::waiters::{Attempt, Awaited, Waiter};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

/// Tries immediately, and again whenever one of `keys` becomes what is `awaited`, until `timeout`. Then the reply is `on_timeout`. Commands
/// of a transaction do not block: they try once. `None`: no timeout.
pub(super) fn block(
    context: &mut Context<'_>,
    command: &Command,
    keys: &[Bytes],
    timeout: Option<Duration>,
    on_timeout: Reply,
    awaited: Awaited,
    attempt: Attempt,
) -> Outcome {
    if let Some(reply) = attempt(context.database(), command)? {
        return Ok(reply);
    }
    if context.in_transaction {
        return Ok(on_timeout);
    }
    let database = context.client().database;
    let (sender, answer) = oneshot::channel();
    let waiter = Waiter {
        command: command.kept(),
        awaited,
        attempt,
        keys: keys.iter().map(|key| (database, crate::store::keep(key))).collect(),
        database,
        on_timeout: on_timeout.clone(),
        answer: sender,
    };
    context.client().blocked = true;
    context.state.waiters.add(context.client, waiter);
    // A deadline too far away to be expressed counts as none.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    context.wait = Some(Wait { answer, deadline });
    Ok(on_timeout)
}

/// The timeout of a blocking command: seconds, with fractions. `None`: no timeout.
pub(super) fn seconds(text: &[u8]) -> Result<Option<Duration>, Failure> {
    let seconds = float(text).map_err(|_| Failure::new("ERR timeout is not a float or out of range"))?;
    if seconds * 1000.0 > i64::MAX as f64 {
        return Err(Failure::new("ERR timeout is out of range"));
    }
    if seconds < 0.0 {
        return Err(Failure::new("ERR timeout is negative"));
    }
    // To the millisecond above, so that a very short wait is not an endless one.
    let milliseconds = (seconds * 1000.0).ceil() as u64;
    Ok((milliseconds > 0).then(|| Duration::from_millis(milliseconds)))
}
