//! Tests of the protocol core: pairs of connections on a simulated link, single connections with a scripted or a
//! hostile peer, random operations, and every interleaving of small worlds.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(unreachable_pub, reason = "a test binary has no outside")]

mod agreement;
mod closing;
mod credits;
mod errors;
mod features;
mod handshake;
mod hostile;
mod keepalive;
mod lending;
mod messages;
mod model;
mod pair;
mod properties;
mod scripted;
mod transfers;
mod vectors;
mod windows;
