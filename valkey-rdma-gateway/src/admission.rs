//! [`Admission`]: whether the server still admits clients that do not log in.
//!
//! A connection stays logged in when the server's default user gets a password or is turned off; a new one has to log in. A client that
//! comes to the gateway is a new one, so it must not use the connection of those before it any more. Those go on, as they would directly.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::seldom::Seldom;

/// Which generation of clients without a login comes now.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    generation: AtomicU64,
    /// An answer holds for a second, however many clients come.
    asked: Seldom,
}

impl Admission {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether it is time to ask the server again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.asked.pass(now.into_std()).is_some()
    }

    /// The server admits no more of this generation.
    pub(crate) fn end(&self, generation: u64) -> bool {
        let next = generation + 1;
        self.generation.compare_exchange(generation, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
