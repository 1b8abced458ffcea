//! [`secured`]: the stream of a client as its session reads it. At an encrypted listener, the handshake comes first.

use std::mem::replace;
use std::time::{Duration, Instant};

use tokio::io::empty;
use tracing::{debug, warn};
use valkey_rdma_program::error_chain;
use valkey_rdma_resp::TLS_REQUIRED;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::NotEncrypted;

use super::Closed;
use crate::config::route::Route;
use crate::core::Core;
use crate::session::clients::Registered;

/// Encrypts the stream of a client if `needs_tls`. The client is listed already, so that it can be killed and the gateway can stop
/// meanwhile. An error: there is no encrypted connection, and the client is closed.
pub(super) async fn secured(
    core: &Core,
    route: &Route,
    client: &Registered,
    needs_tls: bool,
    stream: &mut AnyStream,
) -> Result<(), Closed> {
    if !needs_tls {
        return Ok(());
    }
    // A route with such a listener has certificates.
    let tls = route.tls.as_ref().ok_or(Closed)?;
    let plain = replace(stream, AnyStream::Other(Box::new(empty())));
    let encrypted = tokio::select! {
        encrypted = tls.admit(plain, HANDSHAKE, TLS_REQUIRED) => encrypted,
        () = client.ended() => return Err(Closed),
    };
    match encrypted {
        Ok(encrypted) => {
            *stream = encrypted;
            if let Some(tls) = stream.tls() {
                client.set_tls(&tls);
            }
            Ok(())
        }
        Err(error) => {
            let (id, peer) = (client.id, &client.peer);
            if let NotEncrypted::Left = error {
                debug!(id, peer, "a client has left before its TLS handshake");
                return Err(Closed);
            }
            route.backend.server.metrics.tls_failed.add(1);
            if let Some(unlogged) = core.failed_handshakes.pass(Instant::now()) {
                let (local, error) = (&client.local, error_chain(&error));
                warn!(id, peer, local, %error, unlogged, "no TLS connection with a client: it is closed");
            }
            Err(Closed)
        }
    }
}

/// How long a client may take until its connection is encrypted.
const HANDSHAKE: Duration = Duration::from_secs(10);
