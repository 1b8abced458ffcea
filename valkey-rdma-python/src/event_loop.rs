//! [`EventLoop`]: carries results from the background threads to the futures of an asyncio loop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak, mpsc};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{IntoPyDict, PyType};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use valkey_rdma_transport::sync::lock;

use crate::completions::Completions;
use crate::errors::Failure;
use crate::local::Local;
use crate::python::{Answer, Any};
use crate::{memory, runtime};

/// Makes the result of an operation a Python object, on the loop's thread. It holds no [`EventLoop`], which would hold it for ever: a
/// result that comes after the end of its loop goes with the `EventLoop`.
pub(crate) type Convert = Box<dyn FnOnce(&Bound<'_, EventLoop>) -> PyResult<Py<PyAny>> + Send>;

/// A finished operation: its number, and its result.
type Completion = (u64, Result<Convert, Failure>);

/// One asyncio loop, and the futures that it awaits. The loop watches one descriptor for all of them.
#[pyclass(frozen, module = "valkey_rdma")]
pub(crate) struct EventLoop {
    asyncio: Py<PyAny>,
    shared: Arc<Shared>,
    /// Futures refer to it weakly, because it has them.
    pending: Arc<Pendings>,
    next: AtomicU64,
    /// True while the loop watches the descriptor.
    watched: AtomicBool,
}

struct Shared {
    completions: Completions<Completion>,
    /// True once the client has ended: the loop watches only while a future is pending.
    ended: AtomicBool,
}

impl Shared {
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.completions.ring();
    }
}

struct Pending {
    future: Py<PyAny>,
    cancel: Cancel,
}

/// Futures without a result, by the numbers of their operations.
type Pendings = Mutex<HashMap<u64, Pending>>;

/// What ends an operation whose future is cancelled, or whose loop has ended.
enum Cancel {
    /// Nothing: it ends in its own time.
    Nothing,
    Abort(Local<AbortHandle>),
    /// It uses memory of the program: it is asked to stop, and `Done` waits for it.
    Stop(Local<oneshot::Sender<()>>),
}

impl Cancel {
    fn cancel(self) {
        match self {
            Self::Nothing => {}
            Self::Abort(task) => {
                if let Some(task) = task.here() {
                    task.abort();
                }
            }
            Self::Stop(stop) => drop(stop),
        }
    }
}

/// Closed when an operation that uses memory of the program has ended. Nothing is ever sent.
type Ended = Local<Mutex<mpsc::Receiver<()>>>;

/// What becomes of an operation whose future is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cancelled {
    /// It goes on, and its result is dropped.
    GoesOn,
    /// It stops.
    Stops,
}

impl Cancelled {
    fn of(self, task: AbortHandle) -> (Cancel, Option<Ended>) {
        let cancel = match self {
            Self::GoesOn => Cancel::Nothing,
            Self::Stops => Cancel::Abort(Local::new(task)),
        };
        (cancel, None)
    }
}

/// Where an operation is polled for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    Here,
    InBackground,
}

impl EventLoop {
    /// For the running loop.
    ///
    /// # Errors
    /// RuntimeError outside of a running loop.
    pub(crate) fn running(py: Python<'_>) -> PyResult<Py<Self>> {
        static RUNNING: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let running = RUNNING
            .get_or_try_init(py, || py.import("asyncio")?.getattr("get_running_loop").map(Bound::unbind))?;
        let asyncio = running.call0(py)?;
        let shared = Arc::new(Shared { completions: Completions::new()?, ended: AtomicBool::new(false) });
        let this = Self {
            asyncio,
            shared,
            pending: Arc::default(),
            next: AtomicU64::new(0),
            watched: AtomicBool::new(false),
        };
        Py::new(py, this)
    }

    /// Makes the loop watch the descriptor, if it does not yet.
    fn watch(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        if !this.watched.swap(true, Ordering::AcqRel) {
            let reader = (this.shared.completions.fd(), slf.getattr("deliver")?);
            this.asyncio.call_method1(slf.py(), "add_reader", reader)?;
        }
        Ok(())
    }

    /// A future of the loop that has its result.
    pub(crate) fn ready<'py>(slf: &Bound<'py, Self>, result: Py<PyAny>) -> Answer<'py> {
        let future = slf.get().asyncio.bind(slf.py()).call_method0("create_future")?;
        future.call_method1("set_result", (result,))?;
        Ok(future)
    }

    /// Starts an operation. Returns a future of the loop for its result.
    ///
    /// The calling thread takes the operation to where it first waits: commands are queued in the order of the calls.
    pub(crate) fn start<'py, T: Send + 'static>(
        slf: &Bound<'py, Self>,
        handle: &Handle,
        cancelled: Cancelled,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py> {
        let future = slf.get().asyncio.bind(slf.py()).call_method0("create_future")?;
        let convert = |of: &Bound<'_, Self>, value| convert(of.py(), value);
        Self::begin(slf, handle, future, Begins::Here, operation, convert, |task| cancelled.of(task))
    }

    /// As [`start`](Self::start), on the background threads from the beginning: for what may take its time before it first waits,
    /// such as connecting.
    pub(crate) fn start_in_background<'py, T: Send + 'static>(
        slf: &Bound<'py, Self>,
        handle: &Handle,
        cancelled: Cancelled,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(&Bound<'_, Self>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py> {
        let future = slf.get().asyncio.bind(slf.py()).call_method0("create_future")?;
        Self::begin(slf, handle, future, Begins::InBackground, operation, convert, |task| cancelled.of(task))
    }

    /// As [`start_in_background`](Self::start_in_background), for an operation that uses memory of the program. When the future is cancelled, the operation does not
    /// use it any more.
    pub(crate) fn start_transfer<'py, T: Send + 'static, F>(
        slf: &Bound<'py, Self>,
        handle: &Handle,
        operation: impl FnOnce(oneshot::Receiver<()>) -> F,
        convert: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> Answer<'py>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        static FUTURE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let class = FUTURE.import(slf.py(), "valkey_rdma._futures", "BufferFuture")?;
        let of_loop = [("loop", slf.get().asyncio.bind(slf.py()))].into_py_dict(slf.py())?;
        let future = class.call((), Some(&of_loop))?;
        let (stop, stopped) = oneshot::channel();
        let (running, ended) = mpsc::channel::<()>();
        let operation = operation(stopped);
        let operation = async move {
            // First, so that its memory is released before `ended` says so, also if it is never polled.
            let done = operation.await;
            drop(running);
            done
        };
        let ended = Local::new(Mutex::new(ended));
        let cancel = |_| (Cancel::Stop(Local::new(stop)), Some(ended));
        let convert = |of: &Bound<'_, Self>, value| convert(of.py(), value);
        // It may copy large values: not on the loop's thread.
        Self::begin(slf, handle, future, Begins::InBackground, operation, convert, cancel)
    }

    fn begin<'py, T: Send + 'static>(
        slf: &Bound<'py, Self>,
        handle: &Handle,
        future: Any<'py>,
        begins: Begins,
        operation: impl Future<Output = Result<T, Failure>> + Send + 'static,
        convert: impl FnOnce(&Bound<'_, Self>, T) -> PyResult<Py<PyAny>> + Send + 'static,
        cancel: impl FnOnce(AbortHandle) -> (Cancel, Option<Ended>),
    ) -> Answer<'py> {
        runtime::refuse_at_exit(slf.py())?;
        Self::watch(slf)?;
        let this = slf.get();
        let number = this.next.fetch_add(1, Ordering::Relaxed);
        let shared = this.shared.clone();
        let mut operation = Box::pin(async move {
            let result = operation.await;
            let result =
                result.map(|value| Box::new(move |of: &Bound<'_, Self>| convert(of, value)) as Convert);
            shared.completions.push((number, result));
        });
        let done = match begins {
            Begins::Here => runtime::poll_once(slf.py(), handle, operation.as_mut())?.is_ready(),
            Begins::InBackground => false,
        };
        // A task is polled when it is new, whatever woke the operation in between.
        let (cancel, ended) = match done {
            true => (Cancel::Nothing, None),
            false => cancel(handle.spawn(operation).abort_handle()),
        };
        let at_end = || {
            let (pending, shared) = (Arc::downgrade(&this.pending), Arc::downgrade(&this.shared));
            Bound::new(slf.py(), Done { number, pending, shared, ended })
        };
        match cancel {
            Cancel::Nothing => {}
            Cancel::Abort(_) => drop(future.call_method1("add_done_callback", (at_end()?,))?),
            Cancel::Stop(_) => future.setattr("_stop", at_end()?)?,
        }
        this.pending().insert(number, Pending { future: future.clone().unbind(), cancel });
        Ok(future)
    }

    /// The client has ended: stops watching once no future is pending.
    pub(crate) fn end(&self) {
        self.shared.end();
    }

    /// Sets the result of a future.
    fn settle(slf: &Bound<'_, Self>, future: &Any<'_>, result: Result<Convert, Failure>) -> PyResult<()> {
        let py = slf.py();
        // Cancelled: what was not converted is dropped, and an event goes back to its subscriber.
        if future.call_method0("done")?.is_truthy()? {
            return Ok(());
        }
        match result.map_err(|failure| failure.raise(py)).and_then(|convert| convert(slf)) {
            Ok(value) => future.call_method1("set_result", (value,))?,
            Err(error) => future.call_method1("set_exception", (error.into_value(py),))?,
        };
        Ok(())
    }

    fn pending(&self) -> MutexGuard<'_, HashMap<u64, Pending>> {
        lock(&self.pending)
    }
}

/// Ends the operations of futures that are still pending. The loop has ended: it can deliver nothing any more.
impl Drop for EventLoop {
    fn drop(&mut self) {
        let pending = std::mem::take(&mut *self.pending());
        for Pending { cancel, .. } in pending.into_values() {
            cancel.cancel();
        }
    }
}

#[pymethods]
impl EventLoop {
    /// Sets the results of futures. The loop calls it when the descriptor is readable.
    fn deliver(slf: &Bound<'_, Self>) -> PyResult<()> {
        let (this, py) = (slf.get(), slf.py());
        let mut completions = this.shared.completions.take().into_iter();
        while let Some((number, result)) = completions.next() {
            let pending = this.pending().remove(&number);
            let Some(Pending { future, .. }) = pending else { continue };
            // Futures run Python code, in which a signal handler may raise. The rest waits for the next delivery.
            if let Err(error) = Self::settle(slf, future.bind(py), result) {
                this.shared.completions.put_back(completions.collect());
                return Err(error);
            }
        }
        memory::release_all(py);
        let unused = this.shared.ended.load(Ordering::Acquire) && this.pending().is_empty();
        if unused && this.watched.swap(false, Ordering::AcqRel) {
            this.asyncio.call_method1(py, "remove_reader", (this.shared.completions.fd(),))?;
        }
        Ok(())
    }
}

/// Ends the loop's watching when it is dropped.
pub(crate) struct EndOnDrop(Weak<Shared>);

impl EndOnDrop {
    pub(crate) fn new(event_loop: &Py<EventLoop>) -> Self {
        Self(Arc::downgrade(&event_loop.get().shared))
    }

    /// The loop goes on watching.
    pub(crate) fn forget(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.end();
        }
    }
}

/// Called by a future that is cancelled or done. It refers to the `EventLoop` weakly, because that has the future until then, and Python's
/// garbage collector does not see this circle.
#[pyclass(frozen)]
struct Done {
    number: u64,
    pending: Weak<Pendings>,
    shared: Weak<Shared>,
    /// Of an operation that uses memory of the program.
    ended: Option<Ended>,
}

#[pymethods]
impl Done {
    fn __call__(&self, py: Python<'_>, future: &Any) -> PyResult<()> {
        if !future.call_method0("cancelled")?.is_truthy()? {
            return Ok(());
        }
        let pending = self.pending.upgrade().and_then(|pending| lock(&pending).remove(&self.number));
        if let Some(Pending { cancel, .. }) = pending {
            cancel.cancel();
        }
        if let Some(ended) = self.ended.as_ref().and_then(Local::here) {
            // Without a limit: until it ends, servers may write to memory that the program would take for its own. It ends when the
            // connections of silent servers have ended, or with the background threads.
            let _ = py.detach(|| lock(ended).recv());
            memory::release_all(py);
        }
        // The memory of the operation is released by the next delivery.
        if let Some(shared) = self.shared.upgrade() {
            shared.completions.ring();
        }
        Ok(())
    }
}
