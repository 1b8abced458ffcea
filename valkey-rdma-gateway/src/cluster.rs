//! [`Cluster`]: a Valkey Cluster behind a route, reached by the client library.
//!
//! Clients with the same user, password and protocol version share a [`Member`]: one `Client`, which has one connection to each
//! node. It finds the nodes, follows redirections and joins replies. A [`Lane`] keeps the order of one local client.

mod answers;
mod failure;
mod info;
mod joined;
mod lane;
mod scan;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use valkey_rdma_client::cluster::{self, ClusterStatus, NodeStatus, Route};
use valkey_rdma_client::{
    Client, ClusterError, Command, Config, ConnectionEvent, ConnectionEvents, Endpoint, Error, IntoEndpoint,
    State, Transport, Value,
};
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::sync::lock;

pub(crate) use self::answers::NO_CLUSTER;
pub(crate) use self::failure::{failure, is_about_nodes, is_refusal, refusal};
pub(crate) use self::lane::Lane;
use self::scan::Scans;
use crate::config::login::{RouteLogin, endpoints};
use crate::core::Core;
use crate::error::GatewayError;
use crate::observe::metrics::Metrics;
use crate::upstream::backoff;
use crate::upstream::identity::{Identity, Key};
use crate::upstream::open_error::OpenError;
use crate::upstream::server::Server;
use crate::upstream::standing::Standing;

/// A cluster, and the clients of the library by the login they use.
pub(crate) struct Cluster {
    seeds: Mutex<Vec<Endpoint>>,
    members: Arc<Members>,
    core: Arc<Core>,
    metrics: Arc<Metrics>,
    standing: Arc<Standing>,
    lanes: AtomicU64,
}

type Members = Mutex<HashMap<Key, Arc<Member>>>;

/// A client of the library, for all local clients with one login and protocol version.
pub(crate) struct Member {
    key: Key,
    protocol: Protocol,
    database: u32,
    /// The seeds with the login; `None` if the library cannot send this login.
    seeds: Mutex<Option<Vec<Endpoint>>>,
    /// The user that its clients have.
    user: String,
    core: Arc<Core>,
    metrics: Arc<Metrics>,
    standing: Arc<Standing>,
    client: Mutex<Option<Client>>,
    /// One attempt to connect at a time, and how the last one failed.
    attempt: AsyncMutex<Option<(Instant, OpenError)>>,
    /// When the last local client that has left did so.
    left: Mutex<Instant>,
    scans: Scans,
}

impl Cluster {
    pub(crate) fn new(
        urls: &[String],
        login: Option<&RouteLogin>,
        core: Arc<Core>,
        server: &Server,
    ) -> Result<Self, GatewayError> {
        let seeds = Mutex::new(seeds(urls, login)?);
        let (metrics, standing) = (server.metrics.clone(), server.standing.clone());
        Ok(Self { seeds, members: Arc::default(), core, metrics, standing, lanes: AtomicU64::new(0) })
    }

    /// Takes another password for clients that do not log in themselves: their next commands connect with it.
    pub(crate) fn set_login(&self, login: &RouteLogin) {
        // Held until the end, so that no member begins with the old password.
        let members = lock(&self.members);
        for seed in lock(&self.seeds).iter_mut() {
            *seed = seed.clone().with_login(&login.user, &login.password);
        }
        members
            .values()
            .filter(|member| member.key.has_default_login())
            .for_each(|member| member.set_login(login));
    }

    /// Clients without a login get new connections with their next command.
    pub(crate) fn drop_default_login(&self) {
        let members = lock(&self.members);
        members
            .values()
            .filter(|member| member.key.has_default_login())
            .for_each(|member| *lock(&member.client) = None);
    }

    /// The reply of some node to a question, on a connection of clients without a login. `None` if there is none, or no reply.
    pub(crate) async fn ask_without_login(&self, question: Command) -> Option<Value> {
        let client = {
            let members = lock(&self.members);
            let mut known = members.values().filter(|member| member.key.has_default_login());
            known.find_map(|member| lock(&member.client).clone())
        };
        command_on(&client?, Route::Any, question).await.ok()
    }

    /// The way of one local client into the cluster. It connects with the first command.
    pub(crate) fn attach(&self, key: Key, identity: &Identity) -> Lane {
        let mut members = lock(&self.members);
        let start = || {
            let member = Arc::new(self.member(key.clone(), identity));
            tokio::spawn(close_unused(Arc::downgrade(&self.members), key.clone()));
            member
        };
        let member = members.entry(key.clone()).or_insert_with(start).clone();
        Lane::new(member, self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// What the clients of the library know of the cluster, by their login.
    pub(crate) fn status(&self) -> Vec<(Key, ClusterStatus)> {
        let members: Vec<_> = lock(&self.members).values().cloned().collect();
        let known = |member: Arc<Member>| {
            let client = lock(&member.client).clone();
            let status = client?.cluster().map(cluster::Cluster::status)?;
            Some((member.key.clone(), status))
        };
        let mut all: Vec<_> = members.into_iter().filter_map(known).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    fn member(&self, key: Key, identity: &Identity) -> Member {
        let with_login = |seed: &Endpoint| {
            let seed = seed.clone().with_protocol(identity.protocol);
            let Some(login) = &identity.login else { return Some(seed) };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            Some(seed.with_login(text(&login.user)?, text(&login.password)?))
        };
        let seeds = lock(&self.seeds);
        let user = match &identity.login {
            Some(login) => String::from_utf8_lossy(&login.user).into_owned(),
            None => seeds.first().and_then(Endpoint::user).unwrap_or("default").to_owned(),
        };
        Member {
            key,
            user,
            protocol: identity.protocol,
            database: seeds.first().map_or(0, Endpoint::database),
            seeds: Mutex::new(seeds.iter().map(with_login).collect()),
            core: self.core.clone(),
            metrics: self.metrics.clone(),
            standing: self.standing.clone(),
            client: Mutex::default(),
            attempt: AsyncMutex::default(),
            left: Mutex::new(Instant::now()),
            scans: Scans::default(),
        }
    }
}

impl Member {
    /// The client of the library. Connects first, and tries again for as long as commands wait for a server.
    pub(crate) async fn connected(&self) -> Result<Client, OpenError> {
        let known = || lock(&self.client).clone();
        if let Some(client) = known() {
            return Ok(client);
        }
        let (asked, limits) = (Instant::now(), self.core.limits());
        let mut last = self.attempt.lock().await;
        let mut attempt = 0_u32;
        loop {
            if let Some(client) = known() {
                return Ok(client);
            }
            match &*last {
                // Another caller has tried meanwhile.
                Some((at, error))
                    if *at > asked && (error.is_refusal() || asked.elapsed() >= limits.offline()) =>
                {
                    return Err(error.clone());
                }
                _ => {}
            }
            match self.connect().await {
                Ok(()) => {
                    *last = None;
                    continue;
                }
                Err(error) => {
                    error.count(&self.metrics);
                    if !last.as_ref().is_some_and(|(_, last)| last.is_same(&error)) {
                        warn!(key = %self.key, %error, "cannot connect to a cluster");
                    }
                    *last = Some((Instant::now(), error));
                }
            }
            sleep(backoff::wait(attempt)).await;
            attempt = attempt.saturating_add(1);
        }
    }

    async fn connect(&self) -> Result<(), OpenError> {
        let seeds = lock(&self.seeds).clone();
        let Some(seeds) = seeds else { return Err(OpenError::Refused(NOT_TEXT.into())) };
        let config = Config::default()
            .name(env!("CARGO_PKG_NAME"))
            // Local clients have their own limits, and leave when they are over.
            .command_timeout(None)
            .offline_timeout(self.core.limits().offline());
        let connected = Client::connect_with(&seeds, &config).await;
        let client = connected.map_err(|error| open_error(&error))?;
        info!(key = %self.key, nodes = nodes(&client).len(), "connected to a cluster");
        tokio::spawn(count(client.events(), self.metrics.clone()));
        let current = lock(&self.seeds);
        // There may be another password by now, with which the client has to reconnect later.
        if current.as_ref() == Some(&seeds) {
            *lock(&self.client) = Some(client);
        }
        Ok(())
    }

    /// Forgets the client if its password is another one. Commands that have begun to use it end there.
    fn set_login(&self, login: &RouteLogin) {
        let mut seeds = lock(&self.seeds);
        let changed = seeds.as_ref().map(|seeds| {
            seeds.iter().cloned().map(|seed| seed.with_login(&login.user, &login.password)).collect()
        });
        if *seeds != changed {
            *seeds = changed;
            *lock(&self.client) = None;
        }
    }

    /// Logs that the gateway refuses a command.
    fn note_refusal(&self, command: &[u8]) {
        self.core.refusals.note(command, &self.user);
    }

    /// A local client leaves.
    fn note_leaving(&self) {
        *lock(&self.left) = Instant::now();
    }

    /// For how long it has to be kept, if no local client comes.
    fn is_kept_for(self: &Arc<Self>) -> Duration {
        if Arc::strong_count(self) > 1 { IDLE } else { IDLE.saturating_sub(lock(&self.left).elapsed()) }
    }
}

/// Closes the connections of a member that no local client has used for [`IDLE`].
async fn close_unused(members: Weak<Members>, key: Key) {
    let mut wait = IDLE;
    loop {
        sleep(wait).await;
        let Some(members) = members.upgrade() else { return };
        let mut members = lock(&members);
        let Some(member) = members.get(&key) else { return };
        wait = member.is_kept_for();
        if wait.is_zero() {
            info!(%key, "no client uses the cluster with this login any more");
            members.remove(&key);
            return;
        }
    }
}

/// Counts what happens to connections to nodes, until the client of the library has gone.
async fn count(mut events: ConnectionEvents, metrics: Arc<Metrics>) {
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Connected { .. } => metrics.connects.add(1),
            ConnectionEvent::Lost { .. } => metrics.lost.add(1),
            ConnectionEvent::ConnectFailed { error, .. } => open_error(&error).count(&metrics),
            _ => {}
        }
    }
}

/// The transport of a node's connection; `None` while it is lost, also before a command has met the loss.
pub(crate) fn transport_of(node: &NodeStatus) -> Option<Transport> {
    let is_up = node.connections.iter().any(|connection| connection.state == State::Connected);
    node.transport.filter(|_| is_up)
}

/// Reads and checks the URLs of nodes.
pub(crate) fn seeds(urls: &[String], login: Option<&RouteLogin>) -> Result<Vec<Endpoint>, GatewayError> {
    let seeds = endpoints(urls, login)?;
    let all = || seeds.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(" ");
    IntoEndpoint::into_endpoint(&seeds).map_err(|source| GatewayError::Server { url: all(), source })?;
    Ok(seeds)
}

/// Sends a command to the nodes that `route` names.
async fn command_on(client: &Client, route: Route, command: Command) -> Result<Value, Error> {
    match client.cluster() {
        Some(cluster) => cluster.command_on(route, command).await,
        None => client.command(command).await,
    }
}

/// The nodes of the cluster.
fn nodes(client: &Client) -> Vec<NodeStatus> {
    client.cluster().map(|cluster| cluster.status().nodes).unwrap_or_default()
}

/// The refusal of a server, which another attempt would meet too, or why there is no connection.
fn open_error(error: &Error) -> OpenError {
    let cause = match error {
        Error::Cluster(ClusterError::Unreachable { last, .. }) => last,
        other => other,
    };
    if let Error::Cluster(ClusterError::NotACluster { peer, error }) = cause {
        let text = format!(
            "{peer} is not part of a cluster ({error}): leave out --cluster, or cluster = true of the file"
        );
        return OpenError::Settings(text);
    }
    match cause.server().filter(|_| !failure::passes(cause)) {
        Some(refusal) => OpenError::Refused(format!("-{refusal}\r\n").into()),
        None => OpenError::Unreachable(format!("{error:#}")),
    }
}

const NOT_TEXT: &str =
    "-WRONGPASS the gateway can only pass on users and passwords that are UTF-8 to a cluster\r\n";
/// How long connections are kept without a local client.
const IDLE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::config::limits::Limits;
    use crate::observe::metrics::Services;

    fn cluster() -> (Cluster, Identity) {
        let urls = ["valkey://127.0.0.1:1".to_owned()];
        let limits = Limits::default();
        let server = Server::new(&urls, true, None, &limits, &Services::default()).expect("a URL");
        let core = Arc::new(Core::new(limits));
        (Cluster::new(&urls, None, core, &server).expect("a URL"), server.identity())
    }

    /// Lets the tasks run whose time has come.
    async fn pass(time: Duration) {
        advance(time).await;
        tokio::task::yield_now().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_that_no_client_uses_is_closed_although_no_other_client_comes() {
        let (cluster, identity) = cluster();
        let count = || lock(&cluster.members).len();
        let lane = cluster.attach(identity.key(), &identity);
        tokio::task::yield_now().await;
        pass(IDLE * 10).await;
        assert_eq!(count(), 1, "it is in use");
        pass(IDLE / 2).await;
        drop(lane);
        pass(IDLE / 2).await;
        assert_eq!(count(), 1, "it was in use half a minute ago");
        pass(IDLE / 2).await;
        assert_eq!(count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_is_kept_from_the_last_client_that_leaves_on() {
        let (cluster, identity) = cluster();
        let count = || lock(&cluster.members).len();
        let lanes = [(); 2].map(|()| cluster.attach(identity.key(), &identity));
        tokio::task::yield_now().await;
        for lane in lanes {
            pass(IDLE - Duration::from_secs(1)).await;
            drop(lane);
        }
        pass(IDLE - Duration::from_secs(1)).await;
        let again = cluster.attach(identity.key(), &identity);
        pass(IDLE * 2).await;
        assert_eq!(count(), 1, "a client has come back");
        drop(again);
        pass(IDLE).await;
        pass(IDLE).await;
        assert_eq!(count(), 0);
        drop(cluster);
    }

    #[tokio::test(start_paused = true)]
    async fn a_login_goes_with_its_cluster() {
        let (cluster, identity) = cluster();
        let (members, lane) = (Arc::downgrade(&cluster.members), cluster.attach(identity.key(), &identity));
        tokio::task::yield_now().await;
        drop((cluster, lane));
        pass(IDLE).await;
        assert!(members.upgrade().is_none());
    }
}
