//! [`Member`]: the connections to a cluster that clients with one login share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use valkey_rdma_client::{Client, ClusterError, Config, ConnectionEvent, ConnectionEvents, Endpoint, Error};
use valkey_rdma_resp::Protocol;
use valkey_rdma_transport::sync::lock;

use super::failure::passes;
use super::scan::Scans;
use super::{Cluster, nodes};
use crate::config::login::RouteLogin;
use crate::core::Core;
use crate::observe::metrics::Metrics;
use crate::upstream::backoff;
use crate::upstream::identity::{Identity, Key};
use crate::upstream::open_error::OpenError;
use crate::upstream::standing::Standing;

/// A client of the library, for all local clients with one login and protocol version.
pub(crate) struct Member {
    pub(super) key: Key,
    pub(super) protocol: Protocol,
    pub(super) database: u32,
    /// The seeds with the login; `None` if the library cannot send this login.
    seeds: Mutex<Option<Vec<Endpoint>>>,
    /// The user that its clients have.
    user: String,
    pub(super) core: Arc<Core>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) standing: Arc<Standing>,
    connected: Mutex<Option<Connected>>,
    /// One attempt to connect at a time, and how the last one failed.
    attempt: Arc<AsyncMutex<Option<(Instant, OpenError)>>>,
    /// When the last local client that has left did so.
    left: Mutex<Instant>,
    pub(super) scans: Arc<Scans>,
}

/// A client of the library, and how long its commands wait for a server: it keeps the limit that it was made with.
struct Connected {
    client: Client,
    offline: Duration,
}

impl Member {
    pub(super) fn new(cluster: &Cluster, key: Key, identity: &Identity, scans: Arc<Scans>) -> Self {
        let with_login = |seed: &Endpoint| {
            let seed = seed.clone().with_protocol(identity.protocol);
            let Some(login) = &identity.login else { return Some(seed) };
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
            Some(seed.with_login(text(&login.user)?, text(&login.password)?))
        };
        let seeds = lock(&cluster.seeds);
        let user = match &identity.login {
            Some(login) => String::from_utf8_lossy(&login.user).into_owned(),
            None => seeds.first().and_then(Endpoint::user).unwrap_or("default").to_owned(),
        };
        Self {
            key,
            user,
            protocol: identity.protocol,
            database: seeds.first().map_or(0, Endpoint::database),
            seeds: Mutex::new(seeds.iter().map(with_login).collect()),
            core: cluster.core.clone(),
            metrics: cluster.metrics.clone(),
            standing: cluster.standing.clone(),
            connected: Mutex::default(),
            attempt: Arc::default(),
            left: Mutex::new(Instant::now()),
            scans,
        }
    }

    /// The client of the library, if it is connected.
    pub(super) fn client(&self) -> Option<Client> {
        lock(&self.connected).as_ref().map(|connected| connected.client.clone())
    }

    /// The client of the library. Connects first, and tries again for as long as commands wait for a server.
    pub(crate) async fn connected(self: &Arc<Self>) -> Result<Client, OpenError> {
        self.renew();
        if let Some(client) = self.client() {
            return Ok(client);
        }
        let (asked, limits) = (Instant::now(), self.core.limits());
        let mut last = self.attempt.lock().await;
        let mut attempt = 0_u32;
        loop {
            if let Some(client) = self.client() {
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
            if self.try_once(&mut last).await {
                continue;
            }
            sleep(backoff::wait(attempt)).await;
            attempt = attempt.saturating_add(1);
        }
    }

    /// After a change of the limit, begins to connect with the new one. Commands go on with the client that there is until then: the nodes may be
    /// away, or refuse the login by now.
    fn renew(self: &Arc<Self>) {
        let offline = self.core.limits().offline();
        let is_former = || lock(&self.connected).as_ref().is_some_and(|known| known.offline != offline);
        if !is_former() {
            return;
        }
        let Ok(mut last) = self.attempt.clone().try_lock_owned() else { return };
        let has_failed = last.as_ref().is_some_and(|(at, _)| at.elapsed() < RENEWAL);
        // Another attempt may have ended just now.
        if is_former() && !has_failed {
            let member = self.clone();
            tokio::spawn(async move { member.try_once(&mut last).await });
        }
    }

    /// Connects, and takes note of a failure. True if it has succeeded.
    async fn try_once(&self, last: &mut Option<(Instant, OpenError)>) -> bool {
        let failed = self.connect().await.err();
        if let Some(error) = &failed {
            error.count(&self.metrics);
            if !last.as_ref().is_some_and(|(_, last)| last.is_same(error)) {
                warn!(key = %self.key, %error, "cannot connect to a cluster");
            }
        }
        *last = failed.map(|error| (Instant::now(), error));
        last.is_none()
    }

    async fn connect(&self) -> Result<(), OpenError> {
        let seeds = lock(&self.seeds).clone();
        let Some(seeds) = seeds else { return Err(OpenError::Refused(NOT_TEXT.into())) };
        let offline = self.core.limits().offline();
        let config = Config::default()
            .name(env!("CARGO_PKG_NAME"))
            // Local clients have their own limits, and leave when they are over.
            .command_timeout(None)
            .offline_timeout(offline);
        let connected = Client::connect_with(&seeds, &config).await;
        let client = connected.map_err(|error| open_error(&error))?;
        info!(key = %self.key, nodes = nodes(&client).len(), "connected to a cluster");
        tokio::spawn(count(client.events(), self.metrics.clone()));
        let current = lock(&self.seeds);
        // There may be another password by now, with which the client has to reconnect later.
        if current.as_ref() == Some(&seeds) {
            *lock(&self.connected) = Some(Connected { client, offline });
        }
        Ok(())
    }

    /// Forgets the client if its password is another one.
    pub(super) fn set_login(&self, login: &RouteLogin) {
        let mut seeds = lock(&self.seeds);
        let changed = seeds.as_ref().map(|seeds| {
            seeds.iter().cloned().map(|seed| seed.with_login(&login.user, &login.password)).collect()
        });
        if *seeds != changed {
            *seeds = changed;
            self.forget_client();
        }
    }

    /// Forgets the client, and the scans that have begun with it: the next command connects. Commands that have begun to use it end there.
    pub(super) fn forget_client(&self) {
        *lock(&self.connected) = None;
        self.scans.clear();
    }

    /// Logs that the gateway refuses a command.
    pub(super) fn note_refusal(&self, command: &[u8]) {
        self.core.refusals.note(command, &self.user);
    }

    /// A local client leaves.
    pub(super) fn note_leaving(&self) {
        *lock(&self.left) = Instant::now();
    }

    /// For how long it has to be kept, if no local client comes.
    pub(super) fn is_kept_for(self: &Arc<Self>) -> Duration {
        if Arc::strong_count(self) > 1 { IDLE } else { IDLE.saturating_sub(lock(&self.left).elapsed()) }
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
    match cause.server().filter(|_| !passes(cause)) {
        Some(refusal) => OpenError::Refused(format!("-{refusal}\r\n").into()),
        None => OpenError::Unreachable(format!("{error:#}")),
    }
}

const NOT_TEXT: &str =
    "-WRONGPASS the gateway can only pass on users and passwords that are UTF-8 to a cluster\r\n";
/// How long connections are kept without a local client.
pub(super) const IDLE: Duration = Duration::from_secs(60);
/// The time between attempts to connect with a new limit. A login that is refused over RDMA costs the server memory.
const RENEWAL: Duration = Duration::from_secs(300);
