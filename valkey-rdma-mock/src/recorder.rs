//! [`Received`]: the commands that a mock received.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use tokio::time::Instant;
use valkey_rdma_server::Command;
use valkey_rdma_transport::sync::lock;

/// A command that the mock received: [`Mock::received`](crate::Mock::received).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The number of the connection: `CLIENT ID`.
    pub connection: u64,
    /// When it arrived.
    pub at: Instant,
    /// The command.
    pub command: Command,
}

/// The last commands, if they are recorded at all.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    on: AtomicBool,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    commands: VecDeque<Received>,
    /// The bytes of all their arguments.
    bytes: usize,
}

/// The most commands that are kept.
const MAX_COMMANDS: usize = 10_000;
/// The most bytes of arguments that are kept, but for the last command, which is kept whatever its size.
const MAX_BYTES: usize = 64 << 20;

impl Recorder {
    pub(crate) fn start(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record(&self, connection: u64, command: &Command) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let received = Received { connection, at: Instant::now(), command: command.kept() };
        let mut log = self.log();
        log.bytes += command.args_len();
        log.commands.push_back(received);
        while log.commands.len() > MAX_COMMANDS || (log.bytes > MAX_BYTES && log.commands.len() > 1) {
            let Some(oldest) = log.commands.pop_front() else { break };
            log.bytes -= oldest.command.args_len();
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.log().commands.iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        *self.log() = Log::default();
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }
}
