//! [`LaneSets`]: the lanes of one server, or those of each node of a cluster.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use valkey_rdma_client::Client;
use valkey_rdma_client::cluster::{Cluster, NodeAddress};
use valkey_rdma_transport::sync::lock;

use crate::lanes::{LaneSettings, Lanes, Origin};

/// The lanes that an engine has.
pub(crate) enum LaneSets {
    One(Arc<Lanes>),
    Cluster(OfNodes),
}

/// The lanes of the nodes that were needed so far.
pub(crate) struct OfNodes {
    client: Client,
    cluster: Cluster,
    /// Those of each node.
    settings: LaneSettings,
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    lanes: HashMap<NodeAddress, Arc<Lanes>>,
    closed: bool,
}

impl LaneSets {
    pub(crate) fn new(client: &Client, settings: LaneSettings) -> Self {
        match client.cluster() {
            None => Self::One(Lanes::new(Origin::One(client.clone()), settings)),
            Some(cluster) => {
                let (client, cluster) = (client.clone(), cluster.clone());
                Self::Cluster(OfNodes { client, cluster, settings, nodes: Mutex::default() })
            }
        }
    }

    /// The lanes to the server of a key. `None` if the cluster has no node for it at the moment.
    pub(crate) fn of(&self, key: &[u8]) -> Option<Arc<Lanes>> {
        match self {
            Self::One(lanes) => Some(lanes.clone()),
            Self::Cluster(nodes) => Some(nodes.of(nodes.cluster.node_of(key)?)),
        }
    }

    /// The client, if it is that of a cluster.
    pub(crate) fn cluster_client(&self) -> Option<&Client> {
        match self {
            Self::One(_) => None,
            Self::Cluster(nodes) => Some(&nodes.client),
        }
    }

    /// Closes idle connections, and keeps no more.
    pub(crate) fn close(&self) {
        match self {
            Self::One(lanes) => lanes.close(),
            Self::Cluster(nodes) => nodes.close(),
        }
    }
}

impl OfNodes {
    fn of(&self, address: NodeAddress) -> Arc<Lanes> {
        let mut nodes = self.nodes();
        if let Some(lanes) = nodes.lanes.get(&address) {
            return lanes.clone();
        }
        // A new node is rare. Others may have left, and their idle connections with them.
        let known: HashSet<_> = self.cluster.status().nodes.into_iter().map(|node| node.address).collect();
        nodes.lanes.retain(|address, lanes| {
            let stays = known.contains(address);
            if !stays {
                lanes.close();
            }
            stays
        });
        let lanes = Lanes::new(Origin::Node(self.cluster.clone(), address.clone()), self.settings);
        if nodes.closed {
            lanes.close();
        }
        nodes.lanes.insert(address, lanes.clone());
        lanes
    }

    fn close(&self) {
        let mut nodes = self.nodes();
        nodes.closed = true;
        nodes.lanes.values().for_each(|lanes| lanes.close());
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        lock(&self.nodes)
    }
}
