//! [`Server`]: listeners of any kind in front of one handler.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use valkey_rdma_transport::{Config as TransportConfig, DeviceKind};

use crate::ending::Refused;
use crate::error::BindError;
use crate::host::{Address, Host};
use crate::listener::report;
use crate::monitor::Monitor;
use crate::registry::{Listening, Registry};
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
#[derive(Debug)]
pub struct Server {
    registry: Registry,
    last_id: u64,
    host: Box<dyn Host>,
    stop: CancellationToken,
    /// One task per listener, which ends after the connections accepted there.
    listeners: JoinSet<()>,
    threads: Threads,
    /// Its sender is dropped after the last connection.
    ended: oneshot::Receiver<()>,
    drain_timeout: Duration,
}

impl Server {
    /// A server that listens nowhere yet.
    pub(crate) fn new(
        host: Box<dyn Host>,
        stop: CancellationToken,
        threads: Threads,
        ended: oneshot::Receiver<()>,
        drain_timeout: Duration,
    ) -> Self {
        Self {
            registry: Registry::default(),
            last_id: 0,
            host,
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
        drop(self.host);
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
        drop((self.listeners, self.host));
        // Never sent to.
        if timeout(self.drain_timeout, self.ended).await.is_err() {
            warn!(timeout = ?self.drain_timeout, "a connection was not cut in time: the handler keeps it");
        }
    }

    /// Reads the server's counters from elsewhere, for example while [`run_until`](Self::run_until) has the server.
    pub fn monitor(&self) -> Monitor {
        self.host.monitor().clone()
    }

    /// Counts of refused and closed connections since the start, by cause.
    pub fn refused(&self) -> Refused {
        self.host.monitor().refused()
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

    /// Listens on one more address, given as a URL: see [`Builder::listen`](crate::Builder::listen).
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

    /// Listens on addresses. None is served before all are bound: a client that is answered at one can rely on the others.
    pub(crate) async fn bind_all(&mut self, addresses: Vec<Address>) -> Result<(), BindError> {
        let mut bound = Vec::with_capacity(addresses.len());
        // Dropped before `bound`, so that the end of these listeners is expected.
        let stop = self.stop.clone().drop_guard();
        for address in addresses {
            bound.push(self.prepare(address).await?.1);
        }
        stop.disarm();
        bound.into_iter().for_each(|serving| drop(self.listeners.spawn(serving)));
        Ok(())
    }

    async fn bind(&mut self, address: Address) -> Result<Listening, BindError> {
        let (listening, serving) = self.prepare(address).await?;
        self.listeners.spawn(serving);
        Ok(listening)
    }

    /// Binds an address. Returns where it listens, and the future that serves it.
    async fn prepare(
        &mut self,
        address: Address,
    ) -> Result<(Listening, Pin<Box<dyn Future<Output = ()> + Send>>), BindError> {
        let close = self.stop.child_token();
        let (listening, serving) = self.host.bind(address, close.clone()).await?;
        self.last_id += 1;
        let registration = self.registry.add(self.last_id, listening, close);
        Ok((listening, serving(registration)))
    }
}

/// Least time for connections and threads to end, after the connections were cut.
const LEAST_END: Duration = Duration::from_secs(1);
