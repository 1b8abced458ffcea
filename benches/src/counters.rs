//! The transport's counters over a test, per request.

/// What the transport did, summed over connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters([u64; Counters::NAMES.len()]);

impl Counters {
    /// The counters' names, in the order in which they are shown.
    pub const NAMES: [&'static str; 12] = [
        "work requests",
        "doorbells",
        "signalled sends",
        "wake-ups",
        "arms",
        "polls",
        "receive posts",
        "registers sent",
        "registers received",
        "window stalls",
        "bytes out",
        "bytes in",
    ];

    /// What was counted since `earlier`.
    pub fn since(mut self, earlier: Counters) -> Counters {
        for (now, before) in self.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Adds what another connection or run counted.
    pub fn add(&mut self, other: Counters) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }

    /// Every counter divided by `requests`, in the order of [`Counters::NAMES`].
    pub fn per_request(&self, requests: u64) -> [f64; Counters::NAMES.len()] {
        self.0.map(|value| value as f64 / requests.max(1) as f64)
    }
}
