//! The background thread, and waiting for a future on the calling thread.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use tokio::runtime::{Builder, Handle};

use crate::per_process::PerProcess;
use crate::signals;
use crate::sync::{Mutex, lock};

/// The runtime of the background thread, which is started at the first call and lives as long as the process. A forked child has
/// none of its parent's threads, so it starts its own.
pub(crate) fn handle() -> io::Result<Handle> {
    static REACTOR: PerProcess<Mutex<Option<Handle>>> = PerProcess::new();
    let mut reactor = lock(REACTOR.get()?);
    if let Some(handle) = &*reactor {
        return Ok(handle.clone());
    }
    // Its own threads resolve names.
    let runtime = signals::runtime(Builder::new_current_thread().enable_all())?;
    let handle = runtime.handle().clone();
    let thread = thread::Builder::new().name("valkey-rdma".to_owned());
    signals::blocked(|| thread.spawn(move || runtime.block_on(std::future::pending::<()>())))?;
    Ok(reactor.insert(handle).clone())
}

/// Runs a future on this thread, up to the deadline. `None`: it was not done by then, and was dropped.
pub(crate) fn wait<T>(
    handle: &Handle,
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        // What the future starts or waits for belongs to the background thread.
        let polled = {
            let _entered = handle.enter();
            future.as_mut().poll(&mut cx)
        };
        if let Poll::Ready(done) = polled {
            return Some(done);
        }
        match deadline {
            None => thread::park(),
            Some(deadline) => {
                let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
                thread::park_timeout(left);
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}
