//! `share=never`: one local client, one connection to the server, and bytes that are not looked at.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy, split};
use tokio::time::timeout;
use tracing::debug;

use crate::config::route::Route;
use crate::core::Core;
use crate::front::listen::Accepted;
use crate::session::clients::{Details, Place, Registered};
use crate::session::secured::secured;

/// Connects to the server, and copies both ways until one side ends. If the server's URL has a login or a database, that is done first.
pub(crate) async fn run(core: Arc<Core>, route: Arc<Route>, accepted: Accepted) {
    let server = &route.backend.server;
    let identity = server.identity();
    let (database, protocol) = (identity.database, identity.protocol);
    let details = Details { database, protocol, ..Details::default() };
    let client = Registered::new(
        core.clients.clone(),
        core.unread.clone(),
        route.backend.address.clone(),
        accepted.peer,
        accepted.local,
        details,
        Place::Nowhere,
    );
    let mut stream = accepted.stream;
    if secured(&core, &route, &client, accepted.needs_tls, &mut stream).await.is_err() {
        return;
    }
    let key = route.backend.pool.key_of_url(&identity);
    let upstream = match route.backend.pool.open_for_one(&key, &identity, None).await {
        Ok(upstream) => upstream,
        Err(error) => {
            debug!(id = client.id, %error, "no connection for a client");
            if let Some(reply) = error.reply() {
                // The client may be gone already.
                let _ = stream.write_all(&reply).await;
            }
            if !client.inbox.has_ended() {
                stream.end_with(b"").await;
            }
            return;
        }
    };
    let keeps_half_open = upstream.stream.info().device.is_none();
    let (mut from_client, mut to_client) = split(stream);
    let (mut from_server, mut to_server) = split(upstream.stream);
    let ended = {
        let requests = async {
            let copied = copy(&mut from_client, &mut to_server).await;
            // An end. A cut must not become one for the server.
            if keeps_half_open && copied.is_ok() {
                // It fails only if the connection has ended. With TLS it waits for a server that does not read.
                let _ = timeout(LAST_REPLIES_TCP, to_server.shutdown()).await;
            }
            copied
        };
        let replies = copy(&mut from_server, &mut to_client);
        let both = async {
            tokio::pin!(replies);
            tokio::select! {
                replied = &mut replies => replied,
                requested = requests => {
                    // Replies to the last commands. Neither RDMA, which has no half-close, nor a cut ends them: then their time does. Where
                    // the server should have ended them, they are not complete.
                    let ends_them = keeps_half_open && requested.is_ok();
                    let limit = if ends_them { LAST_REPLIES_TCP } else { LAST_REPLIES_RDMA };
                    let incomplete = if ends_them { Err(ErrorKind::TimedOut.into()) } else { Ok(0) };
                    timeout(limit, replies).await.unwrap_or(incomplete)
                }
            }
        };
        tokio::select! {
            ended = both => ended,
            () = client.ended() => Ok(0),
        }
    };
    let mut stream = from_client.unsplit(to_client);
    match ended {
        // Half a reply must not look like a whole one.
        Err(_) => stream.cut(),
        Ok(_) if client.inbox.has_ended() => {}
        Ok(_) => stream.end_with(b"").await,
    }
}

/// How long replies are passed on after the client has closed its side.
pub(super) const LAST_REPLIES_TCP: Duration = Duration::from_secs(60);
pub(super) const LAST_REPLIES_RDMA: Duration = Duration::from_secs(1);
