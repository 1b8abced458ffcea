//! [`Received`]: the commands that a mock received.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use valkey_rdma_server::Command;

/// A command that the mock received: [`Mock::received`](crate::Mock::received).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The number of the connection: `CLIENT ID`.
    pub connection: u64,
    /// When.
    pub at: Instant,
    /// The command.
    pub command: Command,
}

/// The last commands, if they are recorded at all.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    on: AtomicBool,
    commands: Mutex<VecDeque<Received>>,
}

/// The most commands that are kept.
const KEPT: usize = 10_000;

impl Recorder {
    pub(crate) fn start(&self) {
        self.on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn record(&self, connection: u64, command: &Command) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let received = Received { connection, at: Instant::now(), command: command.kept() };
        let mut commands = self.commands();
        if commands.len() == KEPT {
            commands.pop_front();
        }
        commands.push_back(received);
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.commands().iter().cloned().collect()
    }

    pub(crate) fn clear(&self) {
        self.commands().clear();
    }

    fn commands(&self) -> MutexGuard<'_, VecDeque<Received>> {
        // Valid after every step, so a panic elsewhere does not spoil it.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
