//! The transport's counters over a test, per request.

use valkey_rdma_transport::Stats;

/// Defines [`Counter`] from one list: a variant, its name in reports, and where its value comes from.
macro_rules! counters {
    ($($variant:ident, $name:literal, $stats:ident => $value:expr;)*) => {
        /// A counter of the transport.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Counter {
            $($variant),*
        }

        impl Counter {
            /// All counters, in the order in which reports show them.
            pub(crate) const ALL: [Counter; [$($name),*].len()] = [$(Counter::$variant),*];

            /// The name in reports.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Counter::$variant => $name),*
                }
            }

            fn value(self, stats: &Stats) -> u64 {
                match self {
                    $(Counter::$variant => { let $stats = stats; $value }),*
                }
            }
        }
    };
}

counters! {
    WorkRequests, "work requests", stats => stats.protocol.work_requests;
    Doorbells, "doorbells", stats => stats.device.doorbells;
    SignalledSends, "signalled sends", stats => stats.protocol.signalled;
    WakeUps, "wake-ups", stats => stats.device.events;
    Arms, "arms", stats => stats.device.arms;
    Polls, "polls", stats => stats.device.polls;
    ReceivePosts, "receive posts", stats => stats.device.receive_posts;
    RegistersSent, "registers sent", stats => stats.protocol.registers_sent;
    RegistersReceived, "registers received", stats => stats.protocol.registers_received;
    WindowStalls, "window stalls", stats => stats.protocol.window_stalls;
    WindowStallMicros, "window stall us", stats =>
        u64::try_from(stats.protocol.window_stall_time.as_micros()).unwrap_or(u64::MAX);
    BytesCopied, "bytes copied", stats => {
        // What the client encodes straight into the send buffer is copied there from the command.
        stats.device.copied_in + stats.device.filled_in_place + stats.device.copied_out
    };
    BytesOut, "bytes out", stats => stats.protocol.bytes_sent;
    BytesIn, "bytes in", stats => stats.protocol.bytes_received;
}

/// What the transport did, summed over connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters([u64; Counter::ALL.len()]);

impl Counters {
    fn of(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// What was counted since `earlier`.
    pub(crate) fn since(mut self, earlier: Counters) -> Counters {
        for (now, before) in self.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Bytes in the busier direction.
    pub(crate) fn bytes_one_way(&self) -> u64 {
        self.of(Counter::BytesOut).max(self.of(Counter::BytesIn))
    }

    /// Adds the counters of another connection or run.
    pub(crate) fn add(&mut self, other: Counters) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }

    /// Every counter divided by `requests`.
    pub(crate) fn per_request(&self, requests: u64) -> PerRequest {
        PerRequest(self.0.map(|value| value as f64 / requests.max(1) as f64))
    }
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Counters {
        Counters(Counter::ALL.map(|counter| counter.value(stats)))
    }
}

/// Counters divided by the number of requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PerRequest([f64; Counter::ALL.len()]);

impl PerRequest {
    /// The value of one counter.
    pub(crate) fn of(&self, counter: Counter) -> f64 {
        self.0[counter as usize]
    }

    /// All counters, in the order in which reports show them.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Counter, f64)> {
        Counter::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_found_under_its_own_name() {
        let mut stats = Stats::default();
        stats.device.doorbells = 7;
        stats.protocol.bytes_sent = 30;
        let per_request = Counters::from(&stats).per_request(10);
        let shown: Vec<_> = per_request.all().filter(|(_, value)| *value > 0.0).collect();
        assert_eq!(shown, [(Counter::Doorbells, 0.7), (Counter::BytesOut, 3.0)]);
        assert_eq!(per_request.of(Counter::Doorbells), 0.7);
        assert_eq!(Counter::Doorbells.name(), "doorbells");
    }
}
