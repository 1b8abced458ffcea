//! Replies to LATENCY of several nodes, joined.

use std::collections::{BTreeMap, BTreeSet};

use valkey_rdma_client::Value;

use super::{at, pairs};

/// Rows of LATENCY LATEST, one for each event: `[event, time of the newest spike, its milliseconds, the highest, sum, count]`. The last two
/// came with Valkey 8.1.
pub(super) fn events(rows: Vec<Value>) -> Value {
    let mut joined: Vec<Vec<Value>> = Vec::new();
    for row in rows {
        let Value::Array(mut row) = row else { continue };
        match joined.iter_mut().find(|known| known.first() == row.first()) {
            None => joined.push(row),
            Some(known) => {
                if number(known, 1) < number(&row, 1) {
                    std::mem::swap(known, &mut row);
                }
                for field in 3..known.len() {
                    let (one, other) = (number(known, field), number(&row, field));
                    let all = if field == 3 { one.max(other) } else { one.saturating_add(other) };
                    known[field] = Value::Int(all);
                }
            }
        }
    }
    Value::Array(joined.into_iter().map(Value::Array).collect())
}

/// Rows of LATENCY HISTORY, `[time, milliseconds]`, oldest first.
pub(super) fn samples(mut rows: Vec<Value>) -> Value {
    rows.sort_by_key(|row| at(row, 0));
    Value::Array(rows)
}

/// Replies to LATENCY HISTOGRAM. For each command: how often it ran (`calls`), and how often within each limit in microseconds (`histogram_usec`).
pub(super) fn histograms(replies: Vec<Value>) -> Value {
    let mut joined: Vec<(Value, i64, Vec<Steps>)> = Vec::new();
    for (command, description) in replies.into_iter().flat_map(pairs) {
        let (mut calls, mut steps) = (0, BTreeMap::new());
        for (name, value) in pairs(description) {
            match name.as_str() {
                Some("calls") => calls = value.as_int().unwrap_or(0),
                Some("histogram_usec") => {
                    let step = |(limit, count): (Value, Value)| Some((limit.as_int()?, count.as_int()?));
                    steps = pairs(value).into_iter().filter_map(step).collect();
                }
                _ => {}
            }
        }
        match joined.iter_mut().find(|(known, ..)| *known == command) {
            Some((_, all, nodes)) => {
                *all = all.saturating_add(calls);
                nodes.push(steps);
            }
            None => joined.push((command, calls, vec![steps])),
        }
    }
    let described = joined.into_iter().map(|(command, calls, nodes)| {
        let steps = added(&nodes).into_iter().map(|(limit, count)| (Value::Int(limit), Value::Int(count)));
        let fields = [("calls", Value::Int(calls)), ("histogram_usec", Value::Map(steps.collect()))];
        let fields = fields.map(|(name, value)| (Value::Bulk(name.into()), value));
        (command, Value::Map(fields.to_vec()))
    });
    Value::Map(described.collect())
}

/// A distribution: limits in microseconds, and how many calls were within each. Limits where the number does not grow are left out.
type Steps = BTreeMap<i64, i64>;

/// The sum of distributions.
fn added(nodes: &[Steps]) -> Steps {
    let limits: BTreeSet<i64> = nodes.iter().flat_map(|steps| steps.keys().copied()).collect();
    let within = |steps: &Steps, limit: i64| steps.range(..=limit).next_back().map_or(0, |(_, count)| *count);
    limits.into_iter().map(|limit| (limit, nodes.iter().map(|steps| within(steps, limit)).sum())).collect()
}

fn number(row: &[Value], field: usize) -> i64 {
    row.get(field).and_then(Value::as_int).unwrap_or(0)
}
