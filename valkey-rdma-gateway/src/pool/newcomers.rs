//! Asks the server whether it still admits clients without a login, when such a client comes: see [`Admission`](crate::admission::Admission).

use std::sync::Arc;

use tokio::time::Instant;
use tracing::warn;

use super::{Attached, Pool};
use crate::identity::Identity;
use crate::inbox::Inbox;
use crate::words::encode;

impl Pool {
    /// A client without a login has come. Asks the server whether it would admit it, while others use their connection.
    pub(crate) fn check_admission(self: &Arc<Self>) {
        let (server, identity) = (&self.server, self.server.identity());
        // What the gateway's own login may do, its clients may.
        if server.has_own_login(&identity)
            || !server.admission.is_due(Instant::now())
            || !self.is_used_by(&identity)
        {
            return;
        }
        let pool = self.clone();
        tokio::spawn(async move {
            let connection = match pool.cluster {
                None => pool.shared(&identity),
                Some(_) => pool.checker(),
            };
            let refused = pool.refuses_newcomers(&connection).await;
            if refused && pool.server.admission.end(identity.generation) {
                let server = pool.server.endpoint();
                warn!(%server, "the server requires a login from new clients; those before them go on");
            }
        });
    }

    /// Whether there is a connection that a client of this identity would use as others do.
    fn is_used_by(&self, identity: &Identity) -> bool {
        let key = identity.key();
        match &self.cluster {
            None => self.all_shared().iter().any(|shared| shared.key == key && shared.connection().is_some()),
            Some(cluster) => cluster.status().iter().any(|(known, _)| *known == key),
        }
    }

    /// Whether a new connection would have to log in. The default user accepts any password as long as it needs none. A refused one
    /// leaves the connection logged in.
    async fn refuses_newcomers(&self, connection: &Attached) -> bool {
        let inbox = Arc::new(Inbox::default());
        connection.submit(&inbox, &encode(["AUTH", "default", ""]), 1, Instant::now().into());
        inbox.whole_reply().await.is_some_and(|reply| reply.starts_with(b"-WRONGPASS"))
    }
}
