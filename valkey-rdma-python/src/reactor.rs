//! [`Reactor`]: a calling thread waits for the socket that it uses.
//!
//! Otherwise a background thread waits for all sockets, and wakes the caller when bytes arrive: two threads wake up for each arrival.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::timeout;

use crate::local::Local;
use crate::replaced::Replaced;

/// What one calling thread waits with. It runs no tasks: those run on the background threads.
pub(crate) struct Reactor {
    id: u64,
    runtime: Runtime,
}

thread_local! {
    /// The reactor of this thread. A forked child shares its descriptors with the parent, so it makes its own.
    static OF_THREAD: RefCell<Option<Local<Arc<Reactor>>>> = const { RefCell::new(None) };
    /// The reactor that this thread waits with now.
    static WAITING: Cell<Option<Home>> = const { Cell::new(None) };
}

impl Reactor {
    /// The reactor of the calling thread, which is made at the first call.
    ///
    /// # Errors
    /// Those of the operating system.
    pub(crate) fn of_thread() -> io::Result<Arc<Self>> {
        OF_THREAD.with_borrow_mut(|known| {
            if let Some(reactor) = known.as_ref().and_then(Local::here) {
                return Ok(reactor.clone());
            }
            static LAST: AtomicU64 = AtomicU64::new(BACKGROUND);
            let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let reactor = Arc::new(Self { id, runtime });
            *known = Some(Local::new(reactor.clone()));
            Ok(reactor)
        })
    }

    /// Polls a future on the calling thread, for a while. `None`: it is not done yet.
    pub(crate) fn poll_for<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let home = Home { id: self.id, handle: self.runtime.handle().clone() };
        let _waiting = Replaced::new(&WAITING, Some(home));
        self.runtime.block_on(async { timeout(limit, future).await.ok() })
    }
}

/// Where the events of a socket arrive.
#[derive(Clone)]
pub(crate) struct Home {
    id: u64,
    handle: Handle,
}

impl Home {
    /// Where the task that is polled now can wait: at the reactor of its thread, or at that of the background threads.
    pub(crate) fn here() -> Self {
        let waiting = WAITING.take();
        WAITING.set(waiting.clone());
        waiting.unwrap_or_else(Self::background)
    }

    /// That of the background threads, in whose context tasks are polled.
    pub(crate) fn background() -> Self {
        Self { id: BACKGROUND, handle: Handle::current() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl PartialEq for Home {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// The background threads' reactor.
const BACKGROUND: u64 = 0;
