//! Asks nodes for the slot map, and chooses among their answers.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};
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

/// The nodes to ask, and how to recognize another cluster.
#[derive(Default)]
pub(super) struct Sources {
    /// The nodes of the present map, the most promising first.
    pub(super) nodes: Vec<Arc<Node>>,
    /// The nodes that the program has named.
    pub(super) seeds: Vec<Arc<Node>>,
    /// The ids of the nodes of the present map. Without them, every answer is about this cluster.
    pub(super) ids: HashSet<String>,
}

/// What a node says of its cluster.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) view: View,
    /// The id that the node says it has.
    pub(super) id: Option<String>,
    /// The highest configuration epoch that the node has heard of: it grows with every failover and every slot moved.
    pub(super) epoch: i64,
    /// The availability zones of nodes, by their id; asked for only if they matter.
    pub(super) zones: HashMap<String, Arc<str>>,
}

/// What a node is asked.
#[derive(Clone, Copy, Default)]
struct Question {
    /// The availability zones too.
    zones: bool,
    /// A node of another cluster may answer.
    of_any_cluster: bool,
}

/// Asks nodes, some at a time and in this order, until one knows the cluster: first those of the map, then the seeds. [`choose`] says which of
/// several answers counts.
///
/// The address of a node that is gone may belong to another cluster by now, so a map without any node of the present one does not count. Only
/// when no node of the cluster answers, it may have been replaced by a new one. Then the seeds decide: the program has named them.
pub(super) async fn ask(sources: &Sources, limit: Duration, zones: bool) -> Result<Report, Error> {
    let Sources { nodes, seeds, ids } = sources;
    let is_node = |seed: &&Arc<Node>| nodes.iter().any(|node| Arc::ptr_eq(node, seed));
    let others: Vec<_> = seeds.iter().filter(|seed| !is_node(seed)).cloned().collect();
    let groups = [nodes.as_slice(), others.as_slice()];
    let mut heard = listen(&groups, ids, Question { zones, of_any_cluster: false }, limit).await;
    if heard.met_strangers && !heard.knows_slots() {
        let any = listen(&[seeds.as_slice()], ids, Question { zones, of_any_cluster: true }, limit).await;
        if any.knows_slots() {
            warn!("no node of the cluster answers: the cluster that the seeds lead to now replaces it");
            heard = any;
        }
    }
    let Heard { reports, last, .. } = heard;
    let tried = nodes.len() + others.len();
    choose(reports, ids).ok_or_else(|| match last {
        None => EndpointError::NoSeeds.into(),
        Some(only) if tried == 1 => only,
        // What the server says is worth more than that others are down.
        Some(answered @ Error::Cluster(_)) => answered,
        Some(last) => ClusterError::Unreachable { tried, last: Box::new(last) }.into(),
    })
}

/// What nodes have answered.
#[derive(Default)]
struct Heard {
    reports: Vec<Report>,
    /// Why a node has given no report.
    last: Option<Error>,
    /// A node of another cluster has answered.
    met_strangers: bool,
}

impl Heard {
    fn knows_slots(&self) -> bool {
        !self.reports.iter().all(Report::is_empty)
    }
}

async fn listen(
    groups: &[&[Arc<Node>]],
    ids: &HashSet<String>,
    question: Question,
    limit: Duration,
) -> Heard {
    let mut heard = Heard::default();
    let parts: Vec<_> = groups.iter().flat_map(|nodes| nodes.chunks(ASKED_AT_ONCE)).collect();
    for asked in parts {
        let mut answers = JoinSet::new();
        for node in asked {
            let node = node.clone();
            answers.spawn(async move {
                let answer = timeout(limit.saturating_add(CONNECT_SAYS_WHY), ask_one(&node, question)).await;
                let answer = answer.unwrap_or_else(|_| {
                    Err(TimedOut { peer: node.name().clone(), limit, may_have_run: false }.into())
                });
                (node, answer)
            });
        }
        let mut until = None;
        loop {
            let next = match until {
                None => answers.join_next().await,
                // The rest is dropped.
                Some(until) => timeout_at(until, answers.join_next()).await.unwrap_or(None),
            };
            // All have answered, or the runtime shuts down.
            let Some(Ok((node, answer))) = next else { break };
            let checked = |report: Report| match question.of_any_cluster || report.view.is_of(ids) {
                true => Ok(report),
                false => Err(Error::from(ClusterError::AnotherCluster { peer: node.name().clone() })),
            };
            match answer.and_then(checked) {
                Ok(report) => {
                    if !report.is_empty() {
                        until.get_or_insert_with(|| Instant::now() + OTHER_ANSWERS);
                    }
                    heard.reports.push(report);
                }
                Err(error) => {
                    debug!(error = %format_args!("{error:#}"), "a node did not describe the cluster");
                    heard.met_strangers |= error.is_another_cluster();
                    heard.last = Some(worse(heard.last.take(), error));
                }
            }
        }
        if heard.knows_slots() {
            break;
        }
    }
    heard
}

/// The report that counts: one with slots, and of the present cluster, if there is such a one. Of different clusters, the one that more nodes
/// report. Of one cluster, the most slots and then the latest epoch.
fn choose(mut reports: Vec<Report>, present: &HashSet<String>) -> Option<Report> {
    let clusters: Vec<_> = reports.iter().map(|report| report.view.ids()).collect();
    let rank = |report: &Report| {
        let agreeing = clusters.iter().filter(|ids| report.view.is_of(ids)).count();
        (!report.is_empty(), report.view.is_of(present), agreeing, report.view.covered(), report.epoch)
    };
    let best = (0..reports.len()).max_by_key(|at| rank(&reports[*at]))?;
    Some(reports.swap_remove(best))
}

impl Report {
    /// True if no node has slots: the answering node was reset, or has not met the others.
    pub(super) fn is_empty(&self) -> bool {
        self.view.covered() == 0
    }
}

/// The error to report of two: one that shows a wrong kind of server, or one of another cluster, else the later one.
fn worse(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first) if matches!(first, Error::Cluster(_)) || first.is_another_cluster() => first,
        _ => second,
    }
}

async fn ask_one(node: &Arc<Node>, question: Question) -> Result<Report, Error> {
    let client = match question.of_any_cluster {
        false => node.connected().await?,
        true => node.connect_to_any().boxed().await?,
    };
    let questions = ["SLOTS", "INFO", "MYID"].into_iter().chain(question.zones.then_some("SHARDS"));
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
    let mut next = || replies.next().and_then(Result::ok);
    let (info, id, shards) = (next(), next(), next());
    let id = id.filter(|id| matches!(id, Value::Bulk(_))).as_ref().and_then(Value::as_str).map(str::to_owned);
    if let Some(id) = &id {
        node.said_id(id);
    }
    let known_id = id.clone().or_else(|| node.facts().id);
    let view = View::read(&slots, node.address(), known_id.as_deref());
    let view = view.map_err(|reason| ClusterError::BadMap { peer: node.name().clone(), reason })?;
    let epoch = info.as_ref().and_then(Value::as_str).and_then(current_epoch).unwrap_or(0);
    Ok(Report { view, id, epoch, zones: shards.as_ref().map(read_zones).unwrap_or_default() })
}

/// The slots that a node says it serves itself.
pub(super) async fn own_slots(node: &Arc<Node>) -> Result<Vec<RangeInclusive<u16>>, Error> {
    let view = ask_one(node, Question::default()).await?.view;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::NodeAddress;

    /// The map of primaries with these hosts and ids, and ten slots each.
    fn report(epoch: i64, primaries: &[(&'static str, Option<&'static str>)]) -> Report {
        let text = |text: &'static str| Value::Bulk(text.into());
        let ranges = (0..).zip(primaries).map(|(at, &(host, id))| {
            let node = [Some(text(host)), Some(Value::Int(1)), id.map(text)].into_iter().flatten();
            Value::Array(vec![Value::Int(10 * at), Value::Int(10 * at + 9), Value::Array(node.collect())])
        });
        let slots = Value::Array(ranges.collect());
        let view = View::read(&slots, &NodeAddress::new("seed", 1), None).expect("a map");
        Report { view, id: None, epoch, zones: HashMap::new() }
    }

    /// The epoch of the report that counts, in any order of the answers.
    fn chosen(reports: &[Report], present: &HashSet<String>) -> i64 {
        let reversed: Vec<_> = reports.iter().rev().cloned().collect();
        let [one, other] = [reports.to_vec(), reversed]
            .map(|reports| choose(reports, present).map_or(-1, |report| report.epoch));
        assert_eq!(one, other);
        one
    }

    #[test]
    fn of_one_cluster_the_most_slots_and_then_the_latest_epoch_count() {
        let any = HashSet::new();
        let (a, b, new) = (("a", Some("id-a")), ("b", Some("id-b")), ("c", Some("id-c")));
        assert_eq!(chosen(&[report(1, &[a, b]), report(2, &[a, new])], &any), 2);
        assert_eq!(chosen(&[report(1, &[a, b]), report(2, &[a])], &any), 1);
        assert_eq!(chosen(&[report(1, &[a]), report(9, &[])], &any), 1);
        assert_eq!(chosen(&[report(1, &[("a", None)]), report(2, &[("b", None)])], &any), 2, "without ids");
    }

    #[test]
    fn a_cluster_that_more_nodes_report_counts_more_than_a_later_epoch_of_another() {
        let (a, b, other) = (("a", Some("id-a")), ("b", Some("id-b")), ("a", Some("id-other")));
        let reports = [report(1, &[a, b]), report(21, &[other, ("c", Some("id-c"))]), report(2, &[a, b])];
        assert_eq!(chosen(&reports, &HashSet::new()), 2);
    }

    #[test]
    fn the_present_cluster_counts_more_than_any_number_of_nodes_of_another() {
        let (a, other) = (("a", Some("id-a")), ("b", Some("id-other")));
        let reports = [report(21, &[other]), report(2, &[a]), report(22, &[other])];
        assert_eq!(chosen(&reports, &HashSet::from(["id-a".to_owned()])), 2);
        assert_eq!(chosen(&reports, &HashSet::new()), 22);
    }
}
