//! The knobs of one connection, with their defaults and reasons.

use core::time::Duration;

/// Which side of the connection this is. The wire is nearly symmetric; the duties are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Connected; counts credits, because a server forgives nothing; may ask for the server's features.
    Client,
    /// Accepted; sends keepalives; never speaks of features unasked.
    Server,
}

/// The knobs of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long the peer may take from the established connection to its first Register.
    ///
    /// Default 10 s. Shorter refuses slow peers, longer lets silent ones hold memory. The reference waits for
    /// ever.
    pub handshake_timeout: Duration,
    /// How long [`close`](crate::Connection::close) waits for the peer's device to acknowledge what was
    /// written. Default 5 s.
    pub close_timeout: Duration,
    /// How long a server that has closed waits for its peer to disconnect first, after everything was
    /// acknowledged. libvalkey 0.4 looks at the connection manager before it looks for data, so a reply just
    /// before the disconnect would be lost on it. Default 100 ms; 0 disconnects at once.
    pub linger: Duration,
    /// Period of keepalives. Default 3 s for a server (`VALKEY_RDMA_KEEPALIVE_MS`), none for a client.
    pub keepalive: Option<Duration>,
    /// How long nothing at all may be heard from the peer. Default `None`: for ever.
    ///
    /// On a server this ends idle clients, like Valkey's `timeout`. On a client it finds a dead server, which the
    /// server's keepalives make possible: at least three of their periods, and `None` for Valkey 8.0.0-rc1, which
    /// sends none.
    pub idle_timeout: Option<Duration>,
    /// How long data may wait for the peer's next window. Default `None`: for ever.
    ///
    /// A peer that has stopped reading can go on sending keepalives, so the idle timeout does not notice it. This does.
    pub stall_timeout: Option<Duration>,
    /// After how many periods in which the peer's device took no keepalive it counts as dead. Default 20.
    pub keepalive_misses: u32,
    /// Most messages a client has sent without proof that the server has taken them from its receive queue.
    ///
    /// Default 512, range 4 to 1024. A server posts 1024 receives and accepts with a retry count of zero: one
    /// message too many ends the connection (clause C-1).
    pub credit_limit: u32,
    /// Most bytes in one work request. Default 256 KiB: a large value then crosses in pieces, and the peer
    /// copies one out while the next is under way. Smaller costs messages. The device's own limit applies too.
    pub max_piece: u32,
    /// Largest window the peer may offer. Default 1 GiB. Costs nothing: nothing is allocated on its account.
    pub max_peer_window: u32,
}

impl Config {
    /// The defaults for a role.
    pub fn new(role: Role) -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            close_timeout: Duration::from_secs(5),
            linger: match role {
                Role::Client => Duration::ZERO,
                Role::Server => Duration::from_millis(100),
            },
            keepalive: match role {
                Role::Client => None,
                Role::Server => Some(Duration::from_secs(3)),
            },
            idle_timeout: None,
            stall_timeout: None,
            keepalive_misses: 20,
            credit_limit: 512,
            max_piece: 256 * 1024,
            max_peer_window: 1 << 30,
        }
    }
}
