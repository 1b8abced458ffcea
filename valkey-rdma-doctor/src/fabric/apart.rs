//! [`apart`]: work in a task of its own.

use std::future::{Future, pending};
use std::panic::resume_unwind;

use tokio::task::JoinSet;

/// Runs `work` in a task, and returns its output. Dropping the future ends the task.
///
/// tokio wakes the future of `block_on` through a file descriptor: two system calls for each wake-up, and for each look while busy
/// polling. It wakes a task without a system call.
pub(super) async fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let mut tasks = JoinSet::new();
    tasks.spawn(work);
    match tasks.join_next().await {
        Some(Ok(output)) => output,
        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime shuts down.
        _ => pending().await,
    }
}
