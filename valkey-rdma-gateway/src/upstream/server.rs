//! [`Server`]: connections to one server: connect, log in, within the limits.

mod exchange;
mod ready;
mod returns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tracing::info;
use valkey_rdma_client::{ByteStream, Config, Dialer, Endpoint, Transport};
use valkey_rdma_resp::{Protocol, words};
use valkey_rdma_transport::sync::lock;
use valkey_rdma_transport::{DeviceKind, TransportError};

use self::exchange::exchange;
use self::returns::{Returns, id};
use crate::command::hello;
use crate::command::words::encode;
use crate::config::limits::Limits;
use crate::config::login::{RouteLogin, endpoints};
use crate::error::{GatewayError, shown_url};
use crate::front::descriptors;
use crate::observe::metrics::Metrics;
use crate::observe::metrics::Services;
use crate::upstream::identity::{Identity, Key, Login};
use crate::upstream::open_error::OpenError;
use crate::upstream::standing::Standing;

/// A server, and how many connections to it there may be.
pub(crate) struct Server {
    /// Of one server, or of the nodes of a cluster that were given: the first that answers is used.
    dialers: Vec<Dialer>,
    /// Of the endpoint's user. It may be newer than the password in the endpoint.
    password: Mutex<Option<Arc<str>>>,
    permits: Arc<Semaphore>,
    permitted: usize,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) standing: Arc<Standing>,
    /// Changes when a connection was made.
    pub(crate) reached: watch::Sender<()>,
    /// Shared with each connection that has a user.
    users: Arc<()>,
    /// How often the login of clients that do not log in has changed.
    logins: AtomicU64,
}

/// A connection to a server that has logged in.
pub(crate) struct Upstream {
    pub(crate) stream: ByteStream,
    /// The server's number of this connection; 0 if it did not say.
    pub(crate) id: u64,
    /// See [`Server::has_current_login`].
    login: u64,
    _permit: OwnedSemaphorePermit,
    /// Whether it has a user, who would notice its end: see [`Server::is_used`].
    user: Option<Arc<()>>,
    pub(crate) standing: Arc<Standing>,
}

impl Server {
    pub(crate) fn new(
        urls: &[String],
        is_cluster: bool,
        login: Option<&RouteLogin>,
        limits: &Limits,
        services: &Services,
    ) -> Result<Self, GatewayError> {
        let endpoints = endpoints(urls, login)?;
        let dialers = endpoints.into_iter().zip(urls).map(|(endpoint, url)| {
            Dialer::following(endpoint, &Config::default())
                .map_err(|source| GatewayError::Server { url: shown_url(url), source })
        });
        let dialers = dialers.collect::<Result<Vec<_>, _>>()?;
        let missing = || GatewayError::Config("a route needs the URL of a server".to_owned());
        let endpoint = dialers.first().ok_or_else(missing)?.endpoint();
        if endpoint.transport() == Transport::Emulated && !DeviceKind::Emulated.is_built() {
            let missing = TransportError::NotBuilt { device: DeviceKind::Emulated };
            return Err(GatewayError::Config(format!("{endpoint}: {missing}")));
        }
        let mut permitted = limits.upstreams.min(Semaphore::MAX_PERMITS);
        if matches!(endpoint.transport(), Transport::Rdma | Transport::Emulated) {
            let fit = limits.pinned_bytes / endpoint.transport_config().pinned_bytes().max(1);
            permitted = permitted.min(usize::try_from(fit).unwrap_or(usize::MAX));
        }
        if permitted < 2 {
            return Err(GatewayError::Config(format!(
                "limits.pinned_bytes = {}: a connection pins {} bytes, and two are needed",
                limits.pinned_bytes,
                endpoint.transport_config().pinned_bytes()
            )));
        }
        let metrics = services.metrics(label(endpoint));
        let standing = Arc::new(Standing::new(endpoint.to_string(), is_cluster));
        let password = Mutex::new(endpoint.password().map(Arc::from));
        let permits = Arc::new(Semaphore::new(permitted));
        Ok(Self {
            permits,
            permitted,
            metrics,
            standing,
            reached: watch::Sender::default(),
            users: Arc::default(),
            dialers,
            password,
            logins: AtomicU64::new(0),
        })
    }

    /// Takes a password for the same user, and returns whether it is another one. Connections that are logged in stay.
    pub(crate) fn set_password(&self, password: &str) -> bool {
        let before = lock(&self.password).replace(password.into());
        before.as_deref() != Some(password)
    }

    /// Connections that have logged in for clients without a login may have rights that new ones do not get.
    pub(crate) fn outdate_logins(&self) {
        self.logins.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the login of clients that do not log in has not changed since this connection logged in.
    pub(crate) fn has_current_login(&self, upstream: &Upstream) -> bool {
        upstream.login == self.logins.load(Ordering::Relaxed)
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        self.dialers[0].endpoint()
    }

    /// The user of clients that have not logged in.
    pub(crate) fn user(&self) -> &str {
        self.endpoint().user().unwrap_or("default")
    }

    /// How metrics name it.
    pub(crate) fn label(&self) -> String {
        label(self.endpoint())
    }

    /// Whether these are several nodes, of which one is enough.
    pub(crate) fn has_several(&self) -> bool {
        self.dialers.len() > 1
    }

    /// The identity of clients that have not logged in.
    pub(crate) fn identity(&self) -> Identity {
        let database = self.endpoint().database();
        Identity { login: None, database, protocol: Protocol::Resp2 }
    }

    /// Whether connections of this identity log in with the login in the URL, which is not the clients' affair.
    pub(crate) fn has_own_login(&self, identity: &Identity) -> bool {
        identity.login.is_none() && self.endpoint().password().is_some()
    }

    /// Connections that there are, and that there may be.
    pub(crate) fn connections(&self) -> (usize, usize) {
        (self.permitted - self.permits.available_permits(), self.permitted)
    }

    /// File descriptors that its connections may need.
    pub(crate) fn descriptors(&self) -> usize {
        self.permitted.saturating_mul(descriptors::of_connection(self.endpoint()))
    }

    /// Whether a connection has a user. Nothing reads the others, so that their end is not noticed.
    pub(crate) fn is_used(&self) -> bool {
        Arc::strong_count(&self.users) > 1
    }

    /// Notes whether a connection has a user.
    pub(crate) fn set_used(&self, upstream: &mut Upstream, is_used: bool) {
        upstream.user = is_used.then(|| self.users.clone());
    }

    /// Whether there may be another private connection: some are left for shared ones.
    pub(crate) fn has_room(&self) -> bool {
        self.has_room_without(0)
    }

    /// The same, if this many of the connections ended.
    pub(crate) fn has_room_without(&self, unused: usize) -> bool {
        self.permits.available_permits() + unused > reserved(self.permitted)
    }

    /// The right to make one more connection.
    pub(crate) fn permit(&self) -> Result<OwnedSemaphorePermit, OpenError> {
        self.permits.clone().try_acquire_owned().map_err(|_| self.no_room())
    }

    /// The error if no connection may be made.
    pub(crate) fn no_room(&self) -> OpenError {
        let text = format!("all {} connections to {} are in use", self.permitted, self.endpoint());
        OpenError::Settings(format!(
            "{text}; raise limits.upstreams, or what lowers it: limits.pinned_bytes or LimitNOFILE="
        ))
    }

    /// Connects and logs in by right of this permit, and counts that. Connections that check logins do not log in.
    pub(crate) async fn open(
        &self,
        permit: OwnedSemaphorePermit,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<Upstream, OpenError> {
        let connected = self.connect(permit, key, identity, name, false).await;
        let mut opened = connected.map(|(upstream, _)| upstream);
        match &mut opened {
            Ok(upstream) => {
                self.set_used(upstream, true);
                self.metrics.connects.add(1);
                self.reached.send_replace(());
                info!(connection = %upstream.stream.info(), %key, "connected");
            }
            Err(error) => error.count(&self.metrics),
        }
        opened
    }

    /// Connects, logs in and asks whether the server is there. That is not counted. Also returns why it is there and not ready, if so.
    pub(crate) async fn probe(
        &self,
        permit: OwnedSemaphorePermit,
        key: &Key,
        identity: &Identity,
    ) -> Result<(Upstream, Option<OpenError>), OpenError> {
        self.connect(permit, key, identity, None, true).await
    }

    /// Connects to the first that can be reached, one after the other, and logs in. With `asks`, it also has to answer a question. One
    /// that refuses is there.
    async fn connect(
        &self,
        permit: OwnedSemaphorePermit,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
        asks: bool,
    ) -> Result<(Upstream, Option<OpenError>), OpenError> {
        let login = self.logins.load(Ordering::Relaxed);
        let mut reached = self.reach(&self.dialers[0], key, identity, name, asks).await;
        for dialer in &self.dialers[1..] {
            let Err(OpenError::Unreachable(_)) = reached else { break };
            reached = self.reach(dialer, key, identity, name, asks).await;
        }
        let (stream, id, unready) = reached?;
        let standing = self.standing.clone();
        Ok((Upstream { stream, id, login, _permit: permit, user: None, standing }, unready))
    }

    async fn reach(
        &self,
        dialer: &Dialer,
        key: &Key,
        identity: &Identity,
        name: Option<&str>,
        asks: bool,
    ) -> Result<(ByteStream, u64, Option<OpenError>), OpenError> {
        let dialed = dialer.dial().await;
        let mut stream = dialed.map_err(|error| OpenError::Unreachable(format!("{error:#}")))?;
        let id = if *key == Key::Checker {
            // It does not log in, so a question shows that its replies are in step. A connection without a name is one client's own.
            if name.is_some() {
                ready::ping(dialer.endpoint(), &mut stream).await?;
            }
            0
        } else {
            self.log_in(dialer.endpoint(), &mut stream, identity, name).await?
        };
        let unready = if asks { self.unready(dialer.endpoint(), &mut stream).await? } else { None };
        match unready {
            // Another node may be ready.
            Some(unready) if self.has_several() => {
                Err(OpenError::Unreachable(format!("{}: {unready}", dialer.endpoint())))
            }
            unready => Ok((stream, id, unready)),
        }
    }

    /// Notes that a connection will be reset. Without a password, that logs it in.
    pub(crate) fn note_reset(&self, upstream: &mut Upstream) {
        upstream.login = self.logins.load(Ordering::Relaxed);
    }

    /// Logs in again on a connection after `RESET`.
    pub(crate) async fn log_in_again(
        &self,
        upstream: &mut Upstream,
        identity: &Identity,
    ) -> Result<(), OpenError> {
        self.log_in(self.endpoint(), &mut upstream.stream, identity, None).await.map(|_| ())
    }

    /// Logs in, chooses protocol and database, and sets the name, in one exchange. With a name, also waits until the server has read its
    /// data: without one, its errors are for the one who asked. Returns the server's number of the connection, or 0.
    async fn log_in(
        &self,
        endpoint: &Endpoint,
        stream: &mut ByteStream,
        identity: &Identity,
        name: Option<&str>,
    ) -> Result<u64, OpenError> {
        let is_located = endpoint.sentinels().is_some();
        // What the Sentinels report may be old. The reply to HELLO says the role too, and every user may run HELLO.
        let asks_role = is_located && identity.protocol == Protocol::Resp2;
        let (commands, returns) = self.login_commands(identity, name, asks_role);
        let limit = self.endpoint().timeout();
        let exchange = exchange(stream, &commands, returns.len());
        let replies = match timeout(limit, exchange).await {
            Ok(Ok(replies)) => replies,
            Ok(Err(error)) => return Err(OpenError::Unreachable(format!("{endpoint}: {error:#}"))),
            Err(_) => {
                let text = format!("{endpoint} did not answer the login within {limit:?}");
                return Err(OpenError::Unreachable(text));
            }
        };
        let is_closed = replies.len() < returns.len();
        for (returns, reply) in returns.iter().zip(&replies) {
            let is_fatal = returns.is_required() || is_closed || reply.starts_with(b"-NOAUTH");
            if reply.starts_with(b"-") && is_fatal {
                let error = OpenError::of_login(reply);
                let is_choice = identity.database != endpoint.database() && *returns == Returns::Selected;
                // What closes the connection is not about the database.
                return Err(if is_choice && !is_closed { error.of_choice() } else { error });
            }
            returns.check(reply).map_err(|text| OpenError::Unreachable(format!("{endpoint}: {text}")))?;
            let role = match returns {
                Returns::Role => role(reply),
                Returns::Hello => hello::role(reply),
                _ => None,
            };
            if let Some(role) = role.filter(|role| is_located && role != "master") {
                let peer = stream.info().peer.map(|peer| format!(" {peer}")).unwrap_or_default();
                let text = format!("{endpoint}: the Sentinels report{peer}, whose role is {role}");
                return Err(OpenError::Unreachable(text));
            }
        }
        let pong =
            returns.iter().position(|returns| *returns == Returns::Pong).and_then(|at| replies.get(at));
        if let (Some(pong), Some(_)) = (pong, name) {
            self.until_loaded(endpoint, stream, pong.clone()).await?;
        }
        stream.confirm_primary();
        Ok(replies.last().and_then(|reply| id(reply)).unwrap_or(0))
    }

    /// The commands of a login, and what each returns.
    fn login_commands(
        &self,
        identity: &Identity,
        name: Option<&str>,
        asks_role: bool,
    ) -> (Vec<u8>, Vec<Returns>) {
        let (mut commands, mut returns) = (Vec::new(), Vec::new());
        let mut say = |words: &[&[u8]], reply: Returns| {
            commands.extend_from_slice(&encode(words));
            returns.push(reply);
        };
        let mut require = |words: &[&[u8]]| {
            let is_hello = words.first() == Some(&&b"HELLO"[..]);
            say(words, if is_hello { Returns::Hello } else { Returns::Required });
        };
        let database = identity.database.to_string();
        let password = lock(&self.password).clone();
        match (identity.protocol, self.credentials(identity.login.as_deref(), password.as_deref())) {
            (Protocol::Resp3, (_, None)) => require(&[b"HELLO", b"3"]),
            (Protocol::Resp3, (user, Some(password))) => {
                require(&[b"HELLO", b"3", b"AUTH", user.unwrap_or(b"default"), password]);
            }
            (Protocol::Resp2, (_, None)) => {}
            // Servers before 6.0 have no users.
            (Protocol::Resp2, (None, Some(password))) => require(&[b"AUTH", password]),
            (Protocol::Resp2, (Some(user), Some(password))) => require(&[b"AUTH", user, password]),
        }
        if identity.database != 0 {
            say(&[b"SELECT", database.as_bytes()], Returns::Selected);
        }
        // Old servers or strict users may refuse the rest.
        say(&[b"CLIENT", b"SETNAME", name.unwrap_or_default().as_bytes()], Returns::Name);
        say(&[b"PING"], Returns::Pong);
        if asks_role {
            say(&[b"ROLE"], Returns::Role);
        }
        // At the end: nothing else returns an integer, so this reply shows that the others were in step.
        say(&[b"CLIENT", b"ID"], Returns::Id);
        (commands, returns)
    }

    /// User and password of a login, or of the server's user.
    fn credentials<'a>(
        &'a self,
        login: Option<&'a Login>,
        password: Option<&'a str>,
    ) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        match login {
            Some(login) => (Some(&login.user), Some(&login.password)),
            None => (self.endpoint().user().map(str::as_bytes), password.map(str::as_bytes)),
        }
    }
}

/// How metrics name a server: as it is shown, without its login, because a login may change.
pub(crate) fn label(server: &Endpoint) -> String {
    let shown = server.to_string();
    match (shown.split_once("://"), shown.split_once(":***@")) {
        (Some((scheme, _)), Some((_, rest))) if server.password().is_some() => format!("{scheme}://{rest}"),
        _ => shown,
    }
}

/// How many of the connections that there may be are kept free for shared ones: one in eight, at least 1 and at most 16. Of three or
/// fewer none is, because no private connection would be left.
fn reserved(permitted: usize) -> usize {
    if permitted < 4 { 0 } else { (permitted / 8).clamp(1, 16) }
}

/// The role in a reply to ROLE. A user may not be allowed to ask: then Sentinel is trusted.
fn role(reply: &[u8]) -> Option<String> {
    words(reply).next().map(|role| role.escape_ascii().to_string())
}
