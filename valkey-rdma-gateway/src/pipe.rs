//! `share=never`: one local client, one connection to the server, and bytes that are not looked at.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy, split};
use tokio::time::timeout;
use tracing::debug;
use valkey_rdma_client::Transport;
use valkey_rdma_resp::Output;

use crate::clients::{Details, Place, Registered};
use crate::core::Core;
use crate::last_replies;
use crate::listen::Accepted;
use crate::route::Route;

/// Connects to the server, and copies both ways until one side ends. If the server's URL has a login or a database, that is done first.
pub(crate) async fn run(core: Arc<Core>, route: Arc<Route>, accepted: Accepted) {
    let server = &route.pool.server;
    let identity = server.identity();
    let (database, protocol) = (identity.database, identity.protocol);
    let details = Details { database, protocol, ..Details::default() };
    let client = Registered::new(
        core.clients.clone(),
        core.unread.clone(),
        route.pool.address.clone(),
        accepted.peer,
        accepted.local,
        details,
        Place::Nowhere,
    );
    let mut stream = accepted.stream;
    let key = route.pool.upstreams.key_of_url(&identity);
    let upstream = match route.pool.upstreams.open_for_one(&key, &identity, None).await {
        Ok(upstream) => upstream,
        Err(error) => {
            debug!(id = client.id, %error, "no connection for a client");
            if let Some(reply) = error.reply() {
                // The client may be gone already.
                let _ = stream.write_all(&reply).await;
            }
            if !client.inbox.has_ended() {
                last_replies::deliver(&mut stream).await;
            }
            return;
        }
    };
    let keeps_half_open = upstream.stream.info().transport == Transport::Tcp;
    let (mut from_client, mut to_client) = split(stream);
    let (mut from_server, mut to_server) = split(upstream.stream);
    {
        let requests = async {
            let copied = copy(&mut from_client, &mut to_server).await;
            if keeps_half_open {
                // It fails only if the connection has ended.
                let _ = to_server.shutdown().await;
            }
            copied
        };
        let replies = copy(&mut from_server, &mut to_client);
        let both = async {
            tokio::pin!(replies);
            tokio::select! {
                _ = &mut replies => {}
                _ = requests => {
                    // Replies to the last commands. RDMA has no half-close that would end them.
                    let limit = if keeps_half_open { LAST_REPLIES_TCP } else { LAST_REPLIES_RDMA };
                    let _ = timeout(limit, replies).await;
                }
            }
        };
        tokio::select! {
            () = both => {}
            () = ended(&client) => {}
        }
    }
    if !client.inbox.has_ended() {
        last_replies::deliver(&mut from_client.unsplit(to_client)).await;
    }
}

/// Returns when the client was killed, or the gateway stops.
async fn ended(client: &Registered) {
    poll_fn(|cx| {
        let found = client.inbox.poll_take(cx, &mut Output::default());
        if found.end.is_some() || found.stop { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// How long replies are passed on after the client has closed its side.
const LAST_REPLIES_TCP: Duration = Duration::from_secs(60);
const LAST_REPLIES_RDMA: Duration = Duration::from_secs(1);
