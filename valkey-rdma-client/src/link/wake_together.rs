//! [`WakeTogether`]: wakes the callers of several replies when the worker thread has run what was ready.
//!
//! On a runtime of several threads, the wake-up of a task may wake a sleeping thread, with a system call. That thread runs one or
//! two tasks and sleeps again, several times in a batch of replies. tokio wakes no thread for tasks that are woken while a worker
//! looks for events, and at most one when it goes on. So the callers are woken there. This relies on tokio for speed only: in every
//! runtime each waker is woken, at once or later.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use valkey_rdma_transport::sync::{Mutex, lock};

/// Callers that are woken together, and a task that is to run after them.
pub(crate) struct WakeTogether {
    waiting: Arc<Waiting>,
    /// Wakes all of `waiting`.
    waker: Waker,
}

#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl WakeTogether {
    pub(crate) fn new() -> Self {
        let waiting = Arc::new(Waiting::default());
        Self { waker: waiting.clone().into(), waiting }
    }

    /// Wakes `callers` when this worker thread has nothing else to run, and `task` behind them. Outside a runtime, at once.
    /// Leaves `callers` empty.
    pub(crate) fn defer(&self, callers: &mut Vec<Waker>, task: &Waker) {
        // tokio runs the task that was woken last first, and the others in order.
        callers.insert(callers.len().saturating_sub(1), task.clone());
        lock(&self.waiting.0).append(callers);
        let _pending = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(&self.waker));
    }

    /// Wakes them now, unless they have been woken.
    pub(crate) fn wake(&self) {
        self.waker.wake_by_ref();
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Not with the lock held: a waker may run anything.
        let waiting = std::mem::take(&mut *lock(&self.0));
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the order in which tasks were woken.
    struct Task(u32, Arc<Mutex<Vec<u32>>>);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            lock(&self.1).push(self.0);
        }
    }

    fn wakers(woken: &Arc<Mutex<Vec<u32>>>, tasks: std::ops::Range<u32>) -> Vec<Waker> {
        tasks.map(|number| Arc::new(Task(number, woken.clone())).into()).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn all_are_woken_once_and_only_when_the_worker_is_free() {
        let worker = tokio::spawn(async {
            let woken = Arc::default();
            let together = WakeTogether::new();
            let [task] = &wakers(&woken, 9..10)[..] else { unreachable!("one") };
            together.defer(&mut wakers(&woken, 0..3), task);
            assert!(lock(&woken).is_empty());
            while lock(&woken).is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(*lock(&woken), [0, 1, 9, 2]);
            together.wake();
            assert_eq!(lock(&woken).len(), 4);

            together.defer(&mut wakers(&woken, 3..4), task);
            together.wake();
            assert_eq!(lock(&woken)[4..], [9, 3], "the driver runs before the worker is free");
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
            assert_eq!(lock(&woken).len(), 6);
        });
        worker.await.expect("no panic");
    }

    #[test]
    fn outside_a_runtime_all_are_woken_at_once() {
        let woken = Arc::default();
        let [task] = &wakers(&woken, 9..10)[..] else { unreachable!("one") };
        WakeTogether::new().defer(&mut Vec::new(), task);
        WakeTogether::new().defer(&mut wakers(&woken, 0..1), task);
        assert_eq!(*lock(&woken), [9, 9, 0]);
    }
}
