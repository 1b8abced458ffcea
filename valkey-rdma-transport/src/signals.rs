//! Signals are for the program's own threads.
//!
//! If a background thread took them, the kernel could choose it for a signal that the program has blocked in all its threads, to read
//! it from a `signalfd` or with `sigwait`. Its default action would then end the process.

use std::io;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use tokio::runtime::{Builder, Runtime};

/// Builds a runtime whose threads block all signals but those of their own faults. It replaces the builder's `on_thread_start`.
///
/// # Errors
/// As for [`Builder::build`].
pub fn runtime(builder: &mut Builder) -> io::Result<Runtime> {
    // The threads of now, and those that a caller's thread starts later.
    let builder = builder.on_thread_start(|| {
        block();
    });
    blocked(|| builder.build())
}

/// Runs `start`, which starts a thread. That thread blocks all signals but those of its own faults.
pub(crate) fn blocked<T>(start: impl FnOnce() -> T) -> T {
    // A thread starts with the mask of the thread that starts it.
    let before = block();
    let started = start();
    if let Some(before) = before {
        // It cannot fail: the kernel made this mask.
        let _ = before.thread_set_mask();
    }
    started
}

/// Blocks all signals but those of faults in this thread. Returns the mask of before.
fn block() -> Option<SigSet> {
    let mut signals = SigSet::all();
    let faults =
        [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS];
    for fault in faults {
        signals.remove(fault);
    }
    signals.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok()
}
