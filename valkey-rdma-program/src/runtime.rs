//! The tokio runtime of a program.

use tokio::runtime::{Builder, Runtime};

use crate::numbers::plural;

/// A runtime with this number of threads. One is the calling thread.
///
/// # Errors
/// A text for people if the operating system refuses threads or descriptors.
pub fn runtime(threads: u16) -> Result<Runtime, String> {
    let built = match threads {
        ..=1 => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(threads.into()).enable_all().build(),
    };
    built.map_err(|error| format!("cannot start {}: {error}", plural(threads.into(), "thread")))
}
