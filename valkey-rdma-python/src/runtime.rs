//! The background threads of this process, and waiting for them with Python's lock released.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::process;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
pub(crate) use valkey_rdma_transport::blocking::Reactor as Calls;
use valkey_rdma_transport::runtime_without_signals;
use valkey_rdma_transport::sync::{lock, read, write};

use crate::errors::Failure;
use crate::local::Local;
use crate::reactor::Reactor;
use crate::replaced::Replaced;

/// The runtime of a process. A forked child has none of its threads, so it makes its own.
pub(crate) struct OfProcess {
    process: u32,
    runtime: ManuallyDrop<Runtime>,
    /// That of the connections of blocking clients, which a thread that waits alone drives itself.
    calls: ManuallyDrop<Calls>,
}

static RUNTIME: Mutex<Option<OfProcess>> = Mutex::new(None);

pub(crate) fn current() -> MutexGuard<'static, Option<OfProcess>> {
    lock(&RUNTIME)
}

/// The background threads of this process, which are started at the first call.
///
/// # Errors
/// ClosedError once Python exits.
pub(crate) fn handle(py: Python<'_>) -> PyResult<Handle> {
    of_process(py, |running| running.runtime.handle().clone())
}

/// The runtime that blocking clients of this process connect and wait in.
///
/// # Errors
/// ClosedError once Python exits.
pub(crate) fn calls(py: Python<'_>) -> PyResult<Calls> {
    of_process(py, |running| Calls::clone(&running.calls))
}

fn of_process<T>(py: Python<'_>, part: impl FnOnce(&OfProcess) -> T) -> PyResult<T> {
    wait_for_forks(py);
    let mut current = current();
    if let Some(running) = current.as_ref().filter(|running| running.process == process::id()) {
        return Ok(part(running));
    }
    if is_exiting() {
        // Raising may release Python's lock, and a thread that takes it may wait for this one.
        drop(current);
        return Err(Failure::Exiting.raise(py));
    }
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKERS).thread_name("valkey-rdma").enable_all();
    let runtime = runtime_without_signals(&mut builder, || IN_BACKGROUND.set(true))?;
    let calls = Calls::new("valkey-rdma-calls", || IN_BACKGROUND.set(true))?;
    // That of a parent process is not dropped: its descriptors are the parent's.
    let running = OfProcess {
        process: process::id(),
        runtime: ManuallyDrop::new(runtime),
        calls: ManuallyDrop::new(calls),
    };
    Ok(part(current.insert(running)))
}

/// Ends the background threads, and with them everything in flight. Python calls it when it exits, before it frees memory that
/// they may use.
pub(crate) fn shut_down() {
    *gate() = true;
    let running = current().take();
    if let Some(running) = running.filter(|running| running.process == process::id()) {
        running.calls.shut_down(PATIENCE);
        ManuallyDrop::into_inner(running.runtime).shutdown_timeout(PATIENCE);
    }
}

/// True once Python exits. Threads that still wait, which can only be daemon threads, then wait for the end of the process. They poll
/// with the lock held for reading, so that nothing is polled while the runtime ends, which would panic.
static EXITING: RwLock<bool> = RwLock::new(false);

/// Waits until no calling thread polls, and keeps all of them from it.
pub(crate) fn gate() -> RwLockWriteGuard<'static, bool> {
    write(&EXITING)
}

/// True once Python exits: background threads run nothing any more.
pub(crate) fn is_exiting() -> bool {
    // This thread may hold Python's lock. A thread that forks holds the gate and may wait for that lock, so this waits for neither.
    EXITING.try_read().is_ok_and(|exiting| *exiting)
}

/// # Errors
/// ClosedError once Python exits, for calls of `atexit` callbacks and of objects that are freed then.
pub(crate) fn refuse_at_exit(py: Python<'_>) -> PyResult<()> {
    if is_exiting() { Err(Failure::Exiting.raise(py)) } else { Ok(()) }
}

/// Waits for a future, with Python's lock released. Signal handlers run meanwhile; if one raises, the future is dropped.
///
/// The calling thread polls the future, so that it copies large values itself.
///
/// # Errors
/// What a signal handler raises; ForkedError in a child that a signal handler has forked; ClosedError once Python exits.
pub(crate) fn wait<T: Send>(
    py: Python<'_>,
    handle: &Handle,
    future: impl Future<Output = T> + Send,
) -> PyResult<T> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = Local::new(Box::pin(future));
    poll_to_end(py, &mut future, |future| park_for_a_while(handle, future, &waker), || py.check_signals())
}

/// As [`wait`], in the runtime of blocking clients, which the calling thread drives if it waits alone.
///
/// # Errors
/// What a signal handler raises; ForkedError in a child that a signal handler has forked; ClosedError once Python exits.
pub(crate) fn wait_in<F: Future<Output: Send> + Send>(
    py: Python<'_>,
    calls: &Calls,
    future: F,
) -> PyResult<F::Output> {
    let mut future = Local::new(Box::pin(future));
    let poll = |mut future: Pin<&mut F>| {
        let polled = poll_fn(|cx| match unless_exiting(|| future.as_mut().poll(cx)) {
            Some(polled) => polled.map(Some),
            // It ends its turn at the runtime first.
            None => Poll::Ready(None),
        });
        let _driving = Replaced::new(&IN_BACKGROUND, true);
        let done = calls.call_until(Some(Instant::now() + SIGNAL_CHECK), polled)?;
        Some(done.unwrap_or_else(|| sleep_until_the_end()))
    };
    poll_to_end(py, &mut future, poll, || py.check_signals())
}

/// As [`wait`], for an operation whose tasks on the background threads use memory of the program. If a signal handler raises, it is
/// asked to stop, and waited for.
///
/// If it moves few `bytes`, the calling thread waits for the socket of its lane itself: see [`Reactor`].
pub(crate) fn wait_until_stopped<T: Send, F: Future<Output = T> + Send>(
    py: Python<'_>,
    handle: &Handle,
    bytes: usize,
    operation: impl FnOnce(oneshot::Receiver<()>) -> F,
) -> PyResult<T> {
    let (stop, stopped) = oneshot::channel();
    // A child must not wake what its parent waits with.
    let stop = Local::new(stop);
    let mut future = Local::new(Box::pin(operation(stopped)));
    // Without descriptors for its own, the background threads wait in its place.
    let reactor = if bytes <= FEW_BYTES { Reactor::of_thread().ok() } else { None };
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let poll = |mut future: Pin<&mut F>| match &reactor {
        Some(reactor) => {
            let polled = poll_fn(|cx| poll_unless_exiting(handle, future.as_mut(), cx));
            reactor.poll_for(SIGNAL_CHECK, polled)
        }
        None => park_for_a_while(handle, future, &waker),
    };
    let done = poll_to_end(py, &mut future, poll, || py.check_signals());
    if done.is_err() && future.here().is_some() {
        drop(stop);
        poll_to_end(py, &mut future, poll, || Ok(()))?;
    }
    done
}

/// Calls `poll`, which returns after a while, until it has the result.
fn poll_to_end<F: Future<Output: Send> + Send>(
    py: Python<'_>,
    future: &mut Local<Pin<Box<F>>>,
    poll: impl Fn(Pin<&mut F>) -> Option<F::Output> + Sync,
    check: impl Fn() -> PyResult<()>,
) -> PyResult<F::Output> {
    refuse_at_exit(py)?;
    let _waiting = Replaced::new(&DEPTH, DEPTH.get() + 1);
    while let Some(future) = future.here_mut() {
        match py.detach(|| poll(future.as_mut())) {
            Some(done) => return Ok(done),
            None => check()?,
        }
    }
    // A signal handler has forked this process, and the call goes on in its parent.
    Err(Failure::ForkedMeanwhile.raise(py))
}

thread_local! {
    /// How many operations this thread waits for: several if a signal handler makes calls too.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// True if the calling thread waits for an operation, and a signal handler runs meanwhile.
pub(crate) fn is_waiting() -> bool {
    DEPTH.get() > 0
}

/// `None`: it is not done yet.
fn park_for_a_while<T>(
    handle: &Handle,
    mut future: Pin<&mut impl Future<Output = T>>,
    waker: &Waker,
) -> Option<T> {
    let end = Instant::now() + SIGNAL_CHECK;
    loop {
        let mut cx = Context::from_waker(waker);
        if let Poll::Ready(done) = poll_unless_exiting(handle, future.as_mut(), &mut cx) {
            return Some(done);
        }
        let left = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        thread::park_timeout(left);
    }
}

/// Polls a future, whose tasks and timers are the background threads'.
fn poll_unless_exiting<T>(
    handle: &Handle,
    future: Pin<&mut impl Future<Output = T>>,
    cx: &mut Context<'_>,
) -> Poll<T> {
    let polled = unless_exiting(|| {
        let _entered = handle.enter();
        future.poll(cx)
    });
    polled.unwrap_or_else(|| sleep_until_the_end())
}

/// Runs a step without Python's lock, while no thread forks. `None` once Python exits.
fn unless_exiting<T>(step: impl FnOnce() -> T) -> Option<T> {
    let exiting = read(&EXITING);
    // What it drops does not take that lock once more.
    let _guarded = Replaced::new(&IN_BACKGROUND, false);
    (!*exiting).then(step)
}

/// Waits until no thread forks. None begins to before this one gives Python's lock away: from here on until then it may take the locks
/// that forking holds. The thread that forks may need Python's lock while it holds them, because other modules have code that runs then.
pub(crate) fn wait_for_forks(py: Python<'_>) {
    while let Err(TryLockError::WouldBlock) = EXITING.try_read() {
        py.detach(|| drop(EXITING.read()));
    }
}

/// Polls a future once, without a waker, and with Python's lock held.
///
/// # Errors
/// ClosedError once Python exits.
pub(crate) fn poll_once<T>(
    py: Python<'_>,
    handle: &Handle,
    future: Pin<&mut impl Future<Output = T>>,
) -> PyResult<Poll<T>> {
    wait_for_forks(py);
    // At exit, other threads hold it for moments, without Python's lock.
    let exiting = read(&EXITING);
    if *exiting {
        drop(exiting);
        return Err(Failure::Exiting.raise(py));
    }
    let _entered = handle.enter();
    Ok(future.poll(&mut Context::from_waker(Waker::noop())))
}

/// Keeps other threads from forking, if this is a background thread: these never have Python's lock, which keeps them from it too.
pub(crate) fn no_fork_meanwhile() -> Option<RwLockReadGuard<'static, bool>> {
    IN_BACKGROUND.get().then(|| read(&EXITING))
}

thread_local! {
    /// Whether this thread runs what background threads run.
    static IN_BACKGROUND: Cell<bool> = const { Cell::new(false) };
}

fn sleep_until_the_end() -> ! {
    loop {
        thread::park();
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

/// How many background threads: they take events of the network, and copy large values of asynchronous calls.
const WORKERS: usize = 2;

/// Up to this size, the wake-up of a second thread costs more than it brings. Larger values spare little. On a busy machine they even
/// arrived more slowly without that thread: the kernel may run a thread that waits for its own socket on the sender's processor.
const FEW_BYTES: usize = 256 << 10;

/// How often a waiting call looks for signals, such as Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(100);

/// How long Python's exit waits for the background threads. They only end what they are computing.
const PATIENCE: Duration = Duration::from_secs(5);
