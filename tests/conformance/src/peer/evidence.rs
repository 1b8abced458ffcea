//! Everything that was sent and received, in order.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use valkey_rdma_transport::device::wire::ControlMessage;

/// What each connection of a case sent and received, in the order it was noticed. Clones share it.
#[derive(Clone, Debug)]
pub struct Transcript(Arc<Mutex<Record>>);

#[derive(Debug)]
struct Record {
    start: Instant,
    lines: VecDeque<String>,
    left_out: u64,
    connections: u32,
}

impl Default for Transcript {
    fn default() -> Self {
        let start = Instant::now();
        Self(Arc::new(Mutex::new(Record { start, lines: VecDeque::new(), left_out: 0, connections: 0 })))
    }
}

impl Transcript {
    /// All lines so far. Beyond 200 the oldest are left out, and the first line states how many.
    pub fn lines(&self) -> Vec<String> {
        let record = self.record();
        let left_out =
            (record.left_out > 0).then(|| format!("... {} earlier lines left out", record.left_out));
        left_out.into_iter().chain(record.lines.iter().cloned()).collect()
    }

    /// A new number, which marks the lines of one connection.
    pub(crate) fn next_connection(&self) -> u32 {
        let mut record = self.record();
        record.connections += 1;
        record.connections
    }

    pub(crate) fn note(&self, connection: u32, what: &str) {
        let mut record = self.record();
        let at = record.start.elapsed().as_secs_f64();
        if record.lines.len() == MOST_LINES {
            record.lines.pop_front();
            record.left_out += 1;
        }
        record.lines.push_back(format!("{at:8.3} c{connection} {what}"));
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A control message in words, or its bytes in hexadecimal if it cannot be decoded.
pub(crate) fn describe_message(bytes: &[u8]) -> String {
    match ControlMessage::decode(bytes) {
        Ok(ControlMessage::RegisterXferMemory(memory)) => {
            format!("Register addr={:#x} length={} key={:#x}", memory.addr, memory.len, memory.key)
        }
        Ok(ControlMessage::Keepalive) => "Keepalive".to_owned(),
        Ok(ControlMessage::GetServerFeature(features)) => {
            format!("GetServerFeature select={:#x} features={:#x}", features.select, features.bits)
        }
        Ok(ControlMessage::SetClientFeature(features)) => {
            format!("SetClientFeature select={:#x} features={:#x}", features.select, features.bits)
        }
        Err(_) => format!("{} bytes {}", bytes.len(), hex(bytes)),
    }
}

/// The beginning of some data, printable.
pub(super) fn describe_data(bytes: &[u8]) -> String {
    const SHOWN: usize = 48;
    let more = if bytes.len() > SHOWN { "..." } else { "" };
    format!("\"{}{more}\"", bytes[..bytes.len().min(SHOWN)].escape_ascii())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lines that are kept. The last ones explain a case that fails late.
const MOST_LINES: usize = 200;
