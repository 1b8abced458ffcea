//! The threads of [`Builder::threads`](crate::Builder::threads): each has a runtime, and serves its connections alone.
//!
//! A connection stays on its thread, so that no command wakes another one. Connections are counted out and not hashed over the
//! threads (`SO_REUSEPORT`), because few of them live long: two on one thread and none on another would stay so.

use std::io;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, EnterGuard, Handle};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use valkey_rdma_transport::SharedCq;

/// The threads of a server. They end after the drop of this, when their last connections are closed.
#[derive(Debug)]
pub(crate) struct Workers {
    workers: Vec<Worker>,
    _end: DropGuard,
}

/// One thread.
#[derive(Debug)]
pub(crate) struct Worker {
    runtime: Handle,
    /// Shared by the connections of this thread. Across threads it would cost more than it saves.
    pub(crate) shared_cq: SharedCq,
}

impl Workers {
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let end = CancellationToken::new();
        // Ends those that were started if one cannot be.
        let mut workers = Self { workers: Vec::new(), _end: end.clone().drop_guard() };
        for number in 1..=count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            workers.workers.push(Worker { runtime: runtime.handle().clone(), shared_cq: SharedCq::new() });
            let serve = serve(end.clone());
            thread::Builder::new()
                .name(format!("valkey-server-{number}"))
                .spawn(move || runtime.block_on(serve))?;
        }
        Ok(workers)
    }

    /// The thread for the next connection: the one with the fewest. `None` if connections are served where they are accepted.
    pub(crate) fn next(&self) -> Option<&Worker> {
        self.workers.iter().min_by_key(|worker| worker.runtime.metrics().num_alive_tasks())
    }
}

impl Worker {
    /// What is made until the drop of the guard belongs to this thread's runtime.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
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
