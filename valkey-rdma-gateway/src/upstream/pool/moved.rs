//! A server whose name has come to mean another one.
//!
//! A managed service moves the name of its primary at a failover, and the old primary may stay as a replica: then nothing ends the
//! connections to it. A program that is connected directly gets READONLY, connects again, and reaches the new primary. Here, READONLY
//! raises a doubt. If the server says that it is a replica, and one that a new connection reaches says that it is a primary, all connections
//! from before end, each after its last reply.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::time::Instant;
use tracing::{debug, warn};
use valkey_rdma_client::{Looks, is_elsewhere};
use valkey_rdma_transport::address::resolve;
use valkey_rdma_transport::sync::lock;

use super::Pool;
use crate::command::hello;
use crate::upstream::identity::Identity;
use crate::upstream::private::Private;
use crate::upstream::server::Upstream;

/// A connection whose server has answered with READONLY.
pub(crate) struct Doubted {
    identity: Identity,
    peer: Option<SocketAddr>,
    moves: u64,
}

impl Pool {
    /// Whether it is time to find out if this connection leads to a replica by now. Sentinels tell that themselves.
    pub(crate) fn doubted(&self, identity: &Identity, upstream: &Upstream) -> Option<Doubted> {
        let is_recent = upstream.read_only?.elapsed() < Looks::LONGEST;
        let is_in_doubt = is_recent
            && self.server.is_current(upstream)
            && self.server.endpoint().sentinels().is_none()
            && lock(&self.looks).is_due(Instant::now());
        let (peer, moves) = (upstream.stream.info().peer, upstream.moves);
        is_in_doubt.then(|| Doubted { identity: identity.clone(), peer, moves })
    }

    /// Connects anew, because the server of this connection says that it is a replica. If a primary is reached, what was connected before
    /// ends: shared connections when all that was sent is answered, idle ones now, and the clients of private ones after their replies, as
    /// when Sentinels report another primary.
    pub(crate) async fn find_primary(self: &Arc<Self>, doubted: Doubted) {
        let (server, key) = (&self.server, doubted.identity.key());
        if server.is_over_device() && !self.is_elsewhere(doubted.peer).await {
            return;
        }
        let mut upstream = match self.open(&key, &doubted.identity, None).await {
            Ok(upstream) => upstream,
            Err(error) => {
                debug!(server = %server.endpoint(), %error, "no primary in place of a replica");
                return;
            }
        };
        let hello = server.hello(&mut upstream.stream).await.unwrap_or_default();
        if hello::role(&hello).is_none_or(|role| role != "master")
            || !server.note_move(&mut upstream, doubted.moves)
        {
            return;
        }
        let connection = upstream.stream.info().clone();
        warn!(server = %server.endpoint(), %connection, "the server has become a replica: connections move to the primary");
        lock(&self.idle).by_key.clear();
        self.keep(key, Private::new(upstream, ""));
        let clients = self.core.clients.of(&self.address);
        clients.iter().filter(|client| client.is_private()).for_each(|client| client.inbox.stop());
    }

    /// Whether the server's name means other addresses than that of a connection. Over RDMA none outlives the move of its address to
    /// another machine, so that a new connection to the same address is not worth the memory that it costs the server.
    async fn is_elsewhere(&self, peer: Option<SocketAddr>) -> bool {
        let endpoint = self.server.endpoint();
        let Ok(addresses) = resolve(endpoint.host(), endpoint.port()).await else { return false };
        is_elsewhere(&addresses, peer)
    }
}
