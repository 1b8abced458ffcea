//! The counters of a connection.

use core::hash::{Hash, Hasher};
use core::time::Duration;

/// Exact counts of one connection since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Work requests handed to the send queue, data and control messages together.
    pub work_requests: u64,
    /// Of these, the ones that asked for a completion.
    pub signalled: u64,
    /// Control messages sent.
    pub messages_sent: u64,
    /// Control messages received.
    pub messages_received: u64,
    /// Register messages sent: how often this side offered a window.
    pub registers_sent: u64,
    /// Register messages received.
    pub registers_received: u64,
    /// GetServerFeature messages sent to gain credits.
    pub probes: u64,
    /// Immediates received: pieces of data announced by the peer.
    pub immediates_received: u64,
    /// Data bytes handed to the send queue.
    pub bytes_sent: u64,
    /// Data bytes announced by the peer.
    pub bytes_received: u64,
    /// Bytes of [transfers](crate::Connection::transfer) handed to the send queue, in both directions.
    pub bytes_transferred: u64,
    /// Receives posted, the first ones included.
    pub receives_posted: u64,
    /// How often data waited because the peer's window was full.
    pub window_stalls: u64,
    /// The sum of these waits.
    pub window_stall_time: Duration,
    /// The smallest number of credits so far; `None` on a side that does not count them.
    pub credits_low_water: Option<u32>,
}

/// Counters are history, not state: connections that differ only in their counters behave alike. They are left out of the
/// hash so that a model checker, which remembers states by their hash, recognises a state however it was reached.
impl Hash for Counters {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
