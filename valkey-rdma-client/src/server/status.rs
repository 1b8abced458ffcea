//! What a [`Client`] reports of itself: its connections, counters and events.

use std::fmt;
use std::sync::Arc;

use super::Server;
use crate::events::ConnectionEvents;
use crate::link::Multiplexer;
use crate::stats::{ConnectionInfo, ConnectionStatus, Counters, State};

impl Server {
    /// Describes the (first) connection. After a reconnect the description may differ.
    #[must_use]
    pub fn info(&self) -> Arc<ConnectionInfo> {
        self.first().state.info()
    }

    /// True if at least one shared connection is up. Otherwise commands wait for one, at most for
    /// [`Config::offline_timeout`](crate::Config::offline_timeout).
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.inner.multiplexers.iter().any(|multiplexer| multiplexer.state.state() == State::Connected)
    }

    /// The multiplexer's counters, summed over all connections.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for multiplexer in &self.inner.multiplexers {
            sum.add(&multiplexer.state.counters.read());
        }
        sum
    }

    /// Each connection: shared ones first, then dedicated, subscriber, idle and draining ones. With its state, a description,
    /// and the counters of client and transport. The `Display` form resembles the reply to INFO:
    ///
    /// ```no_run
    /// # fn example(client: valkey_rdma_client::Client) {
    /// for connection in client.connections() {
    ///     println!("{connection}");
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionStatus> {
        let shared = self.inner.multiplexers.iter().map(|multiplexer| multiplexer.state.status());
        shared.chain(self.connector().registry.not_shared()).collect()
    }

    /// What happens to the shared connections from now on: lost, restored, over TCP instead of RDMA, closed. The first events
    /// describe the connections that are up.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) {
    /// let mut events = client.events();
    /// tokio::spawn(async move {
    ///     while let Some(event) = events.next().await {
    ///         println!("{event}");
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn events(&self) -> ConnectionEvents {
        self.inner.events.listen(|| {
            let connections = self.inner.multiplexers.iter().map(|multiplexer| &multiplexer.state);
            let up = connections.enumerate().filter(|(_, state)| state.state() == State::Connected);
            up.map(|(connection, state)| (connection, state.info())).collect()
        })
    }

    /// True if the client has ended: closed, or lost with reconnecting disabled.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.multiplexers.iter().all(Multiplexer::is_closed)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("info", &self.info()).field("connected", &self.is_connected()).finish()
    }
}
