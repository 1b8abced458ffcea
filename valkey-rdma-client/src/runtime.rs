//! [`Runtime`]: the runtime that a client's connections live on, whichever runtime its callers use.

use std::future::{Future, pending};
use std::panic::resume_unwind;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The runtime that connected a client. A socket is bound to the runtime that has opened it, and is lost with it: so every connection is made here.
#[derive(Clone, Debug)]
pub(crate) struct Runtime(Handle);

impl Runtime {
    /// The current runtime. Must run inside one.
    pub(crate) fn here() -> Self {
        Self(Handle::current())
    }

    /// Makes a future that waits for time: with the clock of the caller's runtime or, outside of every runtime, of this one.
    pub(crate) fn timed<F>(&self, make: impl FnOnce() -> F) -> F {
        let _entered = Handle::try_current().is_err().then(|| self.0.enter());
        make()
    }

    /// Starts a task. A runtime that has shut down drops it at once.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }

    /// Does work there, and waits for its result. `None`: the runtime has shut down.
    ///
    /// Dropping the future ends the work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let mut tasks = JoinSet::new();
        tasks.spawn_on(work, &self.0);
        match tasks.join_next().await? {
            Ok(result) => Some(result),
            Err(error) => error.try_into_panic().map_or(None, |panic| resume_unwind(panic)),
        }
    }
}

/// Completes at this moment. `None`: never.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
