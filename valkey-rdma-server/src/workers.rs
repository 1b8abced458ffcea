//! The threads of [`Builder::threads`](crate::Builder::threads): each has a runtime, and serves its connections alone.
//!
//! A connection stays on its thread, so that no command wakes another one. Connections are counted out and not hashed over the
//! threads (`SO_REUSEPORT`), because few of them live long: two on one thread and none on another would stay so.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use valkey_rdma_transport::SharedCq;

/// The threads of a server. They end after the drop of this, when their last connections are closed.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Arc<Worker>>,
    _end: DropGuard,
}

/// One thread.
#[derive(Debug)]
pub(crate) struct Worker {
    runtime: Handle,
    /// Shared by the connections of this thread. Across threads it would cost more than it saves.
    shared_cq: SharedCq,
    /// How many connections it serves.
    connections: AtomicUsize,
}

/// A thread that one connection counts for, until this is dropped.
#[derive(Debug)]
pub(crate) struct Assigned(Arc<Worker>);

/// The threads of a server, to be waited for.
#[derive(Debug)]
pub(crate) struct Threads(Vec<Thread>);

#[derive(Debug)]
struct Thread {
    handle: thread::JoinHandle<()>,
    /// Its sender is dropped when the thread has nothing left to do.
    ended: oneshot::Receiver<()>,
}

impl Workers {
    pub(crate) fn start(count: usize) -> io::Result<(Self, Threads)> {
        let end = CancellationToken::new();
        // Ends those that were started if one cannot be.
        let mut workers = Self { workers: Vec::new(), _end: end.clone().drop_guard() };
        let mut threads = Vec::new();
        for number in 1..=count {
            let runtime = Arc::new(Builder::new_current_thread().enable_all().build()?);
            workers.workers.push(Arc::new(Worker {
                runtime: runtime.handle().clone(),
                shared_cq: SharedCq::new(),
                connections: AtomicUsize::new(0),
            }));
            let serve = serve(end.clone());
            let (at_end, ended) = oneshot::channel::<()>();
            let spawned = thread::Builder::new().name(format!("valkey-server-{number}")).spawn({
                let runtime = runtime.clone();
                move || {
                    runtime.block_on(serve);
                    drop(runtime);
                    drop(at_end);
                }
            });
            let handle = spawned.inspect_err(|_| {
                // A runtime that is dropped on a thread of another one panics.
                if let Some(runtime) = Arc::into_inner(runtime) {
                    runtime.shutdown_background();
                }
            })?;
            threads.push(Thread { handle, ended });
        }
        Ok((workers, Threads(threads)))
    }

    /// Assigns the next connection to the thread that has the fewest. `None` if connections are served where they are accepted.
    pub(crate) fn next(&self) -> Option<Assigned> {
        let fewest = self.workers.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed))?;
        fewest.connections.fetch_add(1, Ordering::Relaxed);
        Some(Assigned(fewest.clone()))
    }
}

impl Assigned {
    /// What is made until the drop of the guard belongs to this thread's runtime.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.0.runtime.enter()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    pub(crate) fn shared_cq(&self) -> &SharedCq {
        &self.0.shared_cq
    }
}

impl Drop for Assigned {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    /// Waits until all of them have ended. Their [`Workers`] are dropped before.
    pub(crate) async fn join(self) {
        for Thread { handle, ended } in self.0 {
            // Never sent to. From here on the thread only returns, so that joining it does not block.
            let _ = ended.await;
            // A panic was reported by the panic hook, and ends one thread of a server that ends anyway.
            let _ = handle.join();
        }
    }
}

/// Runs the connections of one thread until `end`, and then for a while those that still close in the background.
async fn serve(end: CancellationToken) {
    end.cancelled().await;
    let tasks = Handle::current().metrics();
    let closing = async {
        while tasks.num_alive_tasks() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    // Tasks that a handler has started may never end.
    let _ = timeout(CLOSING, closing).await;
}

/// Longer than streams take to close: they give their peers a time of their own.
const CLOSING: Duration = Duration::from_secs(10);
