//! What a [`Server`] reports of itself: its connections, counters and events.

use std::fmt;
use std::sync::Arc;

use super::Server;
use crate::events::{ConnectionEvent, ConnectionEvents};
use crate::link::Multiplexer;
use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, State};

impl Server {
    /// Describes the (first) connection. After a reconnect the description may differ.
    pub(crate) fn info(&self) -> Arc<ConnectionInfo> {
        self.first().state.info()
    }

    /// True if at least one shared connection is up. Otherwise commands wait for one, at most for
    /// [`Config::offline_timeout`](crate::Config::offline_timeout).
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.multiplexers.iter().any(|multiplexer| multiplexer.state.state() == State::Connected)
    }

    /// The multiplexer's counters, summed over all connections.
    pub(crate) fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for multiplexer in &self.inner.multiplexers {
            sum.add(&multiplexer.state.counters.read());
        }
        sum
    }

    /// Each connection: shared ones first, then dedicated, subscriber, idle and draining ones. With its state, a description,
    /// and the counters of client and transport. The `Display` form resembles the reply to INFO:
    pub(crate) fn connections(&self) -> Vec<ConnectionStatus> {
        let shared = self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.status());
        shared.chain(self.connector().registry.not_shared()).collect()
    }

    /// What happens to the shared connections from now on: lost, restored, over TCP instead of RDMA, closed. The first events
    /// describe the connections that are up.
    pub(crate) fn events(&self) -> ConnectionEvents {
        self.inner.events.hub().listen(|| self.up())
    }

    /// Events that describe the connections that are up.
    pub(crate) fn up(&self) -> Vec<ConnectionEvent> {
        let connections = self.inner.multiplexers.iter().map(|multiplexer| &multiplexer.state);
        let up = connections.enumerate().filter(|(_, state)| state.state() == State::Connected);
        up.flat_map(|(connection, state)| self.inner.events.connected(connection, state.info())).collect()
    }

    /// Reports the connections of a node from now on, once `publish` has run.
    pub(crate) fn announce(&self, publish: impl FnOnce()) {
        self.inner.events.announce(publish, || self.up());
    }

    /// True if the client has ended: closed, or lost with reconnecting disabled.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.multiplexers.iter().all(Multiplexer::is_closed)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("info", &self.info()).field("connected", &self.is_connected()).finish()
    }
}
