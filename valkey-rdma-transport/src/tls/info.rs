//! [`TlsInfo`]: what a TLS connection has agreed on.

use std::fmt;
use std::sync::Arc;

/// What the two sides of a TLS connection have agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// `TLS 1.2` or `TLS 1.3`.
    pub version: &'static str,
    /// The cipher suite by its IANA name, such as `TLS_AES_128_GCM_SHA256`.
    pub cipher: &'static str,
    /// True if the client has continued an earlier session, so that no certificate was exchanged.
    pub resumed: bool,
    /// The certificates of the peer in DER, its own first. Empty if it has shown none.
    pub peer_certificates: Arc<[Vec<u8>]>,
}

impl fmt::Display for TlsInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.cipher)
    }
}
