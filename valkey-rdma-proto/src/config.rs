//! The settings of one connection, with their defaults and reasons.

use core::time::Duration;

use crate::features::FeatureSet;

/// The side of the connection. The messages are nearly the same for both; the duties differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The side that connects. Counts credits, because one message too many ends a server's connection (clause C-1).
    Client,
    /// The side that accepts. Sends keepalives, and answers questions about features.
    Server,
}

/// The settings of one connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// How long the peer may take from the established connection to its first Register, and a server to the answer to
    /// what this side [wants](Self::wants). Default: 10 s.
    ///
    /// Shorter values refuse slow peers, longer ones let silent peers hold memory. Valkey has no limit.
    pub handshake_timeout: Duration,
    /// How long [`close`](crate::Connection::close) waits for the peer's device to acknowledge the written bytes.
    /// Default: 5 s.
    pub close_timeout: Duration,
    /// How long a server that has closed waits for its peer to disconnect first, after everything was acknowledged.
    /// Default: 100 ms; 0 disconnects at once.
    ///
    /// libvalkey 0.4 checks for a disconnect before it reads data, so it would lose a reply that came just before.
    pub linger: Duration,
    /// Period of keepalives. Default: 3 s for a server (Valkey's `VALKEY_RDMA_KEEPALIVE_MS`), none for a client.
    pub keepalive: Option<Duration>,
    /// How long the connection may go without receiving anything from the peer. Default: `None`, no limit.
    ///
    /// On a server this ends idle clients, like Valkey's `timeout`. On a client it finds a dead server by the absence of
    /// the server's keepalives: use at least three of their periods, and `None` for Valkey 8.0.0-rc1, which sends none.
    pub idle_timeout: Option<Duration>,
    /// How long data may wait for the peer's next window. Default `None`: for ever.
    ///
    /// A peer that has stopped reading can go on sending keepalives, so the idle timeout does not notice it. This does.
    pub stall_timeout: Option<Duration>,
    /// Number of keepalive periods without an acknowledgement after which the peer counts as dead. Default: 20.
    pub keepalive_misses: u32,
    /// Largest number of messages that a client has sent without proof that the server took them from its receive
    /// queue. Default: 512; range: 4 to 1024.
    ///
    /// A server posts 1024 receives and accepts with a retry count of zero: one message too many ends the connection
    /// (clause C-1).
    pub credit_limit: u32,
    /// Largest number of bytes in one message. Default: 256 KiB. A larger value is sent in pieces, so that the peer
    /// copies one out while the next is in flight. Smaller pieces cost more messages. The device's limit applies too.
    pub max_piece: u32,
    /// Largest window that the peer may offer, in bytes. Default: 1 GiB. No memory is allocated for it.
    pub max_peer_window: u32,
    /// Features that a server offers to clients that ask. Default: none, as every Valkey. Ignored on a client.
    ///
    /// A server that offers some can send nothing before its client has chosen, or has sent its first bytes (clause F-7).
    pub offers: FeatureSet,
    /// Features that a client uses if the server offers them. Default: none: it does not ask. Ignored on a server.
    ///
    /// Do not ask for [`FeatureSet::TLS`] here but in [`requires`](Self::requires): what the server offers is not
    /// authenticated, and a third party could take the bit out.
    pub wants: FeatureSet,
    /// Features without which a client ends the connection, before a byte is sent, with
    /// [`CloseReason::NotOffered`](crate::CloseReason::NotOffered). They need not be among those that it wants. Default:
    /// none. Ignored on a server: it learns from [`agreed`](crate::Connection::agreed) what a client has chosen, and can
    /// send the reason before it closes.
    pub requires: FeatureSet,
}

impl Config {
    /// Returns the defaults for a role.
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
            offers: FeatureSet::NONE,
            wants: FeatureSet::NONE,
            requires: FeatureSet::NONE,
        }
    }
}
