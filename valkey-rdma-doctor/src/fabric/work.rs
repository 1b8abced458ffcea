//! [`work`]: what carries the bytes of a run, on a thread or in a task.

use std::future::{Future, pending};
use std::panic::resume_unwind;

use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::quota::Quota;

/// How work waits for a device.
pub(super) enum Wait {
    /// As a task. It can wait for several queue pairs, and for TCP.
    Task,
    /// It blocks its thread until the quota is reached.
    Thread(Quota),
}

/// Does `work` on a thread that does nothing else, or in a task, and returns its output. Dropping the future ends both.
///
/// On a thread, `work` must not wait for anything but its device. Between two looks of a task into a completion queue its runtime runs,
/// which takes longer than a short message.
///
/// In a task: tokio wakes the future of `block_on` through a file descriptor: two system calls for each wake-up, and for each look
/// while busy polling. It wakes a task without a system call.
pub(super) async fn work<T, F>(
    quota: &Quota,
    on_thread: bool,
    work: impl FnOnce(Wait) -> F + Send + 'static,
) -> T
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let _end = SetOnDrop(quota);
    let mut tasks = JoinSet::new();
    if on_thread {
        let wait = Wait::Thread(quota.clone());
        tasks.spawn_blocking(|| work(wait).now_or_never().expect("it blocks where it waits"));
    } else {
        tasks.spawn(work(Wait::Task));
    }
    match tasks.join_next().await {
        Some(Ok(output)) => output,
        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime shuts down.
        _ => pending().await,
    }
}

struct SetOnDrop<'a>(&'a Quota);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn dropping_the_future_ends_the_wait_of_its_thread() {
        let quota = Quota::endless().expect("descriptors");
        let (began, begin) = tokio::sync::oneshot::channel();
        let (ended, end) = tokio::sync::oneshot::channel();
        let thread = work(&quota, true, async move |wait| {
            let Wait::Thread(quota) = wait else { panic!("not a thread") };
            began.send(()).expect("the test waits");
            while !quota.is_reached() {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test waits");
        });
        tokio::select! {
            () = thread => panic!("its quota is endless"),
            begun = begin => begun.expect("it has begun"),
        }
        end.await.expect("it has ended");
    }
}
