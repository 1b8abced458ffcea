//! What is measured, and on what.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use valkey_rdma_transport::{DeviceKind, Polling};

use super::size::size_text;

/// Bytes in flight at most on each queue pair; two messages, if they are longer.
const IN_FLIGHT: u32 = 16 << 20;
/// Messages in flight at most on each queue pair.
const MOST_IN_FLIGHT: u32 = 128;

/// A device, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// `verbs` or `emulated`.
    pub kind: String,
    /// The path MTU in bytes, where there is one.
    pub mtu: Option<u32>,
    /// Whether its work is done by the machine's own CPUs.
    pub software: bool,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.name, self.kind)?;
        if self.software && self.kind != DeviceKind::Emulated.to_string() {
            f.write_str(", in software")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, ", MTU {mtu}")?;
        }
        f.write_str(")")
    }
}

/// What carries a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// SEND into a posted receive. Latency: half of a round trip.
    Send,
    /// WRITE with immediate, which is what Valkey's protocol uses. Latency: half of a round trip.
    WriteImm,
    /// WRITE. Latency: until the peer's device has acknowledged.
    Write,
    /// READ. Latency: until the bytes are here.
    Read,
    /// Bytes of a TCP connection. Latency: half of a round trip.
    Tcp,
}

impl Operation {
    /// Those of RDMA.
    pub const ALL: [Operation; 4] = [Self::Send, Self::WriteImm, Self::Write, Self::Read];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::WriteImm => "WRITE+imm",
            Self::Write => "WRITE",
            Self::Read => "READ",
            Self::Tcp => "TCP",
        })
    }
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What carries the messages.
    pub operation: Operation,
    /// Their length in bytes.
    pub size: u32,
    /// Whether completions are polled for without sleeping.
    pub busy: bool,
    /// Many at once, or one after the other.
    pub stream: bool,
    /// How long.
    pub millis: u64,
}

impl Run {
    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.millis)
    }

    /// Messages in flight at most on each queue pair while many are sent at once.
    pub(super) fn most_in_flight(&self) -> u32 {
        (IN_FLIGHT / self.size).clamp(2, MOST_IN_FLIGHT)
    }

    /// Bytes in flight at most on all queue pairs: what the network has still to carry when the time is over.
    pub(super) fn bytes_in_flight(&self, queue_pairs: usize) -> u64 {
        // One after the other: a message and its answer.
        let messages = if self.stream { u64::from(self.most_in_flight()) * queue_pairs as u64 } else { 2 };
        messages * u64::from(self.size)
    }

    /// Whether only one of the queue pairs is used. A thread can then wait for that alone.
    pub(super) fn is_of_one_lane(&self, queue_pairs: usize) -> bool {
        self.operation != Operation::Tcp && (!self.stream || queue_pairs == 1)
    }

    /// Whether the end that does not drive gets completions of what comes.
    pub(super) fn uses_receives(&self) -> bool {
        matches!(self.operation, Operation::Send | Operation::WriteImm)
    }

    pub(super) fn polling(&self) -> Polling {
        if self.busy { Polling::Busy } else { Polling::Event }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.stream { "rate" } else { "latency" };
        write!(f, "{} of {}, {what}", self.operation, size_text(self.size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_at_the_end_of_a_run_is_part_of_what_it_may_take() {
        let run = |size, stream| Run { operation: Operation::Write, size, busy: false, stream, millis: 1 };
        assert_eq!(run(1 << 30, false).bytes_in_flight(4), 2 << 30);
        assert_eq!(run(1 << 30, true).bytes_in_flight(4), 8 << 30);
        assert_eq!(run(1 << 20, true).bytes_in_flight(1), 16 << 20);
        assert_eq!(run(1, true).bytes_in_flight(1), 128);
    }
}
