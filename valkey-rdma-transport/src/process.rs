//! What a library owes the process that it runs in: state that a forked child does not take over from its parent, and signals
//! left to the program.
//!
//! If a background thread took signals, the kernel could choose it for one that the program has blocked in all its threads, to read
//! it from a `signalfd` or with `sigwait`. Its default action would then end the process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{io, process};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use tokio::runtime::{Builder, Runtime};

/// A value for each process. A child starts with a copy of its parent's memory. A lock that another thread of the parent held at the
/// fork stays locked in the copy for ever, so a child never touches the values of its ancestors, and makes one of its own.
pub(crate) struct PerProcess<T> {
    /// The oldest ancestor's first. It does not grow, because growing takes a lock that could be held at a fork.
    slots: [Slot<T>; GENERATIONS],
}

/// How many processes, each forked from the one before, can have a value.
const GENERATIONS: usize = 64;

struct Slot<T> {
    /// The [identity] of the process that took the slot, or 0. Only threads of that process touch the value.
    process: AtomicU64,
    value: OnceLock<T>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot { process: AtomicU64::new(0), value: OnceLock::new() } }; GENERATIONS] }
    }

    /// The value of this process, made at its first call.
    pub(crate) fn get(&self) -> io::Result<&T> {
        self.of(identity())
    }

    fn of(&self, this: u64) -> io::Result<&T> {
        let taken = self.slots.iter().find(|slot| {
            let taken = slot.process.compare_exchange(0, this, Ordering::SeqCst, Ordering::SeqCst);
            taken.map_or_else(|owner| is_same(owner, this), |_| true)
        });
        let slot = taken.ok_or_else(|| {
            let forked =
                "processes have connected, each forked from the one before: connect in fewer of them";
            io::Error::other(format!("more than {GENERATIONS} {forked}"))
        })?;
        Ok(slot.value.get_or_init(T::default))
    }
}

/// Distinguishes this process from all others, also from a dead ancestor with the same id: the id, and when the process began; 0 if
/// the system does not say that, as in a chroot. A descendant gets the id of a dead ancestor when ids begin again, or as the first process
/// of another container.
///
/// This reads a file, so it is for calls that connect. Calls on a connection compare process ids only.
fn identity() -> u64 {
    let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
    u64::from(process::id()) << 32 | start_of(&String::from_utf8_lossy(&stat)).unwrap_or(0)
}

/// True if both are the identity of one process, as far as is known. A process may lose the access to that file.
fn is_same(one: u64, other: u64) -> bool {
    let (start, other_start) = (one & START, other & START);
    one >> 32 == other >> 32 && (start == other_start || start == 0 || other_start == 0)
}

/// The half of an identity that says when the process began.
const START: u64 = 0xffff_ffff;

/// When a process began, in clock ticks since the system began, modulo 2^32.
///
/// Source: proc_pid_stat(5), field 22.
fn start_of(stat: &str) -> Option<u64> {
    // The name of the program comes before, in parentheses, and may contain some.
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_ascii_whitespace().nth(19)?.parse().ok()?;
    Some(ticks & START)
}

/// Builds a runtime whose threads block all signals but those of their own faults, and call `begin` first. It replaces the builder's
/// `on_thread_start`. For our other crates.
///
/// # Errors
/// As for [`Builder::build`].
pub fn runtime_without_signals(
    builder: &mut Builder,
    begin: impl Fn() + Send + Sync + 'static,
) -> io::Result<Runtime> {
    // The threads of now, and those that a caller's thread starts later.
    let builder = builder.on_thread_start(move || {
        block();
        begin();
    });
    without_signals(|| builder.build())
}

/// Runs `start`, which starts a thread. That thread blocks all signals but those of its own faults.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Mutex, lock};

    #[test]
    fn a_process_has_one_identity() {
        let ours = identity();
        assert_eq!(identity(), ours);
        assert_eq!(ours >> 32, u64::from(process::id()));
        #[cfg(target_os = "linux")]
        assert_ne!(ours & START, 0, "it began after the system did");
    }

    #[test]
    fn a_process_that_loses_access_to_its_start_keeps_its_value() {
        let values = PerProcess::<Mutex<u32>>::new();
        let process = |id: u64, start: u64| id << 32 | start;
        *lock(values.of(process(7, 1)).expect("free")) = 1;
        assert_eq!(*lock(values.of(process(7, 0)).expect("taken before")), 1);
        assert_eq!(*lock(values.of(process(8, 0)).expect("free")), 0);
    }

    /// Linux gives an id again when its owner is dead.
    #[test]
    fn a_process_with_the_id_of_a_dead_ancestor_has_a_value_of_its_own() {
        let values = PerProcess::<Mutex<u32>>::new();
        let process = |start: u64| 7 << 32 | start;
        *lock(values.of(process(1)).expect("free")) = 1;
        assert_eq!(*lock(values.of(process(2)).expect("free")), 0);
    }

    #[test]
    fn the_start_is_found_behind_a_name_with_parentheses() {
        let fields = |name: &str| format!("7 ({name}) S {} 4242 0 0\n", "1 ".repeat(18).trim_end());
        for name in ["server", "a b", ") S 1 1 (", "))) 2 2 2"] {
            assert_eq!(start_of(&fields(name)), Some(4242), "{name}");
        }
        for text in ["", "7 (cut", "7 (cut) S 1 2", "7 (x) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 soon"] {
            assert_eq!(start_of(text), None, "{text}");
        }
    }

    #[test]
    fn a_lock_that_the_parent_holds_does_not_keep_its_child_waiting() {
        let values = PerProcess::<Mutex<u32>>::new();
        let mut parents = lock(values.of(1 << 32).expect("free"));
        *parents = 1;
        assert_eq!(*lock(values.of(2 << 32).expect("free")), 0);
        drop(parents);
        assert_eq!(*lock(values.of(1 << 32).expect("taken before")), 1);
    }

    #[test]
    fn too_many_generations_are_an_error() {
        let values = PerProcess::<u32>::new();
        let generations = GENERATIONS as u64;
        for process in 1..=generations {
            values.of(process << 32).expect("free");
        }
        values.of((generations + 1) << 32).expect_err("all are taken");
        values.of(1 << 32).expect("taken before");
    }
}
