//! Accepting connections, within limits.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};
use valkey_rdma_resp::TLS_REQUIRED;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::{NotEncrypted, TlsAcceptor};

use crate::connection::Connection;
use crate::direct::{Transfers, permits};
use crate::ending::{ConnectionError, Reporter, caught, warning_span};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listener::{Accepted, Listener, Scope};
use crate::monitor::{Cause, Monitor};
use crate::peer::{Peer, Rdma, Transport};
use crate::registry::Registration;
use crate::workers::{Assigned, Workers};

/// State shared by the listeners of one server.
pub(crate) struct Shared<H> {
    handler: Arc<H>,
    limits: Limits,
    password: Option<Bytes>,
    stop: CancellationToken,
    /// One permit per connection that may still be served.
    free: Arc<Semaphore>,
    /// One permit per connection that may still be refused with a reply.
    refusing: Arc<Semaphore>,
    /// One permit per byte that direct transfers may have in flight.
    transfers: Arc<Semaphore>,
    pub(crate) monitor: Monitor,
    last_id: AtomicU64,
    workers: Workers,
    /// Dropped after the last connection, which has a share in this.
    _ended: oneshot::Sender<()>,
}

impl<H: Handler> Shared<H> {
    pub(crate) fn new(
        handler: Arc<H>,
        limits: Limits,
        password: Option<Bytes>,
        stop: CancellationToken,
        workers: Workers,
        ended: oneshot::Sender<()>,
    ) -> Self {
        let free = Arc::new(Semaphore::new(limits.max_connections.min(Semaphore::MAX_PERMITS)));
        let transfers = permits(&limits);
        Self {
            handler,
            limits,
            password,
            stop,
            free,
            refusing: Arc::new(Semaphore::new(REFUSED_AT_ONCE)),
            transfers,
            monitor: Monitor::default(),
            last_id: AtomicU64::new(0),
            workers,
            _ended: ended,
        }
    }

    /// Decides about one more client. `None`: reject it without a reply.
    fn admission(&self) -> Option<Admission> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(Admission::Serve(permit));
        }
        self.refusing.clone().try_acquire_owned().ok().map(Admission::Refuse)
    }

    fn peer(&self, transport: Transport, accepted: &Accepted) -> Peer {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let rdma = accepted.rdma.clone().map(|monitor| {
            let transfers = Transfers::new(&self.limits, self.transfers.clone());
            Rdma { monitor, transfers }
        });
        Peer::new(id, transport, accepted.remote, accepted.local)
            .with_rdma(rdma)
            .with_password(self.password.clone())
            .with_stop(self.stop.clone())
    }
}

/// The decision about a client, and the permit for it.
enum Admission {
    /// Serve it.
    Serve(OwnedSemaphorePermit),
    /// Refuse it with a reply: there are too many connections.
    Refuse(OwnedSemaphorePermit),
}

/// Accepts until the listener is closed or has ended. Then it is no longer registered, and the connections are waited for. Dropping the future
/// closes them at once.
pub(crate) async fn accept_until_closed<H: Handler>(
    mut listener: Listener,
    shared: Arc<Shared<H>>,
    registration: Registration,
) {
    let (transport, tls) = (listener.listening().transport, listener.tls().cloned());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = registration.closed() => break,
            Some(ended) = connections.join_next() => report(ended),
            next = accept(&mut listener, &shared) => {
                let Some((accepted, assigned, admission)) = next else { break };
                admit(accepted, assigned, admission, transport, tls.clone(), &shared, &mut connections);
            }
        }
    }
    drop(listener);
    drop(registration);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// Accepts the next connection that is not rejected, however long that takes, and says which thread serves it; without one, the
/// listener's runtime does. `None` if the listener has ended.
async fn accept<H: Handler>(
    listener: &mut Listener,
    shared: &Shared<H>,
) -> Option<(Accepted, Option<Assigned>, Admission)> {
    let addr = listener.listening().addr;
    loop {
        let accepted = match listener.request().await {
            Ok(request) => {
                let Some(admission) = shared.admission() else {
                    shared.monitor.refusals().count(Cause::TooManyConnections);
                    debug!(%addr, "rejected without a reply: too many connections");
                    continue;
                };
                let assigned = shared.workers.next();
                let accepted = {
                    let _entered = assigned.as_ref().map(Assigned::enter);
                    request.accept(assigned.as_ref(), shared.limits.tcp_keepalive)
                };
                accepted.map(|accepted| (accepted, assigned, admission))
            }
            Err(error) => Err(error),
        };
        let error = match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => error,
        };
        match error.scope() {
            Scope::Client => debug!(error = &error as &dyn Error, %addr, "a client was not accepted"),
            Scope::Shortage => {
                if shared.monitor.refusals().shortage_is_news(Instant::now()) {
                    warn!(error = &error as &dyn Error, %addr, "cannot accept; logged once a minute");
                }
                // The next accept would fail at once, again and again. A connection that ends cuts the pause short in `accept_until_closed`:
                // what it gives back may be what was missing.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Scope::Listener => {
                error!(error = &error as &dyn Error, %addr, "the listener has ended: no client can connect there any more");
                return None;
            }
        }
    }
}

/// Starts the task that serves or refuses a connection. With TLS, the handshake is a part of that task.
fn admit<H: Handler>(
    accepted: Accepted,
    assigned: Option<Assigned>,
    admission: Admission,
    transport: Transport,
    tls: Option<TlsAcceptor>,
    shared: &Arc<Shared<H>>,
    connections: &mut JoinSet<()>,
) {
    let peer = shared.peer(transport, &accepted);
    let span = info_span!("connection", id = peer.id(), %transport, peer = %peer.addr());
    let runtime = assigned.as_ref().map_or_else(Handle::current, |assigned| assigned.runtime().clone());
    match admission {
        Admission::Serve(permit) => {
            let shared = shared.clone();
            // Each transport has a task of its own type, so that no read or write has to look which one it is.
            match (accepted.stream, tls) {
                (stream, Some(tls)) => connections.spawn_on(
                    serve_encrypted(stream, tls, peer, shared, permit, assigned).instrument(span),
                    &runtime,
                ),
                (AnyStream::Tcp(stream), None) => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
                (AnyStream::Device(stream), None) => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
                (stream, None) => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
            };
        }
        Admission::Refuse(permit) => {
            if shared.monitor.refusals().count(Cause::TooManyConnections) {
                warning_span(&peer)
                    .in_scope(|| warn!("refused: too many connections; more are logged at debug level"));
            }
            connections.spawn_on(refuse(accepted.stream, tls, permit, assigned).instrument(span), &runtime);
        }
    }
}

/// Serves a connection. `_permit` is given back when its stream is closed, and `_assigned` counts until then.
async fn serve<S, H>(
    stream: S,
    peer: Peer,
    shared: Arc<Shared<H>>,
    _permit: OwnedSemaphorePermit,
    _assigned: Option<Assigned>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Handler,
{
    debug!("accepted");
    let reporter = Reporter::new(&peer, shared.monitor.clone());
    let serving = async {
        // In this task, because it calls the handler, which may panic.
        let connection = Connection::new(stream, peer, shared.handler.clone(), &shared.limits, &reporter);
        connection.serve(shared.stop.clone()).await
    };
    let panicked = |message| Err(ConnectionError::Panic { place: "its session".to_owned(), message });
    match caught(pin!(serving)).await.unwrap_or_else(panicked) {
        Ok(()) => debug!("closed"),
        Err(error) => reporter.report(&error),
    }
}

/// Makes the TLS connection of a client, and serves it. The client has its place meanwhile, and leaves it if there is no TLS connection in time.
async fn serve_encrypted<H: Handler>(
    stream: AnyStream,
    tls: TlsAcceptor,
    peer: Peer,
    shared: Arc<Shared<H>>,
    permit: OwnedSemaphorePermit,
    assigned: Option<Assigned>,
) {
    let encrypted = tokio::select! {
        encrypted = tls.admit(stream, HANDSHAKE_TIMEOUT, TLS_REQUIRED) => encrypted,
        // It has sent no command.
        () = shared.stop.cancelled() => return debug!("closed during the TLS handshake: the server stops"),
    };
    match encrypted {
        Ok(stream) => {
            let info = stream.tls();
            debug!(tls = info.as_deref().map(tracing::field::display), "encrypted");
            serve(stream, peer.with_tls(info), shared, permit, assigned).await;
        }
        Err(NotEncrypted::Left) => debug!("left before the TLS handshake"),
        Err(error) => {
            shared.monitor.refusals().count(Cause::BrokenTls);
            debug!(error = &error as &dyn Error, "no TLS connection");
        }
    }
}

/// Replies that there are too many connections, and closes. With TLS, the reply is encrypted; a client that is slow to begin gets none.
/// `_permit` and `_assigned`: as in [`serve`].
async fn refuse(
    mut stream: AnyStream,
    tls: Option<TlsAcceptor>,
    _permit: OwnedSemaphorePermit,
    _assigned: Option<Assigned>,
) {
    debug!("refused: too many connections");
    if let Some(tls) = tls {
        stream = match tls.admit(stream, REFUSAL_TIMEOUT, TLS_REQUIRED).await {
            Ok(encrypted) => encrypted,
            Err(error) => return debug!(error = &error as &dyn Error, "no TLS connection to reply on"),
        };
    }
    stream.end_with(b"-ERR max number of clients reached\r\n").await;
}

/// Logs the panic of a task, which would go unnoticed otherwise. Those of handlers are [caught] before.
pub(crate) fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "a task of the server panicked");
    }
}

/// The longest pause of a listener after an accept that failed because of a shortage.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections refused with a reply at once. Each pins memory meanwhile; further ones are rejected without a reply, before
/// they pin any.
const REFUSED_AT_ONCE: usize = 16;

/// How long a client may take until its connection is encrypted. The default of the transport's own handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a refused client may take until its connection is encrypted.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
