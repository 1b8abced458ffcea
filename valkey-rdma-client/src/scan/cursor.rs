//! [`Cursor`]: how far a scan has come on one of several servers.

use bytes::Bytes;

use crate::server::ServerId;

/// A cursor is valid on the server that returned it only: another server begins anew, and so does one that was restarted. The client
/// of a cluster's node does not reconnect, so its server is the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    /// `None` at the beginning.
    at: Option<Bytes>,
    /// The client of the server that returned the cursor, if there are several.
    server: Option<ServerId>,
    /// How often the scan began anew.
    restarts: u32,
}

impl Cursor {
    /// The cursor for the next batch.
    pub(crate) fn get(&self) -> &[u8] {
        self.at.as_deref().unwrap_or(START)
    }

    /// The cursor for the next batch from this server.
    pub(crate) fn on(&self, server: &ServerId) -> &[u8] {
        if self.server.as_ref() == Some(server) { self.get() } else { START }
    }

    /// Takes the cursor for the next batch. Returns `false` at the end.
    pub(crate) fn advance(&mut self, cursor: Bytes) -> bool {
        self.at.insert(cursor) != START
    }

    /// This server has answered. Servers that only redirect do not count.
    pub(crate) fn answered_by(&mut self, server: ServerId) {
        if self.server.as_ref() != Some(&server) {
            self.restarts += u32::from(self.server.is_some());
            self.server = Some(server);
            self.at = None;
        }
    }

    /// How often the scan has begun anew, if it may not do so once more on this server.
    pub(crate) fn restarted_too_often(&self, server: &ServerId) -> Option<u32> {
        let anew = self.server.as_ref().is_some_and(|known| known != server);
        (anew && self.restarts >= MOST_RESTARTS).then_some(self.restarts)
    }
}

/// A connection that lives shorter than a scan takes must not keep it from ending for ever.
const MOST_RESTARTS: u32 = 8;

const START: &[u8] = b"0";
