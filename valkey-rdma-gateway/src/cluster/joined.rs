//! [`Joined`]: one reply, in the shape of a single server's, from the replies of several nodes.
//!
//! The library lists some of these replies by node. Local clients believe that they talk to one server.

mod latency;

use std::collections::HashSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;
use valkey_rdma_client::cluster::{NodeStatus, Route};
use valkey_rdma_client::{Client, ClusterError, Command, Error, Fate, Value};
use valkey_rdma_resp::{Reply, integer, words};

use super::failure::{partial, passes};
use super::info::PATIENCE;
use super::{Member, command_on, nodes};
use crate::command::words::is;
use crate::observe::seldom::Seldom;

/// How the replies of several nodes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// One row for each event: its newest spike, and the highest of all.
    Events,
    /// The samples of all nodes, oldest first.
    Samples,
    /// The distribution of each command over all nodes.
    Histograms,
    /// The texts of all nodes, each below its node's address; one text if all say the same.
    Texts,
    /// The reply of the node where a function or script runs, or of any.
    Running,
    /// One of those that are not null.
    Any,
    /// The rows of all nodes, newest first, up to this many.
    Newest(usize),
    /// Each item once.
    Distinct,
    /// Pairs of name and number, in the order that was asked for; the numbers are added.
    Counts,
    /// The sum of numbers.
    Sum,
}

impl Joined {
    /// How the replies to this command are joined, if not as the library does.
    pub(super) fn of(command: &[u8]) -> Option<Self> {
        let mut words = words(command);
        let name = words.next()?;
        if is(name, "RANDOMKEY") {
            return Some(Self::Any);
        }
        let container = CONTAINERS.into_iter().find(|container| is(name, container))?;
        let sub = words.next()?.to_ascii_uppercase();
        Some(match (container, &sub[..]) {
            ("LATENCY", b"LATEST") => Self::Events,
            ("LATENCY", b"HISTORY") => Self::Samples,
            ("LATENCY", b"HISTOGRAM") => Self::Histograms,
            ("LATENCY", b"DOCTOR" | b"GRAPH") | ("MEMORY", b"DOCTOR" | b"MALLOC-STATS") => Self::Texts,
            ("FUNCTION", b"STATS") => Self::Running,
            ("LATENCY", b"RESET") | ("SLOWLOG" | "COMMANDLOG", b"LEN") => Self::Sum,
            ("SLOWLOG" | "COMMANDLOG", b"GET") => {
                let count = words.next().map_or(Some(SLOWLOG_ROWS), integer::parse);
                // -1: all.
                Self::Newest(count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX))
            }
            ("PUBSUB", b"CHANNELS" | b"SHARDCHANNELS") => Self::Distinct,
            ("PUBSUB", b"NUMSUB" | b"SHARDNUMSUB") => Self::Counts,
            ("PUBSUB", b"NUMPAT") => Self::Sum,
            _ => return None,
        })
    }

    /// Asks the nodes, and joins their replies.
    pub(super) async fn ask(self, client: &Client, command: Command) -> Result<Value, Error> {
        let command = command.idempotent();
        let asked = by_node(client, &command, nodes(client), PATIENCE);
        let Answers { replies: nodes, refusals, .. } = asked.await;
        match refusals.into_iter().next() {
            // A node may have no samples for the graph of an event that another one has had.
            Some(refusal) if nodes.is_empty() || self != Self::Texts => return Err(refusal),
            None if nodes.is_empty() => return command_on(client, Route::Any, command).await,
            _ => {}
        }
        Ok(self.join(match self {
            Self::Newest(_) | Self::Distinct => {
                Value::Array(rows(nodes.into_iter().map(|(_, reply)| reply).collect()))
            }
            _ => Value::Map(nodes),
        }))
    }

    /// `replies`: a map from node to reply, or the rows of all nodes in one array. Anything else stays unchanged.
    fn join(self, replies: Value) -> Value {
        match (self, replies) {
            (Self::Newest(most), Value::Array(mut rows)) => {
                rows.sort_by_key(|row| std::cmp::Reverse(at(row, 1)));
                rows.truncate(most);
                Value::Array(rows)
            }
            (Self::Distinct, Value::Array(items)) => {
                let mut seen = HashSet::new();
                let is_new = |item: &Value| seen.insert(item.as_bytes().map(Bytes::copy_from_slice));
                Value::Array(items.into_iter().filter(is_new).collect())
            }
            (_, Value::Map(nodes)) => self.join_nodes(nodes),
            (_, other) => other,
        }
    }

    fn join_nodes(self, nodes: Vec<(Value, Value)>) -> Value {
        if self == Self::Texts {
            return texts(nodes);
        }
        let mut replies: Vec<_> = nodes.into_iter().map(|(_, reply)| reply).collect();
        match self {
            Self::Events => latency::events(rows(replies)),
            Self::Samples => latency::samples(rows(replies)),
            Self::Histograms => latency::histograms(replies),
            Self::Counts => added(replies),
            Self::Sum => Value::Int(replies.iter().filter_map(Value::as_int).sum()),
            Self::Running => {
                let running = replies.iter().position(is_running).unwrap_or(0);
                if replies.is_empty() { Value::Nil } else { replies.swap_remove(running) }
            }
            _ => {
                replies.retain(|reply| !reply.is_nil());
                match replies.len() {
                    0 => Value::Nil,
                    len => replies.swap_remove(fastrand::usize(..len)),
                }
            }
        }
    }
}

/// Sends a command to all primaries, or to all nodes. A failure of some of them is an answer: the client is not closed for one node that is away.
pub(super) async fn on_several(
    member: &Member,
    client: &Client,
    command: Command,
    all: bool,
) -> Result<Reply, Error> {
    let outcome = match all {
        true => on_all_nodes(client, command, member.core.limits().offline()).await,
        false => client.command(command).await,
    };
    outcome.map(Reply::from).or_else(|error| {
        let Some(reply) = partial(&error) else { return Err(error) };
        member.metrics.may_have_run.add((error.fate() == Fate::MayHaveRun).into());
        Ok(reply)
    })
}

/// Sends a command to all nodes that each of them carries out, such as SCRIPT LOAD and CONFIG SET. The primaries answer it, or their successors.
/// Replicas that are away, or do not answer within `patience`, are left out: the reply of one server does not depend on its replicas either.
async fn on_all_nodes(client: &Client, command: Command, patience: Duration) -> Result<Value, Error> {
    let (primaries, replicas): (Vec<_>, Vec<_>) = nodes(client).into_iter().partition(|node| node.is_primary);
    let parts = primaries.len() + replicas.len();
    let answered = command_on(client, Route::AllPrimaries, command.clone());
    let (answered, others) = tokio::join!(answered, by_node(client, &command, replicas, patience));
    let reply = answered?;
    if !others.left_out.is_empty()
        && let Some(unlogged) = LEFT_OUT.pass(Instant::now())
    {
        let nodes = others.left_out.join(" ");
        warn!(%nodes, ?command, unlogged, "replicas are left out of a command for all nodes");
    }
    let failed = others.refusals.len();
    match others.refusals.into_iter().next() {
        Some(first) => Err(ClusterError::Partial { failed, parts, first: Box::new(first) }.into()),
        None => Ok(reply),
    }
}

/// What nodes say to a command.
struct Answers {
    /// Each with the node's name.
    replies: Vec<(Value, Value)>,
    refusals: Vec<Error>,
    /// The names of the others.
    left_out: Vec<String>,
}

/// Asks nodes at once. One that does not answer within `patience` is left out, because one server would answer. So is one that is silent already,
/// without being asked: it may be frozen. One that could not be reached the last time has a moment: nothing else connects to a replica.
async fn by_node(client: &Client, command: &Command, nodes: Vec<NodeStatus>, patience: Duration) -> Answers {
    let (silent, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.silent_for.is_some());
    let mut asked = JoinSet::new();
    for (at, node) in others.into_iter().enumerate() {
        let (client, command) = (client.clone(), command.clone());
        let patience = if node.error.is_some() { MOMENT } else { patience };
        asked.spawn(async move {
            let name = node.address.to_string();
            (at, name, timeout(patience, command_on(&client, Route::Node(node.address), command)).await)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(at, ..)| *at);
    let (mut replies, mut refusals) = (Vec::new(), Vec::new());
    let mut left_out: Vec<_> = silent.iter().map(|node| node.address.to_string()).collect();
    for (_, name, answer) in answers {
        match answer {
            Ok(Ok(reply)) => replies.push((Value::Bulk(name.into()), reply)),
            Ok(Err(error)) if error.server().is_some() && !passes(&error) => refusals.push(error),
            Ok(Err(_)) | Err(_) => left_out.push(name),
        }
    }
    Answers { replies, refusals, left_out }
}

/// Names and values of a map, which RESP2 sends as an array.
fn pairs(value: Value) -> Vec<(Value, Value)> {
    match value {
        Value::Map(pairs) => pairs,
        Value::Array(items) => {
            let mut items = items.into_iter();
            std::iter::from_fn(|| items.next().zip(items.next())).collect()
        }
        _ => Vec::new(),
    }
}

/// The rows of all replies.
fn rows(replies: Vec<Value>) -> Vec<Value> {
    let rows = replies.into_iter().flat_map(|reply| match reply {
        Value::Array(rows) => rows,
        other => vec![other],
    });
    rows.collect()
}

/// A number of a row.
fn at(row: &Value, field: usize) -> i64 {
    row.as_slice().and_then(|fields| fields.get(field)?.as_int()).unwrap_or(0)
}

/// Whether a reply to FUNCTION STATS names a script that runs.
fn is_running(stats: &Value) -> bool {
    pairs(stats.clone())
        .iter()
        .any(|(name, value)| name.as_str() == Some("running_script") && !value.is_nil())
}

/// Texts for people. Those of the nodes that differ follow their addresses.
fn texts(nodes: Vec<(Value, Value)>) -> Value {
    let Some((_, first)) = nodes.first() else { return Value::Nil };
    if nodes.iter().all(|(_, text)| text == first) {
        return first.clone();
    }
    let format = match first {
        Value::Verbatim { format, .. } => Some(*format),
        _ => None,
    };
    let mut all = Vec::new();
    for (node, text) in &nodes {
        let (node, text) = (node.as_bytes().unwrap_or_default(), text.as_bytes().unwrap_or_default());
        all.extend_from_slice(&[node, b":\n", text.trim_ascii_end(), b"\n\n"].concat());
    }
    let text = Bytes::from(all);
    match format {
        Some(format) => Value::Verbatim { format, text },
        None => Value::Bulk(text),
    }
}

/// Names and numbers. All nodes list the names in the order of the command, which may have a name twice.
fn added(replies: Vec<Value>) -> Value {
    let mut sums: Vec<(Value, i64)> = Vec::new();
    for (node, reply) in replies.into_iter().enumerate() {
        for (at, (name, count)) in pairs(reply).into_iter().enumerate() {
            let count = count.as_int().unwrap_or(0);
            match sums.get_mut(at) {
                Some((known, sum)) if *known == name => *sum += count,
                None if node == 0 => sums.push((name, count)),
                _ => {}
            }
        }
    }
    Value::Array(sums.into_iter().flat_map(|(name, sum)| [name, Value::Int(sum)]).collect())
}

/// Programs load their scripts again and again.
static LEFT_OUT: LazyLock<Seldom> = LazyLock::new(Seldom::default);
const CONTAINERS: [&str; 6] = ["PUBSUB", "LATENCY", "SLOWLOG", "COMMANDLOG", "MEMORY", "FUNCTION"];
/// How many rows SLOWLOG GET returns without a number.
const SLOWLOG_ROWS: i64 = 10;
/// Enough for a node that is there.
const MOMENT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests;
