//! `SORT`.

use std::cmp::Ordering;

use bytes::Bytes;

use super::{Context, Failure, Outcome, count, value_or_null};
use crate::args::{Options, integer, lowercase};
use crate::decimal;
use crate::store::{Database, End, Expiry, Hash, List, Value};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

pub(super) fn sort(context: &mut Context<'_>, command: &Command) -> Outcome {
    run(context, command, true)
}

pub(super) fn sort_ro(context: &mut Context<'_>, command: &Command) -> Outcome {
    run(context, command, false)
}

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC | DESC] [ALPHA] [STORE destination]`
fn run(context: &mut Context<'_>, command: &Command, may_store: bool) -> Outcome {
    let (mut by, mut limit, mut get, mut descending, mut alpha, mut destination) =
        (None, (0, -1), Vec::new(), false, false, None);
    let mut options = Options::new(&command.args()[1..]);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "asc" => descending = false,
            "desc" => descending = true,
            "alpha" => alpha = true,
            "limit" if options.len() >= 2 => limit = (integer(options.value()?)?, integer(options.value()?)?),
            "by" => by = Some(options.value()?),
            "get" => get.push(options.value()?),
            "store" if may_store => destination = Some(options.value()?),
            _ => return Err(Failure::SYNTAX),
        }
    }
    let database = context.database();
    let mut items: Vec<Bytes> = match database.value(&command.args()[0]) {
        None => Vec::new(),
        Some(Value::List(list)) => list.iter().cloned().collect(),
        Some(Value::Set(set)) => set.iter().cloned().collect(),
        Some(Value::SortedSet(set)) => set.iter().map(|(member, _)| member.clone()).collect(),
        Some(_) => return Err(Failure::WRONG_TYPE),
    };
    // A pattern without `*` is the same for all: no sorting.
    if by.is_none_or(|by| by.contains(&b'*')) {
        let weight = |item: &Bytes| match by {
            Some(pattern) => lookup(database, pattern, item),
            None => Some(item.clone()),
        };
        let mut weighted: Vec<(Option<Bytes>, f64, Bytes)> = Vec::with_capacity(items.len());
        for item in items {
            let weight = weight(&item);
            let number = match &weight {
                Some(text) if !alpha => decimal::parse(text)
                    .ok_or(Failure::new("ERR One or more scores can't be converted into double"))?,
                _ => 0.0,
            };
            weighted.push((weight, number, item));
        }
        weighted.sort_by(|one, other| {
            let order = if alpha {
                one.0.cmp(&other.0)
            } else {
                one.1.partial_cmp(&other.1).unwrap_or(Ordering::Equal)
            };
            let order = order.then_with(|| one.2.cmp(&other.2));
            if descending { order.reverse() } else { order }
        });
        items = weighted.into_iter().map(|(_, _, item)| item).collect();
    }
    let start = usize::try_from(limit.0).unwrap_or(0);
    let shown = usize::try_from(limit.1).unwrap_or(usize::MAX);
    let items = items.into_iter().skip(start).take(shown);
    if get.len() > 1 && items.len().saturating_mul(get.len()) > MAX_LOOKUPS {
        return Err(Failure::new("ERR too many items by GET patterns, over 1048576 values"));
    }
    let found: Vec<Option<Bytes>> = items
        .flat_map(|item| {
            if get.is_empty() {
                return vec![Some(item)];
            }
            get.iter().map(|pattern| lookup(database, pattern, &item)).collect()
        })
        .collect();
    let Some(destination) = destination else {
        return Ok(Reply::Array(found.into_iter().map(value_or_null).collect()));
    };
    let len = found.len();
    let mut list = List::default();
    for item in found {
        list.push(End::Right, item.unwrap_or_default());
    }
    database.set(destination, Value::List(list), Expiry::Never);
    Ok(count(len))
}

/// Values that several `GET` patterns together may find: a short command must not ask for any number of them.
const MAX_LOOKUPS: usize = 1 << 20;

/// What a pattern leads to: `#` to the item itself, `key*` to a string, `key*->field` to a field of a hash.
fn lookup(database: &Database, pattern: &Bytes, item: &Bytes) -> Option<Bytes> {
    if &pattern[..] == b"#" {
        return Some(item.clone());
    }
    let star = pattern.iter().position(|byte| *byte == b'*')?;
    let arrow = pattern.windows(2).skip(star).position(|pair| pair == b"->").map(|at| at + star);
    let (end, field) = match arrow {
        Some(at) if at + 2 < pattern.len() => (at, Some(&pattern[at + 2..])),
        _ => (pattern.len(), None),
    };
    let key = [&pattern[..star], item, &pattern[star + 1..end]].concat();
    match field {
        None => database.get::<Bytes>(&key).ok()?.cloned(),
        Some(field) => database.get::<Hash>(&key).ok()??.get(field).cloned(),
    }
}
