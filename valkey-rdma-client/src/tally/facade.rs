//! Counters of the `metrics` facade: whichever recorder the program has installed when a client connects.

use metrics::{Counter, counter};

/// Handles, so that counting looks nothing up.
pub(super) struct Meters {
    commands: Counter,
    batches: Counter,
    replies: Counter,
    reconnects: Counter,
    retries: Counter,
    timeouts: Counter,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            commands: counter!("valkey_client_commands_total"),
            batches: counter!("valkey_client_batches_total"),
            replies: counter!("valkey_client_replies_total"),
            reconnects: counter!("valkey_client_reconnects_total"),
            retries: counter!("valkey_client_retries_total"),
            timeouts: counter!("valkey_client_timeouts_total"),
        }
    }
}

impl Meters {
    pub(super) fn batch(&self, commands: u64) {
        self.commands.increment(commands);
        self.batches.increment(1);
    }

    pub(super) fn replies(&self, count: u64) {
        self.replies.increment(count);
    }

    pub(super) fn reconnected(&self) {
        self.reconnects.increment(1);
    }

    pub(super) fn retried(&self, requests: u64) {
        self.retries.increment(requests);
    }

    pub(super) fn timed_out(&self) {
        self.timeouts.increment(1);
    }
}
