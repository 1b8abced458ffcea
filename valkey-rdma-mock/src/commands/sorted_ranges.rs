//! Ranges of sorted sets, by rank, by score and by member.

use bytes::Bytes;

use super::sorted_sets::{scored, sorted};
use super::{Context, Entry, Failure, First, Outcome, Read, Write, count, row};
use crate::args::{Options, float, integer, lowercase, range};
use crate::store::{Bound, SortedSet};
use valkey_rdma_server::Command;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("zcount", 4, Read, First, "Counts the members with scores in a range.", zcount),
    row("zrange", -4, Read, First, "Returns the members of a range of ranks, scores or members.", zrange),
    row("zrangebyscore", -4, Read, First, "Returns the members with scores in a range.", zrangebyscore),
    row("zremrangebyrank", 4, Write, First, "Removes the members of a range of ranks.", zremrangebyrank),
    row("zremrangebyscore", 4, Write, First, "Removes the members with scores in a range.", zremrangebyscore),
    row("zrevrange", -4, Read, First, "Returns the members of a range of ranks, the highest first.", zrevrange),
    row("zrevrangebyscore", -4, Read, First, "Returns the members with scores in a range, the highest first.", zrevrangebyscore),
];

/// What a range is made of, as given.
enum Range {
    Ranks(i64, i64),
    Scores(Bound, Bound),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Rank,
    Score,
}

struct Query {
    range: Range,
    reverse: bool,
    limit: Option<(i64, i64)>,
    with_scores: bool,
}

impl Query {
    /// Reads `first second [options]`. The older commands fix what the options of `ZRANGE` choose.
    fn parse(args: &[Bytes], fixed: Option<(By, bool)>) -> Result<Self, Failure> {
        let (mut by, mut reverse) = fixed.unwrap_or((By::Rank, false));
        let (mut limit, mut with_scores) = (None, false);
        let mut options = Options::new(&args[2..]);
        while let Some(option) = options.next() {
            match lowercase(option).as_str() {
                "withscores" => with_scores = true,
                "limit" if options.len() >= 2 => {
                    limit = Some((integer(options.value()?)?, integer(options.value()?)?))
                }
                "byscore" if fixed.is_none() => by = By::Score,
                "rev" if fixed.is_none() => reverse = true,
                _ => return Err(Failure::SYNTAX),
            }
        }
        if limit.is_some() && by == By::Rank {
            return Err(Failure::new(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        // In reverse the higher bound comes first.
        let (low, high) = if reverse && by != By::Rank { (&args[1], &args[0]) } else { (&args[0], &args[1]) };
        let range = match by {
            By::Rank => Range::Ranks(integer(low)?, integer(high)?),
            By::Score => {
                let (low, high) = score_bounds(low, high)?;
                Range::Scores(low, high)
            }
        };
        Ok(Self { range, reverse, limit, with_scores })
    }

    fn run<'a>(&self, set: &'a SortedSet) -> Vec<(&'a Bytes, f64)> {
        let found: Vec<(&Bytes, f64)> = match &self.range {
            Range::Ranks(start, stop) => {
                let ranks = range(*start, *stop, set.len());
                return if self.reverse {
                    set.iter().rev().skip(ranks.start).take(ranks.len()).collect()
                } else {
                    set.iter().skip(ranks.start).take(ranks.len()).collect()
                };
            }
            Range::Scores(min, max) if self.reverse => set.by_score(*min, *max).rev().collect(),
            Range::Scores(min, max) => set.by_score(*min, *max).collect(),
        };
        let (offset, number) = self.limit.unwrap_or((0, -1));
        // A negative offset shows nothing, a negative count all.
        let Ok(offset) = usize::try_from(offset) else { return Vec::new() };
        found.into_iter().skip(offset).take(usize::try_from(number).unwrap_or(usize::MAX)).collect()
    }
}

fn score_bounds(low: &[u8], high: &[u8]) -> Result<(Bound, Bound), Failure> {
    let bound = |text: &[u8]| {
        let (exclusive, number) = match text {
            [b'(', number @ ..] => (true, number),
            number => (false, number),
        };
        let score = float(number).map_err(|_| Failure::new("ERR min or max is not a float"))?;
        Ok::<_, Failure>(Bound { score, exclusive })
    };
    Ok((bound(low)?, bound(high)?))
}

/// `ZRANGE key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]`
pub(super) fn zrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, None)
}

pub(super) fn zrangebyscore(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Some((By::Score, false)))
}

fn zrevrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Some((By::Rank, true)))
}

fn zrevrangebyscore(context: &mut Context<'_>, command: &Command) -> Outcome {
    show(context, command, Some((By::Score, true)))
}

fn show(context: &mut Context<'_>, command: &Command, fixed: Option<(By, bool)>) -> Outcome {
    let query = Query::parse(&command.args()[1..], fixed)?;
    let protocol = context.client().protocol;
    let set = sorted(context.database(), &command.args()[0])?;
    let found = set.map(|set| query.run(set)).unwrap_or_default();
    Ok(scored(found, query.with_scores, protocol))
}

pub(super) fn zcount(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (min, max) = score_bounds(&command.args()[1], &command.args()[2])?;
    let set = sorted(context.database(), &command.args()[0])?;
    Ok(count(set.map_or(0, |set| set.by_score(min, max).count())))
}

fn zremrangebyrank(context: &mut Context<'_>, command: &Command) -> Outcome {
    let range = Range::Ranks(integer(&command.args()[1])?, integer(&command.args()[2])?);
    remove(context, command, range)
}

fn zremrangebyscore(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (min, max) = score_bounds(&command.args()[1], &command.args()[2])?;
    remove(context, command, Range::Scores(min, max))
}

fn remove(context: &mut Context<'_>, command: &Command, range: Range) -> Outcome {
    let query = Query { range, reverse: false, limit: None, with_scores: false };
    let removed = context.database().edit(&command.args()[0], |set: &mut SortedSet| {
        let members: Vec<Bytes> = query.run(set).into_iter().map(|(member, _)| member.clone()).collect();
        members.iter().filter(|member| set.remove(member).is_some()).count()
    })?;
    Ok(count(removed.unwrap_or(0)))
}
