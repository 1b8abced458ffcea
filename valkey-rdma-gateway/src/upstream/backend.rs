//! [`Backend`]: the connections to one server, or the cluster in its place. [`Attached`]: a client's use of them.

mod newcomers;
mod replica;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use valkey_rdma_client::cluster::{ClusterStatus, NodeAddress};
use valkey_rdma_client::{Endpoint, Sentinels};
use valkey_rdma_transport::sync::lock;

use self::replica::leads_to_replica;
use crate::cluster::{Cluster, Lane, transport_of};
use crate::config::limits::Limits;
use crate::config::login::RouteLogin;
use crate::core::Core;
use crate::error::GatewayError;
use crate::observe::seldom::Seldom;
use crate::session::inbox::Inbox;
use crate::upstream::identity::{Identity, Key};
use crate::upstream::open_error::{OpenError, one_line};
use crate::upstream::pool::Pool;
use crate::upstream::probe::Probe;
use crate::upstream::server::Server;
use crate::upstream::shared::{Shared, SharedHandle};
use crate::upstream::standing::Complaint;

/// Shared connections by key, and private ones.
pub(crate) struct Backend {
    pub(crate) origin: Origin,
    /// Where the server is: host and port, or the service and its Sentinels. Clients of one address are those of one server.
    pub(crate) address: Arc<str>,
    /// Those of `upstreams` and `pinned_bytes` hold for as long as there is the backend.
    at_start: Limits,
    pub(crate) server: Arc<Server>,
    /// Serves the clients of a cluster. Only logins are checked by `server` then, which is one of the nodes.
    pub(crate) cluster: Option<Cluster>,
    pub(crate) pool: Arc<Pool>,
    core: Arc<Core>,
    shared: Mutex<HashMap<Key, Pair>>,
    probe: Probe,
    /// When a client without a login has come: see [`newcomers`].
    newcomers: Seldom,
}

/// What routes must have in common to use one backend.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// URLs.
    pub(crate) servers: Vec<String>,
    /// Whether these are nodes of a cluster.
    pub(crate) cluster: bool,
    pub(crate) user: Option<String>,
    pub(crate) password_file: Option<PathBuf>,
}

/// A client's use of a shared connection, or of the shared connections to a cluster.
pub(crate) enum Attached {
    Server(SharedHandle),
    Cluster(Lane),
}

impl Attached {
    /// Queues `commands` whole commands. Their replies go to `inbox`.
    pub(crate) fn submit(&self, inbox: &Arc<Inbox>, bytes: &[u8], commands: u32, now: Instant) {
        match self {
            Self::Server(shared) => shared.submit(inbox, bytes, commands, now),
            Self::Cluster(lane) => lane.submit(inbox, bytes, commands, now),
        }
    }

    /// Whether a client without a command in flight should ask the backend for another connection.
    pub(crate) fn should_leave(&self, now: Instant) -> bool {
        matches!(self, Self::Server(shared) if shared.should_leave(now))
    }

    pub(crate) fn is_for_scripts(&self) -> bool {
        match self {
            Self::Server(shared) => shared.key.is_for_scripts(),
            Self::Cluster(lane) => lane.is_for_scripts(),
        }
    }
}

/// The shared connection of a key, and another one for the time in which the server owes a reply there: a long script, or a command
/// that CLIENT PAUSE holds back, makes only those wait that have sent a command behind it.
struct Pair {
    current: Arc<Shared>,
    other: Option<Arc<Shared>>,
}

impl Pair {
    /// Forgets connections that have ended. `false` if none is left.
    fn remove_closed(&mut self) -> bool {
        self.other.take_if(|other| other.is_closed());
        if self.current.is_closed()
            && let Some(other) = self.other.take()
        {
            other.set_retired(false);
            self.current = other;
        }
        !self.current.is_closed()
    }

    /// Changes to the other connection, or a new one, if the current one is stalled and the other is not.
    fn avoid_stalled(&mut self, start: impl FnOnce() -> Option<Arc<Shared>>) {
        let now = Instant::now();
        if !self.current.is_stalled(now) {
            return;
        }
        let next = match &self.other {
            Some(other) => Some(other.clone()).filter(|other| !other.is_stalled(now)),
            None => start(),
        };
        if let Some(next) = next {
            next.set_retired(false);
            self.current.set_retired(true);
            self.other = Some(std::mem::replace(&mut self.current, next));
        }
    }
}

impl Backend {
    pub(crate) fn new(
        origin: Origin,
        login: Option<&RouteLogin>,
        limits: &Limits,
        upstreams: usize,
        core: Arc<Core>,
    ) -> Result<Self, GatewayError> {
        let at_start = limits.clone();
        let limits = Limits { upstreams, ..limits.clone() };
        let servers = &origin.servers;
        let server = Arc::new(Server::new(servers, origin.cluster, login, &limits, &core.services)?);
        let cluster = || Cluster::new(servers, login, core.clone(), &server);
        let cluster = origin.cluster.then(cluster).transpose()?;
        let address: Arc<str> = address(server.endpoint()).into();
        let pool = Arc::new(Pool::new(server.clone(), address.clone(), core.clone()));
        let (shared, probe, newcomers) = (Mutex::default(), Probe::default(), Seldom::default());
        core.of_servers.fetch_add(server.descriptors(), Ordering::Relaxed);
        Ok(Self { origin, address, at_start, server, cluster, pool, core, shared, probe, newcomers })
    }

    /// Takes the login for connections that are made from now on.
    pub(crate) fn set_login(&self, login: &RouteLogin) {
        if self.server.set_password(&login.password) {
            self.drop_idle_logins();
        }
        // The server may have learned a login that it refused.
        self.pool.forget_refusals();
        self.all_shared().iter().for_each(|shared| shared.retry());
        if let Some(cluster) = &self.cluster {
            cluster.set_login(login);
        }
    }

    /// Keeps no private connection that has logged in for clients without a login.
    fn drop_idle_logins(&self) {
        self.server.outdate_logins();
        self.pool.drop_default_login();
    }

    /// Attaches a client to the shared connection of `identity`, which may have to connect first.
    pub(crate) fn shared(&self, identity: &Identity) -> Attached {
        self.attach(identity.key(), identity)
    }

    /// Attaches a client to the connection of `identity` for scripts, or to that for all else.
    pub(crate) fn shared_for(&self, scripts: bool, identity: &Identity) -> Attached {
        self.attach(identity.key_for(scripts), identity)
    }

    /// Attaches to the connection that checks logins.
    pub(crate) fn checker(&self) -> Attached {
        self.attach(Key::Checker, &self.server.identity())
    }

    fn attach(&self, key: Key, identity: &Identity) -> Attached {
        if let Some(cluster) = self.cluster.as_ref().filter(|_| key != Key::Checker) {
            return Attached::Cluster(cluster.attach(key, identity));
        }
        let mut shared = lock(&self.shared);
        loop {
            shared.retain(|_, pair| pair.remove_closed());
            let start = || Shared::start(key.clone(), identity.clone(), self.pool.clone(), self.core.clone());
            let pair = shared.entry(key.clone()).or_insert_with(|| Pair { current: start(), other: None });
            pair.avoid_stalled(|| self.server.has_room().then(start));
            if let Some(attached) = pair.current.attach() {
                return Attached::Server(attached);
            }
        }
    }

    /// What of these limits needs a restart to hold here.
    pub(crate) fn unapplied(&self, limits: &Limits) -> Vec<String> {
        let pairs = [
            ("upstreams", self.at_start.upstreams as u64, limits.upstreams as u64),
            ("pinned_bytes", self.at_start.pinned_bytes, limits.pinned_bytes),
        ];
        let changed = pairs.into_iter().filter(|(_, before, now)| before != now);
        changed
            .map(|(name, before, now)| format!("limits.{name} {before} -> {now} needs a restart"))
            .collect()
    }

    /// What is known of the cluster, for each login. Empty for a server.
    pub(crate) fn clusters(&self) -> Vec<(Key, ClusterStatus)> {
        self.cluster.as_ref().map_or_else(Vec::new, Cluster::status)
    }

    /// Why the server, or each of the nodes that were given, cannot be reached. It is asked only if no connection to it is in use, or if it
    /// owes a reply for long, or an error has said that it is not ready.
    pub(crate) async fn unreachable(&self) -> Option<String> {
        let is_up =
            |(_, status): (_, ClusterStatus)| status.nodes.iter().any(|node| transport_of(node).is_some());
        let now = Instant::now();
        let doubts = self.server.standing.doubts(now);
        let is_doubtful = !doubts.is_empty() || self.all_shared().iter().any(|shared| shared.is_silent(now));
        if !is_doubtful && (self.server.is_used() || self.clusters().into_iter().any(is_up)) {
            return None;
        }
        let pool = self.pool.clone();
        let in_use = if doubts.contains(&Complaint::ReadOnly) { self.in_use(now) } else { Vec::new() };
        let attempt = || async move {
            if let Some(why) = leads_to_replica(in_use, &pool.server.standing).await {
                return Err(why);
            }
            match pool.probe().await {
                // There is no login in the URL, and the server requires one of its clients.
                Err(error) if error.is_about_login() && pool.server.endpoint().password().is_none() => Ok(()),
                other => other.map_err(|error: OpenError| one_line(&error.to_string())),
            }
        };
        let endpoint = self.server.endpoint();
        let answer = self.probe.ask(PROBE.min(endpoint.timeout()), attempt).await;
        answer.err().map(|why| match why.starts_with('-') {
            true => format!("{endpoint} answers {why}"),
            false => format!("cannot reach {endpoint}: {why}"),
        })
    }

    /// The shared connections, by key.
    pub(crate) fn all_shared(&self) -> Vec<Arc<Shared>> {
        let shared = lock(&self.shared);
        let pairs = shared.values().flat_map(|pair| [Some(&pair.current), pair.other.as_ref()]);
        let mut all: Vec<_> = pairs.flatten().filter(|shared| !shared.is_closed()).cloned().collect();
        all.sort_by(|one, other| one.key.cmp(&other.key));
        all
    }
}

/// Other Sentinels may have another service of the same name. Their order means nothing.
fn address(endpoint: &Endpoint) -> String {
    let of_server = host_and_port(endpoint);
    let Some(sentinels) = endpoint.sentinels().map(Sentinels::to_string) else { return of_server };
    let mut sentinels: Vec<_> = sentinels.split(',').collect();
    sentinels.sort_unstable();
    format!("{of_server} of {}", sentinels.join(","))
}

/// Of a service, the name and the port that its URL has.
pub(crate) fn host_and_port(endpoint: &Endpoint) -> String {
    NodeAddress::new(endpoint.host(), endpoint.port()).to_string()
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.all_shared().iter().for_each(|shared| shared.forget());
        self.core.of_servers.fetch_sub(self.server.descriptors(), Ordering::Relaxed);
    }
}

/// How long one who asks for the server waits for its answer.
const PROBE: Duration = Duration::from_secs(2);
