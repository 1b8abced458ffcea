//! Sorted sets: members, scores and ranks. Ranges are in [`sorted_ranges`](super::sorted_ranges).

use bytes::Bytes;

use super::blocking::{block, seconds};
use super::keys::{ScanOptions, Scanned, portion};
use super::{AllButLast, Context, Entry, Failure, First, Outcome, Read, Write, count, row};
use crate::args::{float, lowercase};
use crate::store::{Database, SortedSet};
use crate::waiters::{Attempt, Awaited};
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("bzpopmax", -3, Write, AllButLast, "Removes the member with the highest score, or waits for one.", bzpopmax),
    row("bzpopmin", -3, Write, AllButLast, "Removes the member with the lowest score, or waits for one.", bzpopmin),
    row("zadd", -4, Write, First, "Adds members or changes their scores.", zadd),
    row("zcard", 2, Read, First, "Returns the number of members.", zcard),
    row("zincrby", 4, Write, First, "Increments the score of a member.", zincrby),
    row("zmscore", -3, Read, First, "Returns the scores of members.", zmscore),
    row("zpopmax", -2, Write, First, "Removes the members with the highest scores.", zpopmax),
    row("zpopmin", -2, Write, First, "Removes the members with the lowest scores.", zpopmin),
    row("zrank", -3, Read, First, "Returns the rank of a member.", zrank),
    row("zrem", -3, Write, First, "Removes members.", zrem),
    row("zrevrank", -3, Read, First, "Returns the rank of a member, counted from the highest score.", zrevrank),
    row("zscan", -3, Read, First, "Returns members in portions.", zscan),
    row("zscore", 3, Read, First, "Returns the score of a member.", zscore),
];

pub(super) fn sorted<'a>(database: &'a Database, key: &[u8]) -> Result<Option<&'a SortedSet>, Failure> {
    database.get::<SortedSet>(key)
}

/// Members, with their scores in the form of the connection's protocol: pairs in RESP3, one after the other in RESP2.
pub(super) fn scored<'a>(
    members: impl IntoIterator<Item = (&'a Bytes, f64)>,
    with_scores: bool,
    protocol: Protocol,
) -> Reply {
    let member = |member: &Bytes| Reply::Bulk(member.clone());
    Reply::Array(match (with_scores, protocol) {
        (false, _) => members.into_iter().map(|(name, _)| member(name)).collect(),
        (true, Protocol::Resp2) => {
            members.into_iter().flat_map(|(name, score)| [member(name), Reply::Double(score)]).collect()
        }
        (true, Protocol::Resp3) => members
            .into_iter()
            .map(|(name, score)| Reply::Array(vec![member(name), Reply::Double(score)]))
            .collect(),
    })
}

/// `ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]`
fn zadd(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut flags = AddFlags::default();
    let mut at = 1;
    while command.args().get(at).is_some_and(|option| flags.take(option)) {
        at += 1;
    }
    add(context, command, at, flags)
}

fn zincrby(context: &mut Context<'_>, command: &Command) -> Outcome {
    add(context, command, 1, AddFlags { increment: true, ..AddFlags::default() })
}

#[derive(Default, Clone, Copy)]
struct AddFlags {
    absent: bool,
    present: bool,
    greater: bool,
    less: bool,
    changed: bool,
    increment: bool,
}

impl AddFlags {
    /// `false`: not a flag.
    fn take(&mut self, option: &[u8]) -> bool {
        match lowercase(option).as_str() {
            "nx" => self.absent = true,
            "xx" => self.present = true,
            "gt" => self.greater = true,
            "lt" => self.less = true,
            "ch" => self.changed = true,
            "incr" => self.increment = true,
            _ => return false,
        }
        true
    }
}

/// `score member [score member ...]` from argument `at` on.
fn add(context: &mut Context<'_>, command: &Command, at: usize, flags: AddFlags) -> Outcome {
    let pairs = &command.args()[at.min(command.args().len())..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(Failure::SYNTAX);
    }
    if flags.absent && flags.present {
        return Err(Failure::new("ERR XX and NX options at the same time are not compatible"));
    }
    if flags.greater && flags.less || (flags.greater || flags.less) && flags.absent {
        return Err(Failure::new("ERR GT, LT, and/or NX options at the same time are not compatible"));
    }
    if flags.increment && pairs.len() > 2 {
        return Err(Failure::new("ERR INCR option supports a single increment-element pair"));
    }
    // All or nothing.
    let scores = pairs.iter().step_by(2).map(|score| float(score)).collect::<Result<Vec<_>, _>>()?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    let database = context.database();
    let key = &command.args()[0];
    if flags.present && sorted(database, key)?.is_none() {
        return Ok(if flags.increment { Reply::Null } else { Reply::Integer(0) });
    }
    database.edit_or_create(key, |set: &mut SortedSet| {
        for (pair, score) in pairs.chunks_exact(2).zip(scores) {
            let old = set.score(&pair[1]);
            let new = if flags.increment { old.unwrap_or(0.0) + score } else { score };
            if new.is_nan() {
                return Err(Failure::new("ERR resulting score is not a number (NaN)"));
            }
            let refused = match old {
                None => flags.present,
                Some(old) => flags.absent || flags.greater && new <= old || flags.less && new >= old,
            };
            last = None;
            if refused {
                continue;
            }
            last = Some(new);
            if set.set(&pair[1], new) {
                added += 1;
            } else if old != Some(new) {
                changed += 1;
            }
        }
        Ok(())
    })??;
    Ok(match (flags.increment, last) {
        (true, Some(score)) => Reply::Double(score),
        (true, None) => Reply::Null,
        (false, _) => count(added + if flags.changed { changed } else { 0 }),
    })
}

fn zcard(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(sorted(context.database(), &command.args()[0])?.map_or(0, SortedSet::len)))
}

fn zscore(context: &mut Context<'_>, command: &Command) -> Outcome {
    let set = sorted(context.database(), &command.args()[0])?;
    Ok(score_or_null(set.and_then(|set| set.score(&command.args()[1]))))
}

fn zmscore(context: &mut Context<'_>, command: &Command) -> Outcome {
    let set = sorted(context.database(), &command.args()[0])?;
    let scores = command.args()[1..].iter().map(|member| set.and_then(|set| set.score(member)));
    Ok(Reply::Array(scores.map(score_or_null).collect()))
}

fn score_or_null(score: Option<f64>) -> Reply {
    score.map_or(Reply::Null, Reply::Double)
}

fn zrem(context: &mut Context<'_>, command: &Command) -> Outcome {
    let removed = context.database().edit(&command.args()[0], |set: &mut SortedSet| {
        command.args()[1..].iter().filter(|member| set.remove(member).is_some()).count()
    })?;
    Ok(count(removed.unwrap_or(0)))
}

fn zrank(context: &mut Context<'_>, command: &Command) -> Outcome {
    rank(context, command, false, "zrank")
}

fn zrevrank(context: &mut Context<'_>, command: &Command) -> Outcome {
    rank(context, command, true, "zrevrank")
}

/// `... key member [WITHSCORE]`
fn rank(context: &mut Context<'_>, command: &Command, reverse: bool, name: &str) -> Outcome {
    let with_score = match &command.args()[2..] {
        [] => false,
        [option] if lowercase(option).as_str() == "withscore" => true,
        [_] => return Err(Failure::SYNTAX),
        _ => return Err(Failure::wrong_arity(name)),
    };
    let member = &command.args()[1];
    let set = sorted(context.database(), &command.args()[0])?;
    let found = set.and_then(|set| Some((set.rank(member)?, set.score(member)?, set.len())));
    Ok(match found {
        None if with_score => Reply::NullArray,
        None => Reply::Null,
        Some((rank, score, len)) => {
            let rank = count(if reverse { len - 1 - rank } else { rank });
            if with_score { Reply::Array(vec![rank, Reply::Double(score)]) } else { rank }
        }
    })
}

fn zpopmin(context: &mut Context<'_>, command: &Command) -> Outcome {
    pop(context, command, false)
}

fn zpopmax(context: &mut Context<'_>, command: &Command) -> Outcome {
    pop(context, command, true)
}

/// `... key [count]`
fn pop(context: &mut Context<'_>, command: &Command, highest: bool) -> Outcome {
    let limit = match &command.args()[1..] {
        [] => None,
        [limit] => {
            let limit = valkey_rdma_resp::integer::parse(limit).and_then(|limit| usize::try_from(limit).ok());
            Some(limit.ok_or(Failure::NOT_POSITIVE)?)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let protocol = context.client().protocol;
    let popped = context
        .database()
        .edit(&command.args()[0], |set: &mut SortedSet| pop_some(set, highest, limit.unwrap_or(1)))?;
    let popped = popped.unwrap_or_default();
    // Without a count RESP3 has no pairs either.
    let protocol = if limit.is_none() { Protocol::Resp2 } else { protocol };
    Ok(scored(popped.iter().map(|(member, score)| (member, *score)), true, protocol))
}

fn pop_some(set: &mut SortedSet, highest: bool, limit: usize) -> Vec<(Bytes, f64)> {
    (0..limit.min(set.len())).filter_map(|_| set.pop(highest)).collect()
}

fn bzpopmin(context: &mut Context<'_>, command: &Command) -> Outcome {
    block_pop(context, command, |database, command| try_pop(database, command, false))
}

fn bzpopmax(context: &mut Context<'_>, command: &Command) -> Outcome {
    block_pop(context, command, |database, command| try_pop(database, command, true))
}

/// `... key [key ...] timeout`
fn block_pop(context: &mut Context<'_>, command: &Command, attempt: Attempt) -> Outcome {
    let (keys, timeout) = command.args().split_at(command.args().len() - 1);
    let timeout = seconds(&timeout[0])?;
    block(context, command, keys, timeout, Reply::NullArray, Awaited::SortedSet, attempt)
}

fn try_pop(database: &mut Database, command: &Command, highest: bool) -> Result<Option<Reply>, Failure> {
    for key in &command.args()[..command.args().len() - 1] {
        if let Some(Some((member, score))) = database.edit(key, |set: &mut SortedSet| set.pop(highest))? {
            let parts = vec![Reply::Bulk(key.clone()), Reply::Bulk(member), Reply::Double(score)];
            return Ok(Some(Reply::Array(parts)));
        }
    }
    Ok(None)
}

/// A set of this many members is returned in one page, ordered by score.
const SMALL: usize = 128;

/// `ZSCAN key cursor [MATCH pattern] [COUNT count]`: scores are strings here, in RESP3 too.
fn zscan(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (cursor, options) = ScanOptions::parse(&command.args()[1..], Scanned::Members)?;
    let Some(set) = sorted(context.database(), &command.args()[0])? else { return Ok(portion(0, vec![])) };
    let (next, places) = options.portion(cursor, set.len(), SMALL);
    let page: Vec<(&Bytes, f64)> = if set.len() <= SMALL {
        set.iter().collect()
    } else {
        places.into_iter().filter_map(|place| set.at(place)).collect()
    };
    let found = page.into_iter().filter(|(member, _)| options.matches(member));
    let items = found.flat_map(|(member, score)| {
        [Reply::Bulk(member.clone()), Reply::bulk(valkey_rdma_resp::double(score))]
    });
    Ok(portion(next, items.collect()))
}
