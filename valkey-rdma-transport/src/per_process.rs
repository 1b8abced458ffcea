//! [`PerProcess`]: state that a forked child does not take over from its parent.

use std::io;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A value for each process. A child starts with a copy of its parent's memory. A lock that another thread of the parent held at the
/// fork stays locked in the copy for ever, so a child never touches the values of its ancestors, and makes one of its own.
pub(crate) struct PerProcess<T> {
    /// The oldest ancestor's first. It does not grow, because growing takes a lock that could be held at a fork.
    slots: [Slot<T>; GENERATIONS],
}

/// How many processes, each forked from the one before, can have a value.
const GENERATIONS: usize = 64;

struct Slot<T> {
    /// The process that took the slot, or 0. Only threads of that process touch the value.
    process: AtomicU32,
    value: OnceLock<T>,
}

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { slots: [const { Slot { process: AtomicU32::new(0), value: OnceLock::new() } }; GENERATIONS] }
    }

    /// The value of this process, made at its first call.
    pub(crate) fn get(&self) -> io::Result<&T> {
        self.of(process::id())
    }

    fn of(&self, this: u32) -> io::Result<&T> {
        let taken = self.slots.iter().find(|slot| {
            let taken = slot.process.compare_exchange(0, this, Ordering::SeqCst, Ordering::SeqCst);
            taken.is_ok() || taken == Err(this)
        });
        let slot = taken.ok_or_else(|| {
            let forked =
                "processes have connected, each forked from the one before: connect in fewer of them";
            io::Error::other(format!("more than {GENERATIONS} {forked}"))
        })?;
        Ok(slot.value.get_or_init(T::default))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Mutex, lock};

    #[test]
    fn a_lock_that_the_parent_holds_does_not_keep_its_child_waiting() {
        let values = PerProcess::<Mutex<u32>>::new();
        let mut parents = lock(values.of(1).expect("free"));
        *parents = 1;
        assert_eq!(*lock(values.of(2).expect("free")), 0);
        drop(parents);
        assert_eq!(*lock(values.of(1).expect("taken before")), 1);
    }

    #[test]
    fn too_many_generations_are_an_error() {
        let values = PerProcess::<u32>::new();
        let generations = GENERATIONS as u32;
        for process in 1..=generations {
            values.of(process).expect("free");
        }
        values.of(generations + 1).expect_err("all are taken");
        values.of(1).expect("taken before");
    }
}
