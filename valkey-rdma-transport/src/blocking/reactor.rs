//! [`Reactor`]: a runtime for threads that wait.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::io;
use std::mem;
use std::pin::{Pin, pin};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::time::timeout_at;

use super::who_drives::{Lead, Turns};
use crate::process::{PerProcess, runtime_without_signals, without_signals};
use crate::sync::{Mutex, lock};

/// A runtime of async tasks for programs without async. A thread that calls while no other one does drives it: it takes the events of the
/// network itself. A background thread drives it while no thread calls, and while several do.
///
/// Dropping the last clone ends the runtime and drops its tasks, when what [`at_end`](Self::at_end) was given is done. In a forked child it
/// does nothing.
#[derive(Clone)]
pub struct Reactor(Arc<Owner>);

/// What is dropped when the last clone is.
struct Owner(Option<Arc<Inner>>);

struct Inner {
    handle: Handle,
    /// Locked by the thread that drives. `None` once it has been shut down.
    runtime: Mutex<Option<Runtime>>,
    turns: Turns,
    /// The process that made it.
    process: u32,
    /// See [`Reactor::keep_in_background`].
    kept: AtomicBool,
    /// See [`Reactor::at_end`].
    last: Mutex<Option<Last>>,
}

type Last = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Reactor {
    /// Starts the background thread, with a name for debuggers. It leaves signals to the program's threads, and calls `begin` first.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn new(thread_name: &str, begin: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        // Its own threads resolve names.
        let mut builder = Builder::new_current_thread();
        let runtime = runtime_without_signals(builder.thread_name(thread_name).enable_all(), || {})?;
        let handle = runtime.handle().clone();
        let inner = Arc::new(Inner {
            handle,
            runtime: Mutex::new(Some(runtime)),
            turns: Turns::default(),
            process: process::id(),
            kept: AtomicBool::new(false),
            last: Mutex::default(),
        });
        let thread = thread::Builder::new().name(thread_name.to_owned());
        let drives = inner.clone();
        let reactor = Self(Arc::new(Owner(Some(inner))));
        without_signals(|| {
            thread.spawn(move || {
                begin();
                drives.in_background();
            })
        })?;
        Ok(reactor)
    }

    /// That of this process, which lives as long as the process. A forked child has none of its parent's threads, so it starts its own.
    pub(crate) fn of_process() -> io::Result<Self> {
        static REACTOR: PerProcess<Mutex<Option<Reactor>>> = PerProcess::new();
        let mut reactor = lock(REACTOR.get()?);
        if let Some(reactor) = &*reactor {
            return Ok(reactor.clone());
        }
        Ok(reactor.insert(Self::new("valkey-rdma", || {})?).clone())
    }

    /// Waits on this thread for a future of this project's. This thread drives if it is the only one that waits.
    ///
    /// # Panics
    /// Inside an async runtime, which it would stall.
    pub fn call<T>(&self, future: impl Future<Output = T>) -> T {
        // Whether this thread drives or not, the same call panics.
        self.handle().block_on(ready(()));
        self.run(true, None, future).expect("without a deadline it waits")
    }

    /// As [`call`](Self::call), up to a deadline, which may be 1 ms late. `None`: the future was not done by then, and was dropped. Inside
    /// an async runtime it blocks the thread.
    pub fn call_until<T>(&self, deadline: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
        self.run(Handle::try_current().is_err(), deadline, future)
    }

    /// Waits on this thread for any future. Another thread drives: the future may block, or wait for other callers. Inside an async
    /// runtime it blocks the thread.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.run(false, None, future).expect("without a deadline it waits")
    }

    /// Leaves the runtime to the background thread from now on, for tasks that others than callers wait for.
    pub fn keep_in_background(&self) {
        let inner = self.inner();
        // A child takes none of its parent's locks: a thread that it does not have may have held one at the fork.
        if self.owner_elsewhere().is_none() && !inner.kept.swap(true, Ordering::Relaxed) {
            inner.turns.add_guest();
        }
    }

    /// The background thread drives this future to its end when the last clone was dropped, before the runtime ends. Dropping does not wait for
    /// it, nor does the end of the process. A forked child neither runs nor drops it: what it holds is its parent's.
    pub fn at_end(&self, last: impl Future<Output = ()> + Send + 'static) {
        *lock(&self.inner().last) = Some(Box::pin(last));
    }

    /// Leaves the runtime to the background thread for as long as the guest exists.
    pub(crate) fn guest(&self) -> Guest {
        self.inner().turns.add_guest();
        Guest(self.clone())
    }

    /// Enters the runtime, for what this thread starts or polls.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle().enter()
    }

    /// Starts a task, which the background thread runs.
    #[cfg(target_os = "linux")]
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let guest = self.guest();
        self.handle().spawn(async move {
            task.await;
            drop(guest);
        });
    }

    /// The process that made it, if this is another one: a child, which shares its descriptors and must not use them.
    ///
    /// Only process ids are compared, because each call does this. A descendant that has the id of the process that made it, which is dead,
    /// counts as that process.
    pub fn owner_elsewhere(&self) -> Option<u32> {
        let owner = self.inner().process;
        (owner != process::id()).then_some(owner)
    }

    /// # Errors
    /// In a child of the process that made it.
    pub(crate) fn check_process(&self, what: &str) -> io::Result<()> {
        match self.owner_elsewhere() {
            None => Ok(()),
            Some(owner) => {
                let forked = "which this one was forked from";
                Err(io::Error::other(format!("the {what} belongs to process {owner}, {forked}")))
            }
        }
    }

    /// Ends the runtime although clones of this exist, and drops its tasks, and what is left for the end: before the end of the process. No thread
    /// may begin to wait. One that drives now is waited for, up to `patience`; if it goes on, its tasks are not dropped.
    pub fn shut_down(&self, patience: Duration) {
        let inner = self.inner();
        let _not_run = lock(&inner.last).take();
        inner.turns.end();
        if inner.turns.wait_for_end(patience)
            && let Some(runtime) = lock(&inner.runtime).take()
        {
            runtime.shutdown_timeout(patience);
        }
    }

    fn run<T>(
        &self,
        may_lead: bool,
        deadline: Option<Instant>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let inner = self.inner();
        // What the future starts, waits for or drops belongs to the runtime.
        let _entered = self.enter();
        let mut future = pin!(future);
        if may_lead && let Some(lead) = inner.turns.lead() {
            return inner.drive(lead, deadline, future);
        }
        let wake_up = Arc::new(WakeUp { thread: thread::current(), is_due: AtomicBool::new(true) });
        let waker = Waker::from(wake_up.clone());
        let mut cx = Context::from_waker(&waker);
        let mut follow = None;
        loop {
            if wake_up.is_due.swap(false, Ordering::Acquire)
                && let Poll::Ready(done) = future.as_mut().poll(&mut cx)
            {
                return Some(done);
            }
            follow.get_or_insert_with(|| inner.turns.follow(may_lead));
            // The thread that drove may have left meanwhile.
            if may_lead && let Some(lead) = inner.turns.lead() {
                drop(follow);
                return inner.drive(lead, deadline, future);
            }
            // The future may have parked this thread itself, and so taken the wake-up.
            if wake_up.is_due.load(Ordering::Acquire) {
                continue;
            }
            match deadline {
                None => thread::park(),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now());
                    thread::park_timeout(left.filter(|left| !left.is_zero())?);
                }
            }
        }
    }

    fn handle(&self) -> &Handle {
        &self.inner().handle
    }

    fn inner(&self) -> &Inner {
        self.0.0.as_ref().expect("taken only by dropping")
    }
}

impl Inner {
    fn in_background(self: Arc<Self>) {
        while let Some(turn) = self.turns.background() {
            self.block_on(turn.until_asked());
        }
        let last = lock(&self.last).take();
        if let Some(last) = last {
            self.block_on(last);
        }
        self.let_go();
    }

    /// Runs a future to its end on the calling thread, and with it what else runs on the runtime.
    fn drive<T>(
        &self,
        mut lead: Lead<'_>,
        deadline: Option<Instant>,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> Option<T> {
        let future = poll_fn(|cx| {
            let polled = future.as_mut().poll(cx);
            if polled.is_pending() {
                lead.waits();
            }
            polled
        });
        match deadline {
            None => Some(self.block_on(future)),
            Some(deadline) => self.block_on(async { timeout_at(deadline.into(), future).await.ok() }),
        }
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        // One thread drives at a time, so none waits for the lock.
        let runtime = lock(&self.runtime);
        runtime.as_ref().expect("shut down when no thread drives any more").block_on(future)
    }

    /// The last one ends the runtime, without waiting, which is not allowed inside of another runtime.
    fn let_go(self: Arc<Self>) {
        if let Some(inner) = Arc::into_inner(self) {
            let runtime = inner.runtime.into_inner().unwrap_or_else(PoisonError::into_inner);
            // `None` after `shut_down`.
            if let Some(runtime) = runtime {
                runtime.shutdown_background();
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Some(inner) = self.0.take() {
            // As in `keep_in_background`.
            if inner.process != process::id() {
                return mem::forget(inner);
            }
            inner.turns.end();
            inner.let_go();
        }
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").finish_non_exhaustive()
    }
}

/// While it exists, the background thread drives.
#[derive(Debug)]
pub(crate) struct Guest(Reactor);

impl Drop for Guest {
    fn drop(&mut self) {
        self.0.inner().turns.remove_guest();
    }
}

/// Wakes a follower.
struct WakeUp {
    thread: Thread,
    /// The future is to be polled.
    is_due: AtomicBool,
}

impl Wake for WakeUp {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_due.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

#[cfg(test)]
mod tests;
