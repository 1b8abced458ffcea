//! Asks the server whether it still admits clients without a login, when such a client comes: see [`Admission`](crate::admission::Admission).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

use super::{Attached, Pool};
use crate::inbox::Inbox;
use crate::words::encode;

impl Pool {
    /// A client without a login has come. Waits until the server has said whether it would admit it, if others use their connections.
    pub(crate) async fn check_admission(&self) {
        let (server, identity) = (&self.server, self.server.identity());
        // What the gateway's own login may do, its clients may.
        if server.has_own_login(&identity) || !server.admission.is_due(Instant::now()) {
            return;
        }
        let generation = identity.generation;
        let asked = async {
            match &self.cluster {
                Some(cluster) => cluster.refuses_newcomers(generation).await,
                None => self.refuses_newcomers(generation).await,
            }
        };
        let refused = timeout(PATIENCE, asked).await.unwrap_or(false);
        if refused && server.admission.end(generation) {
            let server = server.endpoint();
            warn!(%server, "the server requires a login from new clients; those before them go on");
        }
    }

    /// Where to ask, if clients of this generation have a connection that newcomers would use too. A connection for that alone would take
    /// the place of a client's.
    fn used_without_login(&self, generation: u64) -> Option<Attached> {
        let now = Instant::now().into();
        let connected =
            self.all_shared().into_iter().filter(|shared| shared.key.is_without_login(generation));
        // One that owes replies is not burdened with more.
        let mut ready = connected.filter(|shared| shared.connection().is_some() && !shared.is_stalled(now));
        ready.find_map(|shared| shared.attach()).map(Attached::Server)
    }

    /// Whether a new connection would have to log in. The default user accepts any password as long as it needs none. A refused one
    /// leaves the connection logged in.
    async fn refuses_newcomers(&self, generation: u64) -> bool {
        let Some(connection) = self.used_without_login(generation) else { return false };
        let inbox = Arc::new(Inbox::of_gateway());
        connection.submit(&inbox, &encode(["AUTH", "default", ""]), 1, Instant::now().into());
        inbox.whole_reply().await.is_some_and(|reply| reply.starts_with(b"-WRONGPASS"))
    }
}

/// How long a client waits for the answer. Without one it is let in: the server would not answer its commands either.
const PATIENCE: Duration = Duration::from_secs(1);
