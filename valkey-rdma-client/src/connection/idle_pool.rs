//! [`IdlePool`]: connections that wait for their next use.

use std::sync::{Mutex, MutexGuard};

use super::raw::RawConnection;
use crate::stats::Purpose;
use crate::sync::lock;

/// Idle connections kept for the next use. Over RDMA each pins memory at both ends.
const MAX_IDLE: usize = 2;

/// Connections that wait for their next use.
#[derive(Default)]
pub(crate) struct IdlePool {
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    connections: Vec<RawConnection>,
    closed: bool,
}

impl IdlePool {
    /// Closes idle connections and keeps no more.
    pub(crate) fn close(&self) {
        let mut idle = self.idle();
        idle.closed = true;
        idle.connections.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.idle().closed
    }

    /// An idle connection, the most recently used first. It may have been closed by the server meanwhile.
    pub(crate) fn take(&self) -> Option<RawConnection> {
        self.idle().connections.pop()
    }

    pub(crate) fn put(&self, connection: RawConnection) {
        let mut idle = self.idle();
        if idle.connections.len() < MAX_IDLE && !idle.closed {
            connection.set_purpose(Purpose::Idle);
            idle.connections.push(connection);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        lock(&self.idle)
    }
}
