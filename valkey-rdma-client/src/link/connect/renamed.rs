//! A name that has come to mean another server, while the old one stays as a replica.
//!
//! A managed service moves the name of its primary at a failover. If the old primary lives on, nothing ends the connections to it. So
//! READONLY raises a doubt: if a new connection reaches a primary, those from before are outdated. Nothing is sent on them any more, and each
//! ends when all is answered.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info};
use valkey_rdma_resp::{ServerError, ServerErrorKind};
use valkey_rdma_transport::sync::lock;

use super::find_server::{Finding, role_of};
use super::looks::is_elsewhere;
use super::{ConnectDeadline, Connector};
use crate::endpoint::Transport;
use crate::link::RawConnection;
use crate::stats::Purpose;

impl Connector {
    /// Of one server, which its name may leave.
    pub(crate) fn following_name(self) -> Self {
        Self { renamed: Some(watch::Sender::default()), ..self }
    }

    /// Completes when the connection is outdated. `None`: it will not be.
    pub(super) fn outdates(raw: &RawConnection) -> Option<Finding<'static, ()>> {
        let mut renamed = raw.renamed.clone()?;
        Some(Box::pin(async move {
            if renamed.changed().await.is_err() {
                // The client has gone.
                pending().await
            }
        }))
    }

    /// The server has answered with this error on this connection. If it is a replica, finds out in the background whether the name means a
    /// primary elsewhere.
    pub(crate) fn doubt(self: &Arc<Self>, raw: &RawConnection, reply: &ServerError) {
        let may_be_renamed = raw.renamed.is_some() && !raw.is_outdated() && is_of_replica(reply);
        if may_be_renamed && lock(&self.looks).is_due(Instant::now()) {
            let (connector, peer) = (self.clone(), raw.info.peer);
            drop(raw.runtime.spawn(async move { connector.find_primary(peer).await }));
        }
    }

    async fn find_primary(&self, peer: Option<SocketAddr>) {
        let deadline = ConnectDeadline::of(&self.endpoint);
        let is_over_device = matches!(self.endpoint.transport(), Transport::Rdma | Transport::Emulated);
        if is_over_device && !self.is_elsewhere(peer, &deadline).await {
            return;
        }
        let mut raw = match self.connect_quietly(Purpose::Call).await {
            Ok(raw) => raw,
            Err(error) => {
                debug!(%error, "no primary in place of a replica");
                return;
            }
        };
        let role = role_of(&mut raw, &deadline).await.ok().flatten();
        if let (Some("master"), Some(renamed)) = (role.as_deref(), &self.renamed) {
            info!(peer = self.peer(), connection = %raw.info, "the server has become a replica: connections move to the primary");
            renamed.send_replace(());
        }
    }

    /// Whether the name means other addresses than that of a connection. Over RDMA none outlives the move of its address to another machine,
    /// and a new one to the same address would cost the server memory for good.
    async fn is_elsewhere(&self, peer: Option<SocketAddr>, deadline: &ConnectDeadline) -> bool {
        let Ok(addresses) = self.resolve(self.endpoint.transport(), deadline).await else { return false };
        is_elsewhere(&addresses, peer)
    }
}

/// True for what a replica says to a command that writes. A script may answer with READONLY and other words.
///
/// Source: valkey `src/server.c`, `createSharedObjects`; `src/script.c`, `scriptPrepareForRun`.
pub(crate) fn is_of_replica(reply: &ServerError) -> bool {
    let begins = |text: &str| reply.message.starts_with(text);
    reply.kind() == ServerErrorKind::ReadOnly
        && (begins("You can't write against a read only") || begins("Can not run script with write flag"))
}
