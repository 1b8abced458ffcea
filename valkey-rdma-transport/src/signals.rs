//! Signals are for the program's own threads.
//!
//! If a background thread took them, the kernel could choose it for a signal that the program has blocked in all its threads, to read
//! it from a `signalfd` or with `sigwait`. Its default action would then end the process.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

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
pub(crate) fn block() -> Option<SigSet> {
    let mut signals = SigSet::all();
    let faults =
        [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGTRAP, Signal::SIGSYS];
    for fault in faults {
        signals.remove(fault);
    }
    signals.thread_swap_mask(SigmaskHow::SIG_SETMASK).ok()
}
