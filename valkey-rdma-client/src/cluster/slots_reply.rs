//! [`View`]: what one node says of the slots, read from its reply to CLUSTER SLOTS.

use crate::endpoint::NodeAddress;
use std::collections::{HashMap, HashSet};

use valkey_rdma_resp::Value;

/// Number of slots in a cluster.
pub(super) const SLOTS: usize = 16_384;
/// The most nodes of one shard that are accepted. Reads look at each of them, and Valkey recommends at most about this many
/// for a whole cluster.
const MAX_NODES: usize = 1000;

/// The slots and their nodes, as one node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// In the order of the slots.
    pub(super) ranges: Vec<SlotRange>,
    /// The nodes of a shard, its primary first.
    pub(super) shards: Vec<Vec<ViewNode>>,
}

/// Slots from first to last, and the index of their shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) shard: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ViewNode {
    pub(super) address: NodeAddress,
    pub(super) id: Option<String>,
    /// True if the port was announced as 0, as TLS-only clusters do, and that of the answering node was taken.
    pub(super) port_assumed: bool,
}

impl View {
    /// Reads a reply. `answering` is the address of the node that answers: it stands in for an endpoint that the cluster
    /// does not know, and for port 0. `id` is the id of that node, if it is known. The error says what makes no sense.
    ///
    /// Shape: an array of `[first, last, primary, replica...]`, a node being `[endpoint, port, id, metadata]`. The metadata are names and
    /// values of the endpoints that are not preferred.
    ///
    /// Source: valkey.io/commands/cluster-slots.
    pub(super) fn read(reply: &Value, answering: &NodeAddress, id: Option<&str>) -> Result<Self, String> {
        let entries = reply.as_slice().ok_or_else(|| reply.describe())?;
        if entries.len() > SLOTS {
            return Err(format!("{} ranges, for {SLOTS} slots", entries.len()));
        }
        let mut view = Self::default();
        // By the address of the primary.
        let mut shards: HashMap<NodeAddress, usize> = HashMap::new();
        for entry in entries {
            let fields = entry.as_slice().ok_or_else(|| format!("{} as a range", entry.describe()))?;
            let slot = |at: usize| {
                let number = fields.get(at).and_then(Value::as_int);
                let slot = number.and_then(|slot| u16::try_from(slot).ok());
                slot.filter(|slot| usize::from(*slot) < SLOTS).ok_or("a slot that is not one of 16384")
            };
            let (first, last) = (slot(0)?, slot(1)?);
            if first > last {
                return Err(format!("the range {first} to {last}"));
            }
            let count = fields.len().saturating_sub(2);
            if count > MAX_NODES {
                return Err(format!(
                    "{count} nodes for slots {first} to {last}, where at most {MAX_NODES} are accepted"
                ));
            }
            let mut nodes = Vec::with_capacity(count);
            for (at, field) in fields.iter().enumerate().skip(2) {
                match ViewNode::read(field, answering, id)? {
                    Some(node) => nodes.push(node),
                    // Slots of an unknown primary are not served by its replicas either.
                    None if at == 2 => break,
                    None => {}
                }
            }
            let Some(primary) = nodes.first() else { continue };
            let shard = *shards.entry(primary.address.clone()).or_insert(view.shards.len());
            if shard == view.shards.len() {
                view.shards.push(nodes);
            }
            view.ranges.push(SlotRange { first, last, shard });
        }
        view.ranges.sort_unstable_by_key(|range| range.first);
        for pair in view.ranges.windows(2) {
            if pair[1].first <= pair[0].last {
                return Err(format!("slot {} in two ranges", pair[1].first));
            }
        }
        Ok(view)
    }

    /// The ids of its nodes, as far as it has them.
    pub(super) fn ids(&self) -> HashSet<String> {
        self.nodes().filter_map(|node| node.id.clone()).collect()
    }

    /// The ids by which other clusters are recognized. None if all nodes have one address: what answers there is the cluster.
    pub(super) fn distinctive_ids(&self) -> HashSet<String> {
        let first = self.nodes().next();
        match self.nodes().all(|node| first.is_some_and(|first| first.address == node.address)) {
            true => HashSet::new(),
            false => self.ids(),
        }
    }

    /// True if it may be about the cluster that has nodes with these ids: it has one of them, or there are no ids to compare.
    pub(super) fn is_of(&self, ids: &HashSet<String>) -> bool {
        let mut own = self.nodes().filter_map(|node| node.id.as_ref()).peekable();
        ids.is_empty() || own.peek().is_none() || own.any(|id| ids.contains(id))
    }

    /// How many nodes answer at this address.
    pub(super) fn nodes_at(&self, address: &NodeAddress) -> usize {
        self.nodes().filter(|node| node.address == *address).count()
    }

    fn nodes(&self) -> impl Iterator<Item = &ViewNode> {
        self.shards.iter().flatten()
    }

    /// How many slots it has nodes for.
    pub(super) fn covered(&self) -> usize {
        self.ranges.iter().map(|range| usize::from(range.last - range.first) + 1).sum()
    }
}

impl ViewNode {
    /// `None` for a node whose address is not known.
    fn read(field: &Value, answering: &NodeAddress, own_id: Option<&str>) -> Result<Option<Self>, String> {
        let fields = field.as_slice().ok_or_else(|| format!("{} as a node", field.describe()))?;
        let host = match fields.first() {
            Some(Value::Nil) => Some(""),
            Some(text) => text.as_str(),
            None => None,
        };
        let host = match host.ok_or("a node without an endpoint")? {
            // The cluster prefers host names, and this node announces none.
            "?" => match fields.get(3).and_then(ip) {
                Some(ip) => ip,
                None => return Ok(None),
            },
            host => host,
        };
        let is_nameless = host.is_empty();
        // The answering node itself, which does not know its address yet, or announces none.
        let host = if is_nameless { &*answering.host } else { host };
        let port = fields.get(1).and_then(Value::as_int).and_then(|port| u16::try_from(port).ok());
        let port = port.ok_or_else(|| format!("a port of {host} that is not one"))?;
        let id = fields.get(2).and_then(Value::as_str).map(str::to_owned);
        // A node that the cluster has lost: it is back at another address, or another cluster's node has its address now.
        if is_nameless && port == 0 && id.as_deref().zip(own_id).is_some_and(|(id, own)| id != own) {
            return Ok(None);
        }
        let (port, port_assumed) = if port == 0 { (answering.port, true) } else { (port, false) };
        Ok(Some(Self { address: NodeAddress::new(host, port), id, port_assumed }))
    }
}

/// The IP address among a node's metadata: a map, or with RESP2 an array of names and values.
fn ip(metadata: &Value) -> Option<&str> {
    let value = match metadata {
        Value::Map(pairs) => {
            pairs.iter().find(|(name, _)| name.as_bytes() == Some(b"ip")).map(|(_, value)| value)
        }
        other => {
            let mut fields = other.as_slice()?.chunks_exact(2);
            fields.find(|pair| pair[0].as_bytes() == Some(b"ip")).map(|pair| &pair[1])
        }
    };
    value?.as_str()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn text(text: &str) -> Value {
        Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![text(host), Value::Int(port), text("id"), Value::Array(Vec::new())])
    }

    fn range(first: i64, last: i64, nodes: impl IntoIterator<Item = Value>) -> Value {
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    fn read(entries: impl IntoIterator<Item = Value>) -> Result<View, String> {
        View::read(&Value::Array(entries.into_iter().collect()), &NodeAddress::new("seed", 7), Some("id"))
    }

    #[test]
    fn ranges_of_one_primary_are_one_shard() {
        let view = read([
            range(200, 300, [node("a", 1), node("b", 2)]),
            range(0, 99, [node("a", 1), node("b", 2)]),
            range(100, 199, [node("c", 3)]),
        ])
        .expect("a map");
        assert_eq!(view.shards.len(), 2);
        assert_eq!(view.ranges.iter().map(|range| range.first).collect::<Vec<_>>(), [0, 100, 200]);
        assert_eq!(view.covered(), 301);
        assert_eq!(view.shards[0][1].address, NodeAddress::new("b", 2));
    }

    #[test]
    fn unknown_endpoints_and_port_zero_stand_for_the_answering_node() {
        let nameless = Value::Array(vec![Value::Nil, Value::Int(1)]);
        let view = read([range(0, 9, [nameless]), range(10, 19, [node("", 2)])]).expect("a map");
        assert_eq!(view.shards[0][0].address, NodeAddress::new("seed", 1));
        assert_eq!(view.shards[1][0].address, NodeAddress::new("seed", 2));
        let view = read([range(0, 9, [node("a", 0)])]).expect("a map");
        assert_eq!(view.shards[0][0].address, NodeAddress::new("a", 7));
        assert!(view.shards[0][0].port_assumed);
    }

    /// `noaddr` of CLUSTER NODES.
    #[test]
    fn of_nodes_without_host_and_port_only_the_answering_one_is_known() {
        let nameless = |host, id| Value::Array(vec![host, Value::Int(0), text(id), Value::Array(Vec::new())]);
        for host in [text(""), Value::Nil] {
            let lost = || nameless(host.clone(), "another");
            let own = nameless(host.clone(), "id");
            let view = read([range(0, 9, [own, lost()]), range(10, 19, [lost(), node("b", 1)])]);
            let view = view.expect("a map");
            assert_eq!((view.shards.len(), view.shards[0].len(), view.covered()), (1, 1, 10));
            assert_eq!(view.shards[0][0].address, NodeAddress::new("seed", 7));
        }
    }

    #[test]
    fn a_view_is_of_a_cluster_if_they_have_a_node_in_common_or_no_ids() {
        let view = read([range(0, 9, [node("a", 1), node("b", 2)])]).expect("a map");
        let ids = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<HashSet<_>>();
        assert!(view.is_of(&ids(&["id", "x"])) && view.is_of(&ids(&[])));
        assert!(!view.is_of(&ids(&["x"])));
        let nameless = Value::Array(vec![text("a"), Value::Int(1)]);
        assert!(read([range(0, 9, [nameless])]).expect("a map").is_of(&ids(&["x"])));
        assert_eq!(view.distinctive_ids(), ids(&["id"]));
        let one = read([range(0, 9, [node("a", 1), node("a", 1)])]).expect("a map");
        assert_eq!((one.distinctive_ids(), one.ids()), (ids(&[]), ids(&["id"])));
    }

    #[test]
    fn nodes_without_a_known_endpoint_are_left_out() {
        let view =
            read([range(0, 9, [node("a", 1), node("?", 2)]), range(10, 19, [node("?", 1), node("b", 1)])]);
        let view = view.expect("a map");
        assert_eq!((view.shards.len(), view.shards[0].len(), view.covered()), (1, 1, 10));
    }

    /// `cluster-preferred-endpoint-type hostname`, and a node without `cluster-announce-hostname`.
    #[test]
    fn a_node_without_a_host_name_has_its_address_in_the_metadata() {
        let map = Value::Map(vec![(text("hostname"), text("")), (text("ip"), text("10.0.0.3"))]);
        let flat = Value::Array(vec![text("ip"), text("10.0.0.3")]);
        for metadata in [map, flat] {
            let nameless =
                |port| Value::Array(vec![text("?"), Value::Int(port), text("id"), metadata.clone()]);
            let view = read([range(0, 9, [nameless(1), nameless(2)])]).expect("a map");
            let addresses: Vec<_> = view.shards[0].iter().map(|node| node.address.clone()).collect();
            assert_eq!(addresses, [NodeAddress::new("10.0.0.3", 1), NodeAddress::new("10.0.0.3", 2)]);
        }
        let nameless = |metadata| Value::Array(vec![text("?"), Value::Int(1), text("id"), metadata]);
        let view = read([range(0, 9, [nameless(Value::Map(vec![(text("ip"), text(""))]))])]).expect("a map");
        assert_eq!(view.shards[0][0].address, NodeAddress::new("seed", 1), "the answering node itself");
        for unknown in [Value::Map(Vec::new()), Value::Array(vec![text("ip")]), Value::Nil] {
            assert_eq!(read([range(0, 9, [nameless(unknown)])]).expect("a map").covered(), 0);
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |entries: Vec<Value>| read(entries).expect_err("nonsense");
        assert!(error(vec![Value::Int(1)]).contains("as a range"));
        assert!(error(vec![range(0, 16_384, [node("a", 1)])]).contains("not one of 16384"));
        assert!(error(vec![range(-1, 5, [node("a", 1)])]).contains("not one of 16384"));
        assert!(error(vec![range(9, 5, [node("a", 1)])]).contains("range 9 to 5"));
        assert!(error(vec![range(0, 9, [node("a", 70_000)])]).contains("port of a"));
        assert!(error(vec![range(0, 9, [text("a")])]).contains("as a node"));
        assert!(error(vec![range(0, 9, [Value::Array(Vec::new())])]).contains("without an endpoint"));
        let twice = vec![range(0, 9, [node("a", 1)]), range(9, 12, [node("b", 1)])];
        assert!(error(twice).contains("slot 9 in two ranges"));
        let not_an_array = View::read(&text("PONG"), &NodeAddress::new("seed", 7), None);
        let not_an_array = not_an_array.expect_err("nonsense");
        assert!(not_an_array.contains("string"), "{not_an_array}");
        assert_eq!(read([]).expect("an empty cluster").covered(), 0);
    }

    #[test]
    fn more_than_a_cluster_can_have_is_refused_before_it_is_read() {
        // As many primaries as slots are a cluster still.
        let one_each = (0..16_384).map(|slot| range(slot, slot, [node(&format!("host-{slot}"), 1)]));
        let view = read(one_each).expect("a map");
        assert_eq!((view.shards.len(), view.covered()), (SLOTS, SLOTS));
        // A node that is not one shows that no entry was looked at.
        let ranges = (0..=16_384).map(|_| Value::Int(0));
        assert_eq!(read(ranges), Err("16385 ranges, for 16384 slots".to_owned()));

        let nodes = |count: i64| (0..count).map(|at| node("a", at)).collect::<Vec<_>>();
        assert_eq!(read([range(0, 9, nodes(1000))]).expect("a map").shards[0].len(), 1000);
        let crowded = read([range(0, 9, nodes(1001))]);
        assert_eq!(crowded, Err("1001 nodes for slots 0 to 9, where at most 1000 are accepted".to_owned()));
    }
}
