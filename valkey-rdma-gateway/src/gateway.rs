//! [`Gateway`]: listeners, their clients, and the connections to servers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use valkey_rdma_transport::sync::lock;

use crate::config::login::RouteLogin;
use crate::config::route::{Route, Share};
use crate::config::{Config, RouteConfig};
use crate::core::Core;
use crate::error::GatewayError;
use crate::front::accept::accept;
use crate::front::activation::Activation;
use crate::front::descriptors::{self, Budget};
use crate::front::in_use;
use crate::front::listen::{Bound, Listen};
use crate::front::running::Running;
use crate::observe::http;
use crate::session::inbox::End;
use crate::upstream::backend::{Backend, Origin};
use crate::upstream::backends::Backends;

/// A running gateway. Dropping it closes its listeners and clients at once.
///
/// ```no_run
/// use valkey_rdma_gateway::{Activation, Config, Gateway};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::read("gateway.toml".as_ref())?;
/// let gateway = Gateway::start(&config, &Activation::from_env()).await?;
/// tokio::signal::ctrl_c().await?;
/// gateway.shutdown().await;
/// # Ok(())
/// # }
/// ```
pub struct Gateway {
    core: Arc<Core>,
    listeners: Vec<Running>,
    accepting: JoinSet<()>,
    sessions: TaskTracker,
    http: Option<Http>,
    /// The servers, for the figures too.
    backends: Arc<Mutex<Backends>>,
}

/// The listener of `/metrics` and `/health`.
struct Http {
    /// As configured, and with its real port.
    configured: SocketAddr,
    address: SocketAddr,
    close: CancellationToken,
}

impl Http {
    fn is_at(&self, addr: SocketAddr) -> bool {
        addr == self.configured || addr == self.address
    }
}

impl Gateway {
    /// Listens on all addresses and begins to serve. Servers need not be up. The limit of open files bounds how many clients there may be:
    /// raise the soft limit before, as the program does.
    ///
    /// # Errors
    /// [`GatewayError`] if the configuration is invalid, or one of its addresses cannot be listened on.
    pub async fn start(config: &Config, activation: &Activation) -> Result<Self, GatewayError> {
        let mut gateway = Self {
            core: Arc::new(Core::new(config.limits.clone())),
            listeners: Vec::new(),
            accepting: JoinSet::new(),
            sessions: TaskTracker::new(),
            http: None,
            backends: Arc::default(),
        };
        gateway.take_over(config, activation).await?;
        Ok(gateway)
    }

    /// The addresses it listens on, with their real ports.
    pub fn listening(&self) -> Vec<Listen> {
        self.listeners.iter().map(|listener| listener.address.clone()).collect()
    }

    /// The addresses of passed sockets where it does not listen. Clients can connect there, and nothing answers them.
    pub fn unserved(&self, activation: &Activation) -> Vec<Listen> {
        let passed = activation.paths().map(Listen::Unix).chain(activation.addrs().map(Listen::Tcp));
        let served: Vec<_> = self.listening().iter().map(Listen::unencrypted).collect();
        passed.filter(|address| !served.contains(address)).collect()
    }

    /// Where `/metrics` and `/health` are served.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(|http| http.address)
    }

    /// Takes over another configuration. Clients keep their connections: new listeners open, listeners that are gone close, and
    /// a changed server or share mode holds for clients that connect from now on, and so do certificates, whose files are read again.
    /// Files with passwords are read again, and hold for connections to a server that are made from now on, of all clients. Limits hold at once, except those of connections to a
    /// server, which hold for servers that are new, and `client_buffer_bytes` and whether there are direct transfers, which hold for listeners that are new.
    ///
    /// # Errors
    /// Same errors as [`start`](Self::start). Nothing has changed then, and the metric `reload_failed` is 1.
    pub async fn reload(&mut self, config: &Config, activation: &Activation) -> Result<(), GatewayError> {
        let reloaded = self.take_over(config, activation).await;
        self.core.reload_failed.store(reloaded.is_err(), Ordering::Relaxed);
        reloaded
    }

    /// Reads a file and takes over its configuration, as [`reload`](Self::reload) does.
    ///
    /// # Errors
    /// What [`Config::read`] and [`reload`](Self::reload) return.
    pub async fn reload_file(&mut self, path: &Path, activation: &Activation) -> Result<(), GatewayError> {
        match Config::read(path) {
            Ok(config) => self.reload(&config, activation).await,
            Err(error) => {
                self.core.reload_failed.store(true, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    async fn take_over(&mut self, config: &Config, activation: &Activation) -> Result<(), GatewayError> {
        config.check()?;
        let listeners: Vec<_> = config.routes.iter().flat_map(|route| &route.listen).collect();
        let clusters = config.routes.iter().filter(|route| route.cluster).count();
        let budget = Budget::new(descriptors::limit(), &listeners, clusters, config.metrics.is_some());
        let upstreams = budget.upstreams(&config.limits, weight(config));
        let mut backends = lock(&self.backends).by_origin();
        // All that can fail comes first.
        let mut current = Vec::<Arc<Backend>>::new();
        // The routes of the listeners that stay, by their place in the list, and the new listeners.
        let (mut kept, mut opened) = (HashMap::new(), Vec::new());
        let mut logins: Vec<(Arc<Backend>, RouteLogin)> = Vec::new();
        for route in &config.routes {
            let login = route.login()?;
            let origin = origin(route);
            let backend = match backends.get(&origin) {
                Some(backend) => backend.clone(),
                None => Arc::new(Backend::new(
                    origin.clone(),
                    login.as_ref(),
                    &config.limits,
                    upstreams,
                    self.core.clone(),
                )?),
            };
            logins.extend(login.map(|login| (backend.clone(), login)));
            backends.insert(origin, backend.clone());
            if !current.iter().any(|known| Arc::ptr_eq(known, &backend)) {
                current.push(backend.clone());
            }
            let direct_prefix = route.direct_prefix();
            let tls = route.acceptor()?;
            let shared = Arc::new(Route { backend, share: route.share, tls, direct_prefix });
            for listen in &route.listen {
                // Two routes may listen on any port, with equal addresses.
                let mut known = self.listeners.iter().enumerate();
                let known = known.find(|(at, known)| known.configured == *listen && !kept.contains_key(at));
                let bound = match known {
                    Some((at, known)) => {
                        if route.share == Share::Never && known.offers_direct() {
                            let why = "share = \"never\" needs a restart here, because clients of this listener were offered direct transfers";
                            return Err(GatewayError::Config(format!("{listen}: {why}")));
                        }
                        kept.insert(at, shared.clone());
                        known.bind_again(activation, &config.limits).await
                    }
                    None => Some(
                        Bound::bind(listen, activation, &config.limits, shared.direct_prefix.clone())
                            .await
                            .map_err(|error| self.explain(error, listen, activation))?,
                    ),
                };
                opened.extend(bound.map(|bound| (listen.clone(), shared.clone(), bound)));
            }
        }
        let http = match config.metrics {
            Some(addr) if !self.http.as_ref().is_some_and(|http| http.is_at(addr)) => {
                let failed = |source| GatewayError::Bind { address: addr.to_string(), source };
                let bound = TcpListener::bind(addr).await.map_err(failed);
                let bound = bound.map_err(|error| self.explain(error, &Listen::Tcp(addr), activation))?;
                Some((addr, bound))
            }
            _ => None,
        };

        self.core.set_limits(config.limits.clone(), budget);
        for backend in &current {
            for change in backend.unapplied(&config.limits) {
                warn!(server = %backend.server.endpoint(), "{change}");
            }
        }
        logins.iter().for_each(|(backend, login)| backend.set_login(login));
        drop(backends);
        self.replace_backends(current);
        for (at, listener) in std::mem::take(&mut self.listeners).into_iter().enumerate() {
            if let Some(route) = kept.remove(&at) {
                for change in listener.unapplied(&config.limits, route.direct_prefix.as_deref()) {
                    warn!(address = %listener.address, "{change}");
                }
                listener.route.send_replace(route);
                self.listeners.push(listener);
            } else {
                info!(address = %listener.address, "not listening any more");
                listener.close.cancel();
            }
        }
        for (configured, route, bound) in opened {
            self.listen(configured, route, bound);
        }
        self.retire_former();
        // Servers that no client uses are gone now.
        let clients = self.core.affordable_clients();
        if let Some(shortage) = budget.shortage(&config.limits, clients, upstreams) {
            warn!("{shortage}");
        }
        if config.metrics.is_none() || http.is_some() {
            self.http.take().into_iter().for_each(|http| http.close.cancel());
        }
        if let Some((configured, listener)) = http {
            self.serve_http(configured, listener);
        }
        config.doubts().iter().for_each(|doubt| warn!("{doubt}"));
        Ok(())
    }

    /// Waits until it listens nowhere, because every device with a listener was removed.
    pub async fn wait(&mut self) {
        while self.accepting.join_next().await.is_some() {}
    }

    /// Stops: closes the listeners, lets clients have the replies to the commands that were passed on, and closes them, all within
    /// `limits.drain_ms`.
    pub async fn shutdown(mut self) {
        self.core.draining.store(true, Ordering::Relaxed);
        self.listeners.iter().for_each(|listener| listener.close.cancel());
        self.wait().await;
        self.core.clients.all().iter().for_each(|client| client.inbox.stop());
        self.sessions.close();
        if timeout(self.core.limits().drain(), self.sessions.wait()).await.is_err() {
            warn!(clients = self.core.clients.len(), "clients did not end in time and are closed");
            self.core.clients.all().iter().for_each(|client| client.inbox.end(End::Stopped));
        }
    }

    /// The error of an address, with the reason if this process uses the port itself.
    fn explain(&self, error: GatewayError, listen: &Listen, activation: &Activation) -> GatewayError {
        let tcp = |address: Listen| match address.unencrypted() {
            Listen::Tcp(addr) => Some(addr),
            _ => None,
        };
        let Some(wanted) = tcp(listen.clone()) else { return error };
        let passed: Vec<_> = activation.addrs().collect();
        let own: Vec<_> = self.listening().into_iter().filter_map(tcp).chain(self.metrics_addr()).collect();
        in_use::explain(error, wanted, &passed, &own)
    }

    fn listen(&mut self, configured: Listen, route: Arc<Route>, bound: Bound) {
        let (address, file) = (bound.address(), bound.file());
        info!(%address, server = %route.backend.server.endpoint(), "listening");
        let direct_prefix = route.direct_prefix.clone();
        let is_former = |listener: &Running| listener.file.is_some() && listener.configured == configured;
        let (route, close) = match self.listeners.iter().position(is_former) {
            // Its socket stays open: if the file was renamed, clients still come there.
            Some(at) => {
                let former = self.listeners.remove(at);
                (former.route, former.close)
            }
            None => (watch::Sender::new(route), CancellationToken::new()),
        };
        let (core, sessions) = (self.core.clone(), self.sessions.clone());
        self.accepting.spawn(accept(bound, core, route.subscribe(), sessions, close.clone()));
        let client_buffer_bytes = self.core.limits().client_buffer_bytes;
        self.listeners.push(Running {
            configured,
            address,
            file,
            client_buffer_bytes,
            direct_prefix,
            route,
            close,
        });
    }

    /// Clients of backends that are not among these keep theirs until they end.
    fn replace_backends(&self, current: Vec<Arc<Backend>>) {
        let mut backends = lock(&self.backends);
        backends.replace(current);
        for backend in backends.former() {
            let (server, clients) = (backend.server.endpoint(), self.core.clients.of(&backend.address).len());
            if clients > 0 {
                warn!(%server, clients, "clients stay with a server that is not in the configuration any more");
            }
        }
    }

    /// Closes clients of backends that have left, when their time is over.
    fn retire_former(&self) {
        let Some(wait) = self.core.limits().former() else { return };
        for (backend, since) in lock(&self.backends).departures() {
            let Some(due) = since.checked_add(wait) else { continue };
            let backends = Arc::downgrade(&self.backends);
            tokio::spawn(retire(backend.clone(), *since, due, self.core.clone(), backends));
        }
    }

    fn serve_http(&mut self, configured: SocketAddr, listener: TcpListener) {
        let Ok(address) = listener.local_addr() else { return };
        let close = CancellationToken::new();
        let serving = http::serve(listener, self.core.clone(), self.backends.clone());
        let closed = close.clone();
        tokio::spawn(async move { closed.run_until_cancelled(serving).await });
        self.http = Some(Http { configured, address, close });
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.core.clients.all().iter().for_each(|client| client.inbox.end(End::Stopped));
        self.http.take().into_iter().for_each(|http| http.close.cancel());
    }
}

/// Closes the clients of a backend at `due`, unless it has come back.
async fn retire(
    backend: Weak<Backend>,
    since: Instant,
    due: Instant,
    core: Arc<Core>,
    backends: Weak<Mutex<Backends>>,
) {
    let clients = || {
        let departed = backends.upgrade().and_then(|backends| lock(&backends).departed(&backend, since));
        departed.map_or_else(Vec::new, |backend| core.clients.of(&backend.address))
    };
    sleep_until(due).await;
    // The limit may have changed meanwhile.
    if core.limits().former().is_none_or(|wait| since.elapsed() < wait) {
        return;
    }
    clients().iter().for_each(|client| client.inbox.stop());
    sleep(core.limits().drain()).await;
    clients().iter().for_each(|client| client.inbox.end(End::Stopped));
}

/// What routes must have in common to use one backend.
fn origin(route: &RouteConfig) -> Origin {
    Origin {
        servers: route.servers.clone(),
        cluster: route.cluster,
        user: route.user.clone(),
        password_file: route.password_file.clone(),
    }
}

/// Descriptors that one connection to each server takes.
fn weight(config: &Config) -> usize {
    let servers: HashMap<_, _> = config.routes.iter().map(|route| (origin(route), route)).collect();
    let first = |route: &RouteConfig| route.servers.first().and_then(|url| url.parse().ok());
    servers.into_values().filter_map(first).map(|server| descriptors::of_connection(&server)).sum()
}
