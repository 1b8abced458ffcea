//! Accepting connections, within limits, and the registry of the listeners that do.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{self, AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info_span, warn};
use valkey_rdma_transport::AnyStream;

use crate::connection::Connection;
use crate::ending::{ConnectionError, Reporter, caught, warning_span};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listener::{Accepted, Listener, Listening, Scope};
use crate::monitor::{Cause, Monitor};
use crate::peer::{Peer, Transport};
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
        Self {
            handler,
            limits,
            password,
            stop,
            free,
            refusing: Arc::new(Semaphore::new(REFUSED_AT_ONCE)),
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
        Peer::new(id, transport, accepted.remote, accepted.local)
            .with_rdma(accepted.rdma.clone())
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
    let transport = listener.listening().transport;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = registration.closed() => break,
            Some(ended) = connections.join_next() => report(ended),
            next = accept(&mut listener, &shared) => {
                let Some((accepted, assigned, admission)) = next else { break };
                admit(accepted, assigned, admission, transport, &shared, &mut connections);
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

/// Starts the task that serves or refuses a connection.
fn admit<H: Handler>(
    accepted: Accepted,
    assigned: Option<Assigned>,
    admission: Admission,
    transport: Transport,
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
            match accepted.stream {
                AnyStream::Tcp(stream) => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
                AnyStream::Device(stream) => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
                stream => connections
                    .spawn_on(serve(stream, peer, shared, permit, assigned).instrument(span), &runtime),
            };
        }
        Admission::Refuse(permit) => {
            if shared.monitor.refusals().count(Cause::TooManyConnections) {
                warning_span(&peer)
                    .in_scope(|| warn!("refused: too many connections; more are logged at debug level"));
            }
            connections.spawn_on(refuse(accepted.stream, permit, assigned).instrument(span), &runtime);
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

/// Replies that there are too many connections, and closes. `_permit` and `_assigned`: as in [`serve`].
async fn refuse(mut stream: AnyStream, _permit: OwnedSemaphorePermit, _assigned: Option<Assigned>) {
    debug!("refused: too many connections");
    let refusal = async {
        stream.write_all(b"-ERR max number of clients reached\r\n").await?;
        stream.shutdown().await?;
        // A TCP socket that is closed with unread input resets the connection, and the reply would be lost.
        io::copy(&mut stream, &mut io::sink()).await
    };
    match tokio::time::timeout(REFUSAL_TIMEOUT, refusal).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => debug!(%error, "left early"),
        Err(_) => debug!("did not leave in time"),
    }
    // An error means that the peer is gone.
    let _ = stream.shutdown().await;
}

/// Logs the panic of a task, which would go unnoticed otherwise. Those of handlers are [caught] before.
pub(crate) fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "a task of the server panicked");
    }
}

/// The listeners that accept connections.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    /// How many listeners there ever were: no id is used twice.
    last_id: u64,
}

pub(crate) struct Entry {
    id: u64,
    listening: Listening,
    pub(crate) close: CancellationToken,
}

impl Registry {
    /// Where connections are accepted, in the order added.
    pub(crate) fn listening(&self) -> Vec<Listening> {
        self.entries.borrow().iter().map(|entry| entry.listening).collect()
    }

    /// Waits until there are no listeners.
    pub(crate) async fn empty(&self) {
        let mut entries = self.entries.subscribe();
        // The sender lives as long as `self`.
        let _ = entries.wait_for(Vec::is_empty).await;
    }

    pub(crate) fn add(&mut self, listening: Listening, close: CancellationToken) -> Registration {
        self.last_id += 1;
        let id = self.last_id;
        self.entries.send_modify(|entries| entries.push(Entry { id, listening, close: close.clone() }));
        Registration { entries: self.entries.clone(), id, close }
    }

    /// Removes the entry of a listener, if there is one.
    pub(crate) fn take(&self, listening: Listening) -> Option<Entry> {
        take(&self.entries, |entry| entry.listening == listening)
    }
}

/// The server is dropped, and its listeners with it. A last listener that ends then is not an error.
impl Drop for Registry {
    fn drop(&mut self) {
        self.entries.send_replace(Vec::new());
    }
}

fn take(entries: &watch::Sender<Vec<Entry>>, found: impl Fn(&Entry) -> bool) -> Option<Entry> {
    let mut taken = None;
    entries.send_if_modified(|entries| {
        taken = entries.iter().position(found).map(|index| entries.remove(index));
        taken.is_some()
    });
    taken
}

/// A listener's entry in the registry. Dropping it, for whatever reason the listener ends, removes the entry.
pub(crate) struct Registration {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    id: u64,
    close: CancellationToken,
}

impl Registration {
    /// Completes when the listener is closed or the server stops.
    pub(crate) async fn closed(&self) {
        self.close.cancelled().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let was_registered = take(&self.entries, |entry| entry.id == self.id).is_some();
        // If the server stops or the listener was closed, its end is expected.
        let is_expected = !was_registered || self.close.is_cancelled();
        if !is_expected && self.entries.borrow().is_empty() {
            error!("the last listener has ended: no client can connect any more");
        }
    }
}

/// The longest pause of a listener after an accept that failed because of a shortage.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections refused with a reply at once. Each pins memory meanwhile; further ones are rejected without a reply, before
/// they pin any.
const REFUSED_AT_ONCE: usize = 16;

/// How long a refused peer may take to read the reply and leave.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
