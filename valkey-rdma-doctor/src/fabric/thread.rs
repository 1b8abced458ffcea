//! [`on_thread`]: work on a thread that does nothing else.

use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use valkey_rdma_transport::raw::Interrupt;

/// When the work of a thread is over: once it has received this number of messages. Clones are the same one.
#[derive(Clone)]
pub(super) struct Quota {
    messages: Arc<AtomicU64>,
    interrupt: Interrupt,
}

impl Quota {
    /// One that is never reached.
    pub(super) fn endless() -> std::io::Result<Self> {
        Ok(Self { messages: Arc::new(AtomicU64::new(u64::MAX)), interrupt: Interrupt::new()? })
    }

    /// Sets the number, which may have arrived already.
    pub(super) fn set(&self, messages: u64) {
        self.messages.store(messages, Ordering::Release);
        self.interrupt.raise();
    }

    /// Whether the work is over after this number.
    pub(super) fn is_reached(&self, messages: u64) -> bool {
        messages >= self.messages.load(Ordering::Acquire)
    }

    /// What ends the thread's wait when the quota changes.
    pub(super) fn interrupt(&self) -> &Interrupt {
        &self.interrupt
    }
}

/// Runs `work` on a thread of its own, and returns its output. Dropping the future sets the quota to nothing.
///
/// Between two looks of a task into a completion queue its runtime runs, which takes longer than a short message.
pub(super) async fn on_thread<T: Send + 'static>(
    quota: &Quota,
    work: impl FnOnce(&Quota) -> T + Send + 'static,
) -> T {
    let _end = SetOnDrop(quota);
    let of_thread = quota.clone();
    match tokio::task::spawn_blocking(move || work(&of_thread)).await {
        Ok(output) => output,
        Err(error) if error.is_panic() => resume_unwind(error.into_panic()),
        // The runtime shuts down.
        Err(_) => pending().await,
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
        let (ended, end) = tokio::sync::oneshot::channel();
        let work = on_thread(&quota, move |quota| {
            while !quota.is_reached(0) {
                std::thread::yield_now();
            }
            ended.send(()).expect("the test waits");
        });
        tokio::select! {
            biased;
            () = work => panic!("its quota is endless"),
            () = std::future::ready(()) => {}
        }
        end.await.expect("it has ended");
    }
}
