//! The topology, in the forms that clients ask for.

use std::fmt::Write;

use crate::membership::{Endpoint, NodeInfo, OFFSET, SLOTS, Topology};
use valkey_rdma_server::Reply;

/// `CLUSTER SLOTS`. Replicas that have failed are left out.
pub(super) fn slots(topology: &Topology) -> Reply {
    let ranges = topology.ranges().into_iter().map(|(first, last, owner)| {
        let replicas = topology.replicas_of(owner).filter(|node| !topology.nodes[*node].failed);
        let nodes = std::iter::once(owner).chain(replicas).map(|node| address(&topology.nodes[node]));
        let bounds = [Reply::Integer(first.into()), Reply::Integer(last.into())];
        Reply::Array(bounds.into_iter().chain(nodes).collect())
    });
    Reply::Array(ranges.collect())
}

fn address(node: &NodeInfo) -> Reply {
    let endpoint = match &node.endpoint {
        Endpoint::Unknown => Reply::Null,
        _ => Reply::bulk(node.host()),
    };
    let mut more = Vec::new();
    if matches!(node.endpoint, Endpoint::Hostname(_) | Endpoint::NoHostname | Endpoint::Unknown) {
        more.push((Reply::bulk("ip"), Reply::bulk(node.ip())));
    }
    if !node.zone.is_empty() {
        more.push((Reply::bulk("availability-zone"), Reply::bulk(node.zone.to_string())));
    }
    let id = Reply::bulk(node.id.to_string());
    Reply::Array(vec![endpoint, Reply::Integer(node.addr.port().into()), id, Reply::Map(more)])
}

/// `CLUSTER SHARDS`
pub(super) fn shards(topology: &Topology) -> Reply {
    let ranges = topology.ranges();
    let count = topology.nodes.iter().map(|node| node.shard + 1).max().unwrap_or(0);
    let shards = (0..count).map(|shard| {
        let members = || topology.nodes.iter().filter(|node| node.shard == shard);
        let bounds = ranges.iter().filter(|(_, _, owner)| topology.nodes[*owner].shard == shard);
        let bounds = bounds.flat_map(|(first, last, _)| [*first, *last]);
        Reply::Map(vec![
            (Reply::bulk("slots"), Reply::Array(bounds.map(|slot| Reply::Integer(slot.into())).collect())),
            (Reply::bulk("nodes"), Reply::Array(members().map(details).collect())),
            (Reply::bulk("id"), Reply::bulk(shard_id(shard))),
        ])
    });
    Reply::Array(shards.collect())
}

fn details(node: &NodeInfo) -> Reply {
    let mut fields = vec![("id", Reply::bulk(node.id.to_string()))];
    // As in Valkey, a node without a port for this kind of client has no such field.
    if node.addr.port() != 0 {
        fields.push(("port", Reply::Integer(node.addr.port().into())));
    }
    fields.push(("ip", Reply::bulk(node.ip())));
    fields.push(("endpoint", Reply::bulk(node.host())));
    if let Some(hostname) = node.hostname() {
        fields.push(("hostname", Reply::bulk(hostname.to_owned())));
    }
    fields.push(("role", Reply::bulk(if node.primary.is_some() { "replica" } else { "master" })));
    fields.push(("replication-offset", Reply::Integer(OFFSET)));
    fields.push(("health", Reply::bulk(if node.failed { "fail" } else { "online" })));
    if !node.zone.is_empty() {
        fields.push(("availability-zone", Reply::bulk(node.zone.to_string())));
    }
    Reply::Map(fields.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}

/// 40 hexadecimal digits.
pub(super) fn shard_id(shard: usize) -> String {
    format!("{:040x}", shard + 1)
}

/// `CLUSTER NODES`
pub(super) fn nodes(topology: &Topology, me: usize) -> String {
    let mut owned = vec![String::new(); topology.nodes.len()];
    for (first, last, owner) in topology.ranges() {
        let _ = match first == last {
            true => write!(owned[owner], " {first}"),
            false => write!(owned[owner], " {first}-{last}"),
        };
    }
    (0..topology.nodes.len()).map(|node| line(topology, node, me, &owned[node]) + "\n").collect()
}

/// One line of `CLUSTER NODES`, without the end of line.
pub(super) fn node(topology: &Topology, node: usize, me: usize) -> String {
    line(topology, node, me, "")
}

fn line(topology: &Topology, index: usize, me: usize, owned: &str) -> String {
    let node = &topology.nodes[index];
    let port = node.addr.port();
    let mut text = format!("{} {}:{port}@{}", node.id, node.ip(), bus_port(port));
    if let Some(hostname) = node.hostname() {
        text.push_str(&format!(",{hostname}"));
    }
    text.push(' ');
    text.push_str(if index == me { "myself," } else { "" });
    text.push_str(if node.primary.is_some() { "slave" } else { "master" });
    text.push_str(if node.failed { ",fail" } else { "" });
    let primary = node.primary.map_or("-", |primary| &topology.nodes[primary].id);
    let link = if node.failed { "disconnected" } else { "connected" };
    text.push_str(&format!(" {primary} 0 0 {} {link}{owned}", node.epoch));
    if index == me {
        for (slot, target) in &topology.migrating {
            if topology.owner(*slot) == Some(me) {
                text.push_str(&format!(" [{slot}->-{}]", topology.nodes[*target].id));
            }
        }
        for (slot, (target, source)) in &topology.importing {
            if *target == me {
                text.push_str(&format!(" [{slot}-<-{}]", topology.nodes[*source].id));
            }
        }
    }
    text
}

/// The port of the bus: 10 000 above that for clients, or below it where there is none above. No client connects to it.
fn bus_port(port: u16) -> u16 {
    if port > u16::MAX - 10_000 { port - 10_000 } else { port + 10_000 }
}

/// `CLUSTER INFO`, without the counts of bus messages.
pub(super) fn info(topology: &Topology, me: usize) -> String {
    let assigned = topology.assigned();
    let state = if topology.down || assigned < usize::from(SLOTS) { "fail" } else { "ok" };
    let failed = topology.nodes.iter().filter(|node| node.failed).count();
    let lost = (0..SLOTS).filter_map(|slot| topology.owner(slot)).filter(|node| topology.nodes[*node].failed);
    let lost = lost.count();
    format!(
        "cluster_state:{state}\r\ncluster_slots_assigned:{assigned}\r\ncluster_slots_ok:{}\r\ncluster_slots_pfail:0\r\n\
         cluster_slots_fail:{lost}\r\ncluster_nodes_pfail:0\r\ncluster_nodes_fail:{failed}\r\n\
         cluster_known_nodes:{}\r\ncluster_size:{}\r\ncluster_current_epoch:{}\r\ncluster_my_epoch:{}\r\n",
        assigned - lost,
        topology.nodes.len(),
        topology.size(),
        topology.epoch,
        topology.nodes[topology.primary_of(me)].epoch,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_one_for_the_bus() {
        for (port, bus) in [(1, 10_001), (7000, 17_000), (55_535, 65_535), (55_536, 45_536), (65_535, 55_535)]
        {
            assert_eq!(bus_port(port), bus);
        }
    }
}
