//! What the mock remembers of one connection.

use std::sync::Arc;

use bytes::Bytes;

/// State of one connection to the [`Mock`](super::Mock).
#[derive(Debug)]
pub struct Session {
    pub(super) database: usize,
    pub(super) authenticated: bool,
    pub(super) name: Bytes,
    pub(super) library: Bytes,
    pub(super) library_version: Bytes,
    pub(super) no_evict: bool,
    pub(super) no_touch: bool,
    connected: Arc<()>,
}

impl Session {
    pub(super) fn new(authenticated: bool, connected: Arc<()>) -> Self {
        Self {
            database: 0,
            authenticated,
            name: Bytes::new(),
            library: Bytes::new(),
            library_version: Bytes::new(),
            no_evict: false,
            no_touch: false,
            connected,
        }
    }

    /// Back to how it began. As in Valkey, the library's name and version stay: they belong to the connection.
    pub(super) fn reset(&mut self, authenticated: bool) {
        *self = Self {
            library: std::mem::take(&mut self.library),
            library_version: std::mem::take(&mut self.library_version),
            ..Self::new(authenticated, self.connected.clone())
        };
    }
}
