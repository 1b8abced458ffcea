//! [`Cluster`]: a Valkey Cluster behind a route, reached by the client library.
//!
//! Clients with the same user, password and protocol version share a [`Member`]: one `Client`, which has one connection to each
//! node. It finds the nodes, follows redirections and joins replies. A [`Lane`] keeps the order of one local client.

mod answers;
mod failure;
mod info;
mod joined;
mod lane;
mod member;
mod scan;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::time::sleep;
use tracing::info;
use valkey_rdma_client::cluster::{self, ClusterStatus, NodeStatus, Route};
use valkey_rdma_client::{Client, Command, Endpoint, Error, IntoEndpoint, State, Transport, Value};
use valkey_rdma_transport::sync::lock;

pub(crate) use self::answers::NO_CLUSTER;
pub(crate) use self::failure::{failure, is_about_nodes, is_refusal, refusal};
pub(crate) use self::lane::Lane;
use self::member::{IDLE, Member};
use crate::config::login::{RouteLogin, endpoints};
use crate::core::Core;
use crate::error::GatewayError;
use crate::observe::metrics::Metrics;
use crate::upstream::identity::{Identity, Key};
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
            .for_each(|member| member.forget_client());
    }

    /// The reply of some node to a question, on a connection of clients without a login. `None` if there is none, or no reply.
    pub(crate) async fn ask_without_login(&self, question: Command) -> Option<Value> {
        let client = {
            let members = lock(&self.members);
            let mut known = members.values().filter(|member| member.key.has_default_login());
            known.find_map(|member| member.client())
        };
        command_on(&client?, Route::Any, question).await.ok()
    }

    /// The way of one local client into the cluster. It connects with the first command.
    pub(crate) fn attach(&self, key: Key, identity: &Identity) -> Lane {
        let mut members = lock(&self.members);
        let known = members.get(&key).cloned();
        let member = known.unwrap_or_else(|| {
            // What follows a script goes where the script went: a scan may begin there, and go on here.
            let sibling = members.get(&identity.key_for(!key.is_for_scripts()));
            let scans = sibling.map(|sibling| sibling.scans.clone()).unwrap_or_default();
            let member = Arc::new(Member::new(self, key.clone(), identity, scans));
            tokio::spawn(close_unused(Arc::downgrade(&self.members), key.clone()));
            members.insert(key, member.clone());
            member
        });
        Lane::new(member, self.lanes.fetch_add(1, Ordering::Relaxed))
    }

    /// What the clients of the library know of the cluster, by their login.
    pub(crate) fn status(&self) -> Vec<(Key, ClusterStatus)> {
        let members: Vec<_> = lock(&self.members).values().cloned().collect();
        let known = |member: Arc<Member>| {
            let status = member.client()?.cluster().map(cluster::Cluster::status)?;
            Some((member.key.clone(), status))
        };
        let mut all: Vec<_> = members.into_iter().filter_map(known).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// Closes the connections of a member that no local client has used for [`IDLE`]. Looks after its scans meanwhile.
async fn close_unused(members: Weak<Members>, key: Key) {
    let mut wait = IDLE;
    loop {
        sleep(wait).await;
        let Some(members) = members.upgrade() else { return };
        let mut members = lock(&members);
        let Some(member) = members.get(&key) else { return };
        member.scans.forget_abandoned();
        wait = member.is_kept_for();
        if wait.is_zero() {
            info!(%key, "no client uses the cluster with this login any more");
            members.remove(&key);
            return;
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
