//! A task on a thread of its own.
//!
//! Tokio refuses a blocking call in a task that it drives, as blocking clients make in theirs. This drives such a task without tokio;
//! its timers still are those of the runtime that the thread belongs to.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives `task` on this thread to its end.
pub(super) fn block_on<T>(task: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        if let Poll::Ready(output) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_task_that_blocks_may_start_a_runtime_and_use_the_timers_of_its_own() {
        let blocked = tokio::task::spawn_blocking(|| {
            block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async { 7 })
            })
        });
        assert_eq!(blocked.await.unwrap(), 7);
    }
}
