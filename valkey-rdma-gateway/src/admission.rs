//! [`Admission`]: whether the server still admits clients that do not log in.
//!
//! A connection stays logged in when the server's default user gets a password or is turned off; a new one has to log in. A client that
//! comes to the gateway is a new one, so it must not use the connection of those before it any more. Those go on, as they would directly.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::inbox::lock;

/// Which generation of clients without a login comes now.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    generation: AtomicU64,
    asked: Mutex<Option<Instant>>,
}

impl Admission {
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Whether it is time to ask the server again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut asked = lock(&self.asked);
        let is_due = asked.is_none_or(|asked| now.saturating_duration_since(asked) >= KEPT);
        if is_due {
            *asked = Some(now);
        }
        is_due
    }

    /// The server admits no more of this generation.
    pub(crate) fn end(&self, generation: u64) -> bool {
        let next = generation + 1;
        self.generation.compare_exchange(generation, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// How long an answer holds, however many clients come.
const KEPT: Duration = Duration::from_secs(1);
