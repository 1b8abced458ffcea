//! Whether the server of a connection has become a replica: it is asked on that connection, because a new one may reach another server.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::Shared;
use crate::command::words::encode;
use crate::session::inbox::Inbox;
use crate::upstream::pool::Pool;
use crate::upstream::server::Upstream;
use crate::upstream::standing::Complaint;

impl Shared {
    /// The server's reply to a question of the gateway, such as HELLO, which says its role to every user. `None` if the connection ends before.
    pub(crate) async fn ask(&self, question: &[&str]) -> Option<Bytes> {
        let inbox = Arc::new(Inbox::of_gateway());
        self.submit(&inbox, &encode(question), 1, Instant::now());
        inbox.whole_reply().await
    }

    /// After READONLY: looks for the primary if the server says that it is a replica.
    pub(super) fn look_for_primary(self: &Arc<Self>, pool: &Arc<Pool>, upstream: &Upstream) {
        let Some(doubted) = pool.doubted(&self.identity, upstream) else { return };
        let (shared, pool) = (self.clone(), pool.clone());
        tokio::spawn(async move {
            let hello = shared.ask(&["HELLO"]).await.unwrap_or_default();
            if Complaint::ReadOnly.confirmed(&hello).is_some() {
                pool.find_primary(doubted).await;
            }
        });
    }
}
