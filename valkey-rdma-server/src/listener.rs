//! Accepting connections, within limits.

use std::error::Error;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{self, AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tracing::{Instrument, debug, error, info_span, warn};
use valkey_rdma_transport::{DeviceKind, Monitor, TransportError};

use crate::config::Config;
use crate::connection::{Connection, ConnectionError};
use crate::handler::{Handler, Peer, Transport};
use crate::refused::{Cause, Refusals};
use crate::shutdown::Stop;

/// A bound listener of some kind.
pub(crate) trait Accept: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// A client that has knocked. Dropping it sends the client away.
    type Arrival: Send;
    type Error: Error + Send + 'static;

    fn transport(&self) -> Transport;

    fn local_addr(&self) -> SocketAddr;

    /// What an error of the next two means for the clients after this one.
    fn trouble(error: &Self::Error) -> Trouble;

    /// Waits for the next client.
    fn arrival(&mut self) -> impl Future<Output = Result<Self::Arrival, Self::Error>> + Send;

    /// Lets it in: from here on the connection costs memory.
    fn open(arrival: Self::Arrival) -> Result<Accepted<Self::Stream>, Self::Error>;
}

/// What it means that a client could not be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It was this client's. The next one may fare better.
    Client,
    /// The next accept would fail in the same way, for want of something.
    Shortage,
    /// Nobody will come any more.
    End,
}

/// A stream and its two ends.
pub(crate) struct Accepted<S> {
    pub(crate) stream: S,
    pub(crate) remote: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) rdma: Option<Monitor>,
}

/// What the listeners of one server share.
pub(crate) struct Shared<H> {
    pub(crate) handler: Arc<H>,
    pub(crate) config: Config,
    /// One permit per connection that may still be opened.
    vacancies: Arc<Semaphore>,
    /// One permit per connection that may still be told that there is no vacancy.
    turnstile: Arc<Semaphore>,
    pub(crate) refusals: Arc<Refusals>,
    last_id: AtomicU64,
}

impl<H: Handler> Shared<H> {
    pub(crate) fn new(handler: Arc<H>, config: Config) -> Self {
        let vacancies = Arc::new(Semaphore::new(config.max_connections.min(Semaphore::MAX_PERMITS)));
        let turnstile = Arc::new(Semaphore::new(TURNED_AWAY_AT_ONCE));
        Self { handler, config, vacancies, turnstile, refusals: Arc::default(), last_id: AtomicU64::new(0) }
    }

    /// What may become of one more client. `None`: nothing.
    fn room(&self) -> Option<Room> {
        if let Ok(vacancy) = self.vacancies.clone().try_acquire_owned() {
            return Some(Room::Vacancy(vacancy));
        }
        self.turnstile.clone().try_acquire_owned().ok().map(Room::Turnstile)
    }

    fn peer<S>(&self, transport: Transport, accepted: &Accepted<S>) -> Peer {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        Peer::new(id, transport, accepted.remote, accepted.local).with_rdma(accepted.rdma.clone())
    }
}

/// Where a client goes, and the permit for that.
enum Room {
    /// It is served.
    Vacancy(OwnedSemaphorePermit),
    /// It is told that there is no vacancy.
    Turnstile(OwnedSemaphorePermit),
}

/// Accepts until the server is to stop, this listener is to `close` or has come to its own end, then stops listening and
/// waits for the connections to end, which they are only told if the server stops. Dropping the future cuts them.
pub(crate) async fn listen<H: Handler>(
    mut listener: impl Accept,
    shared: Arc<Shared<H>>,
    mut stop: Stop,
    mut close: Stop,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.requested() => break,
            () = close.requested() => break,
            Some(ended) = connections.join_next() => report(ended),
            next = accept(&mut listener, &shared) => {
                let Some((accepted, room)) = next else { break };
                admit(accepted, room, listener.transport(), &shared, &stop, &mut connections);
            }
        }
    }
    drop(listener);
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// Accepts the next connection that there is room for, however long that takes. `None`: the listener has ended.
async fn accept<L: Accept, H: Handler>(
    listener: &mut L,
    shared: &Shared<H>,
) -> Option<(Accepted<L::Stream>, Room)> {
    loop {
        let accepted = match listener.arrival().await {
            Ok(arrival) => {
                let Some(room) = shared.room() else {
                    shared.refusals.count(Cause::TooManyConnections);
                    debug!(addr = %listener.local_addr(), "sent away: too many connections, and too many being told so");
                    continue;
                };
                L::open(arrival).map(|accepted| (accepted, room))
            }
            Err(error) => Err(error),
        };
        let error = match accepted {
            Ok(accepted) => return Some(accepted),
            Err(error) => error,
        };
        let addr = listener.local_addr();
        match L::trouble(&error) {
            Trouble::Client => debug!(error = &error as &dyn Error, %addr, "a client was not accepted"),
            Trouble::Shortage => {
                warn!(error = &error as &dyn Error, %addr, "cannot accept");
                // The next try would fail at once, again and again.
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Trouble::End => {
                error!(error = &error as &dyn Error, %addr, "the listener has ended: nobody can connect there any more");
                return None;
            }
        }
    }
}

/// Starts a connection, or turns it away.
fn admit<S, H>(
    accepted: Accepted<S>,
    room: Room,
    transport: Transport,
    shared: &Arc<Shared<H>>,
    stop: &Stop,
    connections: &mut JoinSet<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let peer = shared.peer(transport, &accepted);
    let span = info_span!("connection", id = peer.id(), %transport, peer = %peer.addr());
    match room {
        Room::Vacancy(vacancy) => {
            let connection = Connection::new(accepted.stream, peer, shared.handler.clone(), &shared.config);
            let refusals = shared.refusals.clone();
            connections.spawn(serve(connection, stop.clone(), refusals, vacancy).instrument(span));
        }
        Room::Turnstile(place) => {
            if shared.refusals.count(Cause::TooManyConnections) {
                span.in_scope(|| warn!("turned away: too many connections; more are logged at debug level"));
            }
            connections.spawn(turn_away(accepted.stream, place).instrument(span));
        }
    }
}

async fn serve<S, H>(
    connection: Connection<S, H>,
    stop: Stop,
    refusals: Arc<Refusals>,
    _vacancy: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    H: Handler,
{
    debug!("accepted");
    let Err(error) = connection.serve(stop).await else {
        debug!("closed");
        return;
    };
    let cause = match &error {
        ConnectionError::Stream(error) if error.kind() == io::ErrorKind::InvalidData => {
            Cause::BrokenTransport
        }
        ConnectionError::Stream(_) | ConnectionError::Closed => {
            debug!(error = &error as &dyn Error, "lost");
            return;
        }
        ConnectionError::Protocol(_) => Cause::BrokenCommands,
        ConnectionError::InputLimit { .. } => Cause::TooMuchInput,
        ConnectionError::PushLimit { .. } => Cause::TooManyMessages,
        ConnectionError::Idle { .. } => Cause::Idle,
    };
    // Clients that send nonsense or nothing are daily bread; that the server had to defend itself is not.
    if refusals.count(cause) && !matches!(cause, Cause::Idle | Cause::BrokenCommands) {
        warn!(%error, %cause, "closed; more of this cause are logged at debug level");
    } else {
        debug!(%error, %cause, "closed");
    }
}

/// Says that there is no vacancy. `_place` is given back when the stream is closed.
async fn turn_away<S>(mut stream: S, _place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    debug!("turned away: too many connections");
    let goodbye = async {
        stream.write_all(b"-ERR max number of clients reached\r\n").await?;
        stream.shutdown().await?;
        // A TCP socket that is closed with unread input resets the connection: nobody would read why.
        io::copy(&mut stream, &mut io::sink()).await
    };
    match tokio::time::timeout(TURN_AWAY, goodbye).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => debug!(%error, "left early"),
        Err(_) => debug!("did not leave in time"),
    }
    // An error is the peer's: it is gone.
    let _ = stream.shutdown().await;
}

/// A handler that panics ends its own connection only; say so where somebody can see it.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "connection ended by a panic of its handler");
    }
}

impl Accept for TcpListener {
    type Stream = TcpStream;
    type Arrival = (TcpStream, SocketAddr);
    type Error = io::Error;

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn local_addr(&self) -> SocketAddr {
        TcpListener::local_addr(self).expect("a bound socket has an address")
    }

    fn trouble(error: &io::Error) -> Trouble {
        if is_shortage(error) { Trouble::Shortage } else { Trouble::Client }
    }

    async fn arrival(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept().await
    }

    fn open((stream, remote): (TcpStream, SocketAddr)) -> io::Result<Accepted<TcpStream>> {
        // Replies leave in one write per turn; waiting for more would only delay them. A peer that is gone already
        // makes this fail; its connection will notice.
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, peer = %remote, "cannot set TCP_NODELAY");
        }
        let local = stream.local_addr()?;
        Ok(Accepted { stream, remote, local, rdma: None })
    }
}

/// A listener on an RDMA device, and which kind that is.
#[derive(Debug)]
pub(crate) struct RdmaListener {
    pub(crate) listener: valkey_rdma_transport::Listener,
    pub(crate) device: DeviceKind,
}

impl Accept for RdmaListener {
    type Stream = valkey_rdma_transport::InlineStream;
    type Arrival = valkey_rdma_transport::Request;
    type Error = TransportError;

    fn transport(&self) -> Transport {
        Transport::Rdma(self.device)
    }

    fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    fn trouble(error: &TransportError) -> Trouble {
        match error {
            // The calls that wait for the next request.
            TransportError::Device { call: "epoll_wait" | "rdma_get_cm_event", .. }
            | TransportError::Memory { .. }
            | TransportError::Descriptors { .. }
            | TransportError::SystemDescriptors { .. } => Trouble::Shortage,
            TransportError::Device { source, .. } if is_shortage(source) => Trouble::Shortage,
            TransportError::DeviceRemoved | TransportError::Closed => Trouble::End,
            _ => Trouble::Client,
        }
    }

    async fn arrival(&mut self) -> Result<Self::Arrival, TransportError> {
        self.listener.request().await
    }

    fn open(request: Self::Arrival) -> Result<Accepted<Self::Stream>, TransportError> {
        let stream = request.accept()?;
        let (remote, local, rdma) = (stream.peer_addr(), stream.local_addr(), Some(stream.monitor()));
        // A connection reads whatever else it does.
        Ok(Accepted { stream: stream.into_inline(), remote, local, rdma })
    }
}

/// Whether the process or the machine is out of descriptors or memory.
fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOMEM | ENFILE | EMFILE | ENOBUFS))
}

// Linux's numbers; the standard library has no names for all of them.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

/// How long a listener rests after an accept that would fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections being told at once that there is no room for them, each of which pins its memory for that. Further
/// ones are sent away untold, before they pin any.
const TURNED_AWAY_AT_ONCE: usize = 16;

/// How long a peer that is turned away may take to hear it and leave.
const TURN_AWAY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
