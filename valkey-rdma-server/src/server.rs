//! [`Server`]: listeners of any kind in front of one handler.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use valkey_rdma_transport::tls::TlsError;
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind};

use crate::accept::{Shared, accept_until_closed, report};
use crate::address::Address;
use crate::handler::Handler;
use crate::listener::{BindError, Listener, Listening};
use crate::monitor::{Monitor, Refused};
use crate::registry::{Registration, Registry};
use crate::workers::Threads;

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
pub struct Server {
    registry: Registry,
    accept: Accept,
    monitor: Monitor,
    direct: bool,
    stop: CancellationToken,
    /// One task per listener, which ends after the connections accepted there.
    listeners: JoinSet<()>,
    threads: Threads,
    /// Its sender is dropped after the last connection.
    ended: oneshot::Receiver<()>,
    drain_timeout: Duration,
}

/// Starts the task of a listener. Only this knows the handler's type.
type Accept = Box<dyn Fn(Listener, Registration, &mut JoinSet<()>) + Send + Sync>;

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listening", &self.listening()).finish_non_exhaustive()
    }
}

impl Server {
    /// A server that listens nowhere yet.
    pub(crate) fn new<H: Handler>(
        shared: Arc<Shared<H>>,
        direct: bool,
        stop: CancellationToken,
        threads: Threads,
        ended: oneshot::Receiver<()>,
        drain_timeout: Duration,
    ) -> Self {
        let monitor = shared.monitor.clone();
        let accept: Accept = Box::new(move |listener, registration, listeners| {
            listeners.spawn(accept_until_closed(listener, shared.clone(), registration));
        });
        Self {
            registry: Registry::default(),
            accept,
            monitor,
            direct,
            stop,
            listeners: JoinSet::new(),
            threads,
            ended,
            drain_timeout,
        }
    }

    /// The addresses that the server listens on, in the order asked for.
    pub fn listening(&self) -> Vec<Listening> {
        self.registry.listening()
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
        self.registry.empty().await;
    }

    /// Stops accepting, and closes every connection after it has run the commands that have arrived whole and delivered
    /// their replies. Handlers are notified through [`Peer::stopping`](crate::Peer::stopping). A TCP client has 1 s to
    /// close its side too, so that no reset overtakes its last replies. Connections that take longer than
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout) are cut.
    ///
    /// When this returns, the handler runs no command, its sessions are dropped, and the server's
    /// [threads](crate::Builder::threads) have ended. All of this takes at most `drain_timeout` and 1 s: a call of the handler that
    /// blocks its thread longer than that still runs afterwards, and a task that the handler started may still keep a thread.
    ///
    /// **Cancel safety**: dropping the future cuts the connections that are left.
    pub async fn shutdown(mut self) {
        self.stop.cancel();
        let drained = async {
            while let Some(ended) = self.listeners.join_next().await {
                report(ended);
            }
        };
        let begun = Instant::now();
        if timeout(self.drain_timeout, drained).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "connections did not end in time and are cut");
            self.listeners.shutdown().await;
        }
        drop(self.accept);
        let ended = async {
            // Never sent to. The threads end after the last connection.
            let _ = self.ended.await;
            self.threads.join().await;
        };
        let left = self.drain_timeout.saturating_sub(begun.elapsed()).max(LEAST_END);
        if timeout(left, ended).await.is_err() {
            warn!(timeout = ?left, "connections or threads did not end in time: the handler keeps them");
        }
    }

    /// Closes all connections at once, as dropping the server does, and waits until the handler runs no command any more, but no
    /// longer than [`Limits::drain_timeout`](crate::Limits::drain_timeout): for tests that kill a server.
    ///
    /// **Cancel safety**: dropping the future only ends the wait.
    pub async fn cut(self) {
        drop((self.listeners, self.accept));
        // Never sent to.
        if timeout(self.drain_timeout, self.ended).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "a connection was not cut in time: the handler keeps it");
        }
    }

    /// Reads the server's counters from elsewhere, for example while [`run_until`](Self::run_until) has the server.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Counts of refused and closed connections since the start, by cause.
    pub fn refused(&self) -> Refused {
        self.monitor.refused()
    }

    /// Serves until `stop` completes, then [shuts down](Self::shutdown) and returns what `stop` returned. `None` if the server
    /// listens nowhere before that: see [`wait`](Self::wait). As after `shutdown`, the handler then runs no command, and its sessions
    /// are dropped.
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

    /// Listens on one more address, given as a URL or otherwise: see [`Builder::listen`](crate::Builder::listen).
    ///
    /// # Errors
    ///
    /// [`BindError`] if the URL is wrong or it cannot listen there; the other listeners go on.
    pub async fn listen(&mut self, address: impl Into<Address>) -> Result<Listening, BindError> {
        let listener = address.into().bind(self.direct).await?;
        Ok(self.serve(listener))
    }

    /// Listens on one more address over TCP. Port 0 takes a free port.
    ///
    /// # Errors
    ///
    /// [`BindError`] if it cannot listen there; the other listeners go on.
    pub async fn listen_tcp(&mut self, addr: SocketAddr) -> Result<Listening, BindError> {
        self.listen(Address::tcp(addr)).await
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
        self.listen(Address::rdma(device, addr, config)).await
    }

    /// Reads the certificates and keys of all encrypted listeners again, for the connections that follow; those that exist go on. A program
    /// calls it at SIGHUP, for example. It blocks the thread for as long as the file system takes.
    ///
    /// # Errors
    ///
    /// The first [`TlsError`], which names the file. A listener whose files cannot be used keeps the certificates that it has; the others
    /// use the new ones.
    pub fn reload_tls(&self) -> Result<(), TlsError> {
        self.registry.reload_tls()
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

    /// Listens on addresses. None is served before all are bound: a client that is answered at one can rely on the others.
    pub(crate) async fn bind_all(&mut self, addresses: Vec<Address>) -> Result<(), BindError> {
        let mut bound = Vec::with_capacity(addresses.len());
        for address in addresses {
            bound.push(address.bind(self.direct).await?);
        }
        for listener in bound {
            self.serve(listener);
        }
        Ok(())
    }

    /// Accepts what comes to a listener, until it is closed or the server stops.
    fn serve(&mut self, listener: Listener) -> Listening {
        let listening = listener.listening();
        let registration = self.registry.add(listening, self.stop.child_token(), listener.tls().cloned());
        (self.accept)(listener, registration, &mut self.listeners);
        listening
    }
}

/// Least time for connections and threads to end, after the connections were cut.
const LEAST_END: Duration = Duration::from_secs(1);
