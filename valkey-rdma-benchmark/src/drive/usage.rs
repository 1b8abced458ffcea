//! Processor time and sleeps of a thread.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};

/// What a thread has used of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Time in the program itself.
    pub(crate) user: Duration,
    /// Time in the kernel on its behalf.
    pub(crate) system: Duration,
    /// How often it slept.
    pub(crate) sleeps: u64,
}

impl Usage {
    /// That of this thread so far.
    pub(super) fn of_this_thread() -> Usage {
        Usage::of(UsageWho::RUSAGE_THREAD)
    }

    /// That of all threads so far.
    pub(super) fn of_this_process() -> Usage {
        Usage::of(UsageWho::RUSAGE_SELF)
    }

    fn of(who: UsageWho) -> Usage {
        let Ok(usage) = getrusage(who) else { return Usage::default() };
        let time = |time: TimeVal| Duration::from_micros(time.num_microseconds().unsigned_abs());
        Usage {
            user: time(usage.user_time()),
            system: time(usage.system_time()),
            sleeps: u64::try_from(usage.voluntary_context_switches()).unwrap_or(0),
        }
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            sleeps: self.sleeps.saturating_sub(earlier.sleeps),
        }
    }

    /// Adds what another thread has used.
    pub(crate) fn add(&mut self, other: Usage) {
        self.user += other.user;
        self.system += other.system;
        self.sleeps += other.sleeps;
    }

    /// Time in program and kernel together.
    pub(crate) fn cpu(&self) -> Duration {
        self.user + self.system
    }
}
