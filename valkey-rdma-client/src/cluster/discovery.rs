//! Asks nodes for the slot map, and chooses among their answers.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::debug;
use valkey_rdma_resp::Value;

use super::node::Node;
use super::slots_reply::{View, ViewNode};
use crate::command::{Command, Commands};
use crate::endpoint::EndpointError;
use crate::error::{ClusterError, Error, TimedOut};

/// How many nodes are asked at once. Several, because one may have missed the last change.
const ASKED_AT_ONCE: usize = 3;
/// How long the others may take once one has answered.
const OTHER_ANSWERS: Duration = Duration::from_millis(100);
/// An attempt to connect has the same limit as an answer. Its own error, which comes a moment later, says what to do.
const CONNECT_SAYS_WHY: Duration = Duration::from_millis(100);

/// What a node says of its cluster.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) view: View,
    /// The highest configuration epoch that the node has heard of: it grows with every failover and every slot moved.
    pub(super) epoch: i64,
    /// The availability zones of nodes, by their id; asked for only if they matter.
    pub(super) zones: HashMap<String, Arc<str>>,
}

/// Asks nodes, some at a time and in this order, until one knows the cluster: those of a group only if none of the groups before does. Of
/// several answers, the one with the most slots and then the latest epoch counts. One without slots counts only if no other node has any.
pub(super) async fn ask(groups: &[Vec<Arc<Node>>], limit: Duration, zones: bool) -> Result<Report, Error> {
    let mut last = None;
    let mut best: Option<Report> = None;
    for asked in groups.iter().flat_map(|nodes| nodes.chunks(ASKED_AT_ONCE)) {
        let mut answers = JoinSet::new();
        for node in asked {
            let node = node.clone();
            answers.spawn(async move {
                let answer = timeout(limit.saturating_add(CONNECT_SAYS_WHY), ask_one(&node, zones)).await;
                answer.unwrap_or_else(|_| {
                    Err(TimedOut { peer: node.name().clone(), limit, may_have_run: false }.into())
                })
            });
        }
        let mut until = None;
        loop {
            let next = match until {
                None => answers.join_next().await,
                // The rest is dropped.
                Some(until) => timeout_at(until, answers.join_next()).await.unwrap_or(None),
            };
            match next {
                None => break,
                Some(Ok(Ok(report))) => {
                    if !report.is_empty() {
                        until.get_or_insert_with(|| Instant::now() + OTHER_ANSWERS);
                    }
                    if best.as_ref().is_none_or(|best| report.rank() > best.rank()) {
                        best = Some(report);
                    }
                }
                Some(Ok(Err(error))) => {
                    debug!(error = %format_args!("{error:#}"), "a node did not describe the cluster");
                    last = Some(worse(last, error));
                }
                // The runtime shuts down.
                Some(Err(_)) => break,
            }
        }
        if best.as_ref().is_some_and(|best| !best.is_empty()) {
            break;
        }
    }
    let tried = groups.iter().map(Vec::len).sum();
    best.ok_or_else(|| match last {
        None => EndpointError::NoSeeds.into(),
        Some(only) if tried == 1 => only,
        // What the server says is worth more than that others are down.
        Some(answered @ Error::Cluster(_)) => answered,
        Some(last) => ClusterError::Unreachable { tried, last: Box::new(last) }.into(),
    })
}

impl Report {
    /// True if no node has slots: the answering node was reset, or has not met the others.
    pub(super) fn is_empty(&self) -> bool {
        self.view.covered() == 0
    }

    fn rank(&self) -> (usize, i64) {
        (self.view.covered(), self.epoch)
    }
}

/// The error to report of two: one that shows a wrong kind of server, else the later one.
fn worse(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first @ Error::Cluster(_)) => first,
        _ => second,
    }
}

async fn ask_one(node: &Arc<Node>, zones: bool) -> Result<Report, Error> {
    let client = node.connected().await?;
    let questions = ["SLOTS", "INFO"].into_iter().chain(zones.then_some("SHARDS"));
    let questions: Vec<_> = questions.map(|what| Command::from_args(["CLUSTER", what])).collect();
    // Its callers limit the time: a node that is only slow keeps its connection.
    let sent = client.send(Commands::Many(questions.iter().collect()), None);
    let replies = sent.await.all().map_err(Error::from).inspect_err(|error| {
        if let Error::Lost(_) = error {
            node.lost(&client);
        }
    })?;
    let mut replies = replies.into_iter();
    let slots = match replies.next() {
        Some(Ok(slots)) => slots,
        Some(Err(error)) => {
            let disabled = error.message.contains("cluster support disabled");
            if disabled || error.message.starts_with("unknown command") {
                return Err(ClusterError::NotACluster { peer: node.name().clone(), error }.into());
            }
            return Err(error.into());
        }
        None => Value::Nil,
    };
    let view = View::read(&slots, node.address());
    let view = view.map_err(|reason| ClusterError::BadMap { peer: node.name().clone(), reason })?;
    let info = replies.next().and_then(Result::ok);
    let epoch = info.as_ref().and_then(Value::as_str).and_then(current_epoch).unwrap_or(0);
    let shards = replies.next().and_then(Result::ok);
    Ok(Report { view, epoch, zones: shards.as_ref().map(read_zones).unwrap_or_default() })
}

/// The slots that a node says it serves itself.
pub(super) async fn own_slots(node: &Arc<Node>) -> Result<Vec<RangeInclusive<u16>>, Error> {
    let view = ask_one(node, false).await?.view;
    let id = node.facts().id;
    let is_its =
        |primary: &ViewNode| primary.address == *node.address() || primary.id.is_some() && primary.id == id;
    let ranges = view.ranges.iter();
    let own = ranges.filter(|range| view.shards[range.shard].first().is_some_and(is_its));
    Ok(own.map(|range| range.first..=range.last).collect())
}

fn current_epoch(info: &str) -> Option<i64> {
    info.lines().find_map(|line| line.strip_prefix("cluster_current_epoch:")?.trim().parse().ok())
}

/// The availability zones in a reply to CLUSTER SHARDS, by node id.
fn read_zones(shards: &Value) -> HashMap<String, Arc<str>> {
    let nodes = shards.as_slice().into_iter().flatten().filter_map(|shard| field(shard, "nodes")?.as_slice());
    let zone = |node: &Value| {
        let zone = field(node, "availability-zone")?.as_str().filter(|zone| !zone.is_empty())?;
        Some((field(node, "id")?.as_str()?.to_owned(), zone.into()))
    };
    nodes.flatten().filter_map(zone).collect()
}

/// A field of a map, or of an array of names and values, as RESP2 has them.
pub(super) fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| key.as_str() == Some(name)).map(|(_, value)| value),
        other => {
            let mut pairs = other.as_slice()?.chunks_exact(2);
            pairs.find(|pair| pair[0].as_str() == Some(name)).map(|pair| &pair[1])
        }
    }
}
