//! The transport's counters over a test, per request.

use valkey_rdma_transport::Stats;

/// What the transport did, summed over connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters([u64; Counters::NAMES.len()]);

impl Counters {
    /// The counters' names, in the order in which they are shown.
    pub(crate) const NAMES: [&'static str; 14] = [
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
        "window stall us",
        "bytes copied",
        "bytes out",
        "bytes in",
    ];

    /// What was counted since `earlier`.
    pub(crate) fn since(mut self, earlier: Counters) -> Counters {
        for (now, before) in self.0.iter_mut().zip(earlier.0) {
            *now = now.saturating_sub(before);
        }
        self
    }

    /// Bytes that went the busier way.
    pub(crate) fn bytes_one_way(&self) -> u64 {
        let of = |wanted: &str| {
            Counters::NAMES
                .iter()
                .zip(self.0)
                .find(|(name, _)| **name == wanted)
                .map_or(0, |(_, count)| count)
        };
        of("bytes out").max(of("bytes in"))
    }

    /// Adds what another connection or run counted.
    pub(crate) fn add(&mut self, other: Counters) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            *sum += value;
        }
    }

    /// Every counter divided by `requests`, in the order of [`Counters::NAMES`].
    pub(crate) fn per_request(&self, requests: u64) -> [f64; Counters::NAMES.len()] {
        self.0.map(|value| value as f64 / requests.max(1) as f64)
    }
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Counters {
        let (protocol, device) = (&stats.protocol, &stats.device);
        Counters([
            protocol.work_requests,
            device.doorbells,
            protocol.signalled,
            device.events,
            device.arms,
            device.polls,
            device.receive_posts,
            protocol.registers_sent,
            protocol.registers_received,
            protocol.window_stalls,
            u64::try_from(protocol.window_stall_time.as_micros()).unwrap_or(u64::MAX),
            device.copied_in + device.copied_out,
            protocol.bytes_sent,
            protocol.bytes_received,
        ])
    }
}
