//! Settings of direct transfers.

use super::Config;

impl Config {
    /// Allows [direct transfers](crate::Client::get_direct) to servers that the client reaches over TLS. Default `false`: their values go over
    /// the encrypted stream.
    ///
    /// **The bytes of direct transfers are plain**: a machine that can read or change the packets can do so with the values. TLS protects
    /// keys, commands and replies only. Allow it where the network is trusted, and TLS is there for its certificates.
    ///
    /// Source: spec clause D-1.
    #[must_use]
    pub fn danger_plain_direct(mut self, allowed: bool) -> Self {
        self.plain_direct = allowed;
        self
    }
}
