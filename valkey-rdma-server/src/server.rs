//! [`Server`]: listeners of any kind in front of one handler.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind, Listener};

use crate::error::BindError;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::listen_url::ListenUrl;
use crate::listener::{Accept, Shared, accept_until, report};
use crate::peer::Transport;
use crate::refused::{Refusals, Refused};
use crate::workers::{Threads, Workers};

/// A running server. [`shutdown`](Self::shutdown) lets connections finish; dropping the server closes them at once.
///
/// ```
/// use valkey_rdma_server::{DeviceKind, Reply, Server, TransportConfig, handler_fn};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let any_port = "127.0.0.1:0".parse().unwrap();
/// let server = Server::builder(handler_fn(|_command| async { Ok(Reply::OK) }))
///     .rdma(DeviceKind::Emulated, any_port, &TransportConfig::default())
///     .tcp(any_port)
///     .start()
///     .await?;
/// for url in server.urls() {
///     println!("ready {url}"); // emulated://127.0.0.1:49152, valkey://127.0.0.1:40123
/// }
/// server.shutdown().await;
/// # Ok::<_, valkey_rdma_server::BindError>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct Server {
    registry: Registry,
    last_id: u64,
    host: Box<dyn Host>,
    stop: CancellationToken,
    /// One task per listener, which ends after the connections accepted there.
    listeners: JoinSet<()>,
    threads: Threads,
    drain_timeout: Duration,
}

/// The addresses and the limits of a server that has not been started.
#[derive(Debug)]
pub struct Builder<H> {
    handler: H,
    listen_on: Vec<Address>,
    limits: Limits,
    password: Option<Bytes>,
    threads: usize,
}

/// An address to listen on.
#[derive(Debug)]
enum Address {
    Url(String),
    Tcp(SocketAddr),
    Rdma(DeviceKind, SocketAddr, Box<TransportConfig>),
    Bound(Box<Listener>),
}

/// An address that a server listens on. `Display` is a client's URL: `valkey://127.0.0.1:6379`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The transport of its connections.
    pub transport: Transport,
    /// The address, with the real port if port 0 was asked for.
    pub addr: SocketAddr,
}

impl Server {
    /// Builds a server that runs `handler`'s commands.
    pub fn builder<H: Handler>(handler: H) -> Builder<H> {
        Builder { handler, listen_on: Vec::new(), limits: Limits::default(), password: None, threads: 0 }
    }

    /// The addresses that the server listens on, in the order asked for.
    pub fn listening(&self) -> Vec<Listening> {
        self.registry.0.borrow().iter().map(|entry| entry.listening).collect()
    }

    /// Client URLs of the addresses that the server listens on, in the order asked for.
    pub fn urls(&self) -> impl Iterator<Item = String> + use<> {
        self.listening().into_iter().map(|listening| listening.to_string())
    }

    /// Waits until the server listens nowhere: each listener was [closed](Self::close_listener) or has ended, for example
    /// because its device was removed. Connections that were accepted before go on.
    ///
    /// A program should wait for this beside its signals; otherwise it runs on although no client can connect.
    ///
    /// **Cancel safety**: nothing is lost.
    pub async fn wait(&self) {
        let mut entries = self.registry.0.subscribe();
        // The sender lives as long as `self`.
        let _ = entries.wait_for(Vec::is_empty).await;
    }

    /// Stops accepting, and closes every connection after it has run the commands that have arrived whole and delivered
    /// their replies. Handlers are notified through [`Peer::stopping`](crate::Peer::stopping). A TCP client has 1 s to
    /// close its side too, so that no reset overtakes its last replies. Connections that take longer than
    /// [`Limits::drain_timeout`] are cut. The server's [threads](Builder::threads) have ended then too, unless a task or a
    /// blocking call of the handler keeps one for longer than that.
    ///
    /// **Cancel safety**: dropping the future cuts the connections that are left.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let drained = async {
            while let Some(ended) = self.listeners.join_next().await {
                report(ended);
            }
        };
        if timeout(self.drain_timeout, drained).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "connections did not end in time and are cut");
            self.listeners.shutdown().await;
        }
        // The threads end after the last connection.
        drop(self.host);
        if timeout(self.drain_timeout, self.threads.join()).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "threads did not end in time: the handler keeps them");
        }
    }

    /// Counts of refused and closed connections since the start, by cause.
    pub fn refused(&self) -> Refused {
        self.host.refusals().snapshot()
    }

    /// Serves until `stop` completes, then [shuts down](Self::shutdown) and returns what `stop` returned. `None` if the server
    /// listens nowhere before that: see [`wait`](Self::wait).
    ///
    /// ```no_run
    /// # async fn example(server: valkey_rdma_server::Server) -> Result<(), Box<dyn std::error::Error>> {
    /// server.run_until(tokio::signal::ctrl_c()).await.ok_or("no listener is left")??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Cancel safety**: dropping the future cuts all connections.
    pub async fn run_until<T>(self, stop: impl Future<Output = T>) -> Option<T> {
        let stopped = tokio::select! {
            stopped = stop => Some(stopped),
            () = self.wait() => None,
        };
        self.shutdown().await;
        stopped
    }

    /// Listens on one more address, given as a URL: see [`Builder::listen`].
    ///
    /// # Errors
    ///
    /// [`BindError`] if the URL is wrong or it cannot listen there; the other listeners go on.
    pub async fn listen(&mut self, url: impl Into<String>) -> Result<Listening, BindError> {
        self.bind(Address::Url(url.into())).await
    }

    /// Listens on one more address over TCP. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// [`BindError`] if it cannot listen there; the other listeners go on.
    pub async fn listen_tcp(&mut self, addr: SocketAddr) -> Result<Listening, BindError> {
        self.bind(Address::Tcp(addr)).await
    }

    /// Listens on one more address over RDMA. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// Same errors as [`listen_tcp`](Self::listen_tcp).
    pub async fn listen_rdma(
        &mut self,
        device: DeviceKind,
        addr: SocketAddr,
        config: &TransportConfig,
    ) -> Result<Listening, BindError> {
        self.bind(Address::Rdma(device, addr, Box::new(config.clone()))).await
    }

    /// Stops listening on one address. Its connections go on. `false` if the server does not listen there (any more).
    ///
    /// Together with [`listen_tcp`](Self::listen_tcp) or [`listen_rdma`](Self::listen_rdma) this changes a port without
    /// disturbing any client. The address is free again a moment later.
    pub fn close_listener(&mut self, listening: Listening) -> bool {
        let Some(entry) = self.registry.take(listening) else { return false };
        entry.close.cancel();
        true
    }

    async fn bind(&mut self, address: Address) -> Result<Listening, BindError> {
        let close = self.stop.child_token();
        let (listening, serving) = self.host.bind(address, close.clone()).await?;
        self.last_id += 1;
        let registration = self.registry.add(self.last_id, listening, close);
        self.listeners.spawn(serving(registration));
        Ok(listening)
    }
}

/// The listeners that accept connections.
#[derive(Debug)]
struct Registry(Arc<watch::Sender<Vec<Entry>>>);

#[derive(Debug)]
struct Entry {
    id: u64,
    listening: Listening,
    close: CancellationToken,
}

impl Registry {
    /// Ids are never used twice: `id` counts all listeners that there ever were.
    fn add(&self, id: u64, listening: Listening, close: CancellationToken) -> Registration {
        self.0.send_modify(|entries| entries.push(Entry { id, listening, close }));
        Registration { entries: self.0.clone(), id }
    }

    fn take(&self, listening: Listening) -> Option<Entry> {
        take(&self.0, |entry| entry.listening == listening)
    }
}

/// The server is dropped, and its listeners with it. A last listener that ends then is not an error.
impl Drop for Registry {
    fn drop(&mut self) {
        self.0.send_replace(Vec::new());
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
#[derive(Debug)]
pub(crate) struct Registration {
    entries: Arc<watch::Sender<Vec<Entry>>>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let ended = take(&self.entries, |entry| entry.id == self.id);
        // If the server stops or the listener was closed, its end is expected.
        let unexpected = ended.is_some_and(|entry| !entry.close.is_cancelled());
        if unexpected && self.entries.borrow().is_empty() {
            error!("the last listener has ended: no client can connect any more");
        }
    }
}

type Serving = Box<dyn FnOnce(Registration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;
type Binding<'a> = Pin<Box<dyn Future<Output = Result<(Listening, Serving), BindError>> + Send + 'a>>;

/// A handler and what its listeners share, without the handler's type.
trait Host: Send + Sync {
    /// Binds an address. Returns where it listens, and what makes the future that serves it.
    fn bind(&self, address: Address, close: CancellationToken) -> Binding<'_>;

    fn refusals(&self) -> &Refusals;
}

impl fmt::Debug for dyn Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl<H: Handler> Host for Arc<Shared<H>> {
    fn bind(&self, address: Address, close: CancellationToken) -> Binding<'_> {
        Box::pin(async move {
            Ok(match address {
                Address::Url(url) => return self.bind(resolve(url).await?, close).await,
                Address::Tcp(addr) => {
                    let listener =
                        TcpListener::bind(addr).await.map_err(|source| BindError::Tcp { addr, source })?;
                    serve(listener, self, close)
                }
                Address::Rdma(device, addr, config) => {
                    serve(Listener::bind(device, addr, &config).await?, self, close)
                }
                Address::Bound(listener) => serve(*listener, self, close),
            })
        })
    }

    fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

/// The address that a URL means.
async fn resolve(url: String) -> Result<Address, BindError> {
    let ListenUrl { transport, host, port, config } = match ListenUrl::parse(&url) {
        Ok(parsed) => parsed,
        Err(reason) => return Err(BindError::Url { url, reason }),
    };
    let found = tokio::net::lookup_host((&host[..], port)).await;
    let first = found.and_then(|mut found| found.next().ok_or_else(|| io::ErrorKind::NotFound.into()));
    let addr = first.map_err(|source| BindError::Resolve { host, source })?;
    Ok(match transport {
        Transport::Tcp => Address::Tcp(addr),
        Transport::Rdma(device) => Address::Rdma(device, addr, Box::new(config)),
    })
}

fn serve<H: Handler>(
    listener: impl Accept,
    shared: &Arc<Shared<H>>,
    close: CancellationToken,
) -> (Listening, Serving) {
    let listening = Listening { transport: listener.transport(), addr: listener.local_addr() };
    let shared = shared.clone();
    let serving = |registration| -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(accept_until(listener, shared, close, registration))
    };
    (listening, Box::new(serving))
}

impl<H: Handler> Builder<H> {
    /// Listens on the address of a URL, which is the one that clients connect to: `rdma://10.0.0.7:6379`, `valkey://0.0.0.0:6379` (or
    /// `redis://`) for TCP, `emulated://127.0.0.1:0` with cargo feature `emulated`. A name must be one of this machine. Port 0 takes a
    /// free port, no port means 6379. Options on devices: `rx_size=` in bytes, `poll=event|busy|adaptive`, `device=NAME`.
    ///
    /// A wrong URL is an error of [`start`](Self::start).
    pub fn listen(mut self, url: impl Into<String>) -> Self {
        self.listen_on.push(Address::Url(url.into()));
        self
    }

    /// Listens on `addr` over TCP. Port 0 takes a free port.
    pub fn tcp(mut self, addr: SocketAddr) -> Self {
        self.listen_on.push(Address::Tcp(addr));
        self
    }

    /// Listens on `addr` over RDMA, on a device of this kind. Port 0 takes a free port. The ports of a real RDMA device are
    /// independent of TCP's; the emulated device uses TCP ports.
    pub fn rdma(mut self, device: DeviceKind, addr: SocketAddr, config: &TransportConfig) -> Self {
        self.listen_on.push(Address::Rdma(device, addr, Box::new(config.clone())));
        self
    }

    /// Accepts the connections of a listener that is bound already, for example one with injected faults.
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listen_on.push(Address::Bound(Box::new(listener)));
        self
    }

    /// Replaces the limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves the connections on `count` threads of the server. Default 0: on the runtime that [`start`](Self::start) is
    /// called in.
    ///
    /// Each connection stays on the thread that has the fewest when it arrives, with the handler's calls for it. Over kernel
    /// verbs, the connections of a thread share completion queues ([`SharedCq`](valkey_rdma_transport::SharedCq)). Accepting
    /// goes on in the runtime of `start`, so that it delays no command.
    ///
    /// Use it if one thread's processor is the limit: one thread less than there are processors is a good start. Each
    /// thread's runtime is tokio's of one thread, which wakes no other thread for a command as the default runtime does. A call
    /// of the handler that blocks its thread delays the other connections of that thread. Tasks that the handler starts with
    /// `tokio::spawn` end with the server.
    ///
    /// ```
    /// # use valkey_rdma_server::{Reply, Server, handler_fn};
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let handler = handler_fn(|_command| async { Ok(Reply::OK) });
    /// let server = Server::builder(handler).tcp("127.0.0.1:0".parse().unwrap()).threads(2).start().await?;
    /// # server.shutdown().await;
    /// # Ok::<_, valkey_rdma_server::BindError>(())
    /// # }).unwrap();
    /// ```
    pub fn threads(mut self, count: usize) -> Self {
        self.threads = count;
        self
    }

    /// Requires this password, given with `AUTH` or `HELLO` as Valkey's clients do. Until then all commands but these,
    /// `QUIT` and `RESET` are answered with `-NOAUTH`, and the limits of [`Handler::trusts`] for clients that have not logged in
    /// hold. There is one user, `default`. The handler sees no command before the login.
    /// The login itself is a [basic command](Handler::basics): if the handler takes `AUTH` and `HELLO` away, no client can log in.
    pub fn password(mut self, password: impl Into<Bytes>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on all addresses and begins to serve.
    ///
    /// # Errors
    ///
    /// [`BindError`] if one of the addresses cannot be listened on, or a thread cannot be started. The listeners before it are
    /// closed again.
    pub async fn start(self) -> Result<Server, BindError> {
        if self.listen_on.is_empty() {
            return Err(BindError::NoListener);
        }
        let drain_timeout = self.limits.drain_timeout;
        let stop = CancellationToken::new();
        let (workers, threads) = Workers::start(self.threads)
            .map_err(|source| BindError::Threads { count: self.threads, source })?;
        let shared = Shared::new(Arc::new(self.handler), self.limits, self.password, stop.clone(), workers);
        let mut server = Server {
            registry: Registry(Arc::default()),
            last_id: 0,
            host: Box::new(Arc::new(shared)),
            stop,
            listeners: JoinSet::new(),
            threads,
            drain_timeout,
        };
        for address in self.listen_on {
            server.bind(address).await?;
        }
        Ok(server)
    }
}

impl fmt::Display for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.transport.scheme(), self.addr)
    }
}
