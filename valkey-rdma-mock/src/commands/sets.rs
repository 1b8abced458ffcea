//! Sets.

use bytes::Bytes;

use super::keys::{ScanOptions, Scanned, portion};
use super::{All, Context, Entry, Failure, First, Outcome, Read, Write, count, row};
use crate::args::integer;
use crate::store::{Database, Set};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("sadd", -3, Write, First, "Adds members.", sadd),
    row("scard", 2, Read, First, "Returns the number of members.", scard),
    row("sdiff", -2, Read, All, "Returns the members of the first set that are in no other.", sdiff),
    row("sinter", -2, Read, All, "Returns the members of all sets.", sinter),
    row("sismember", 3, Read, First, "Returns whether a value is a member.", sismember),
    row("smembers", 2, Read, First, "Returns all members.", smembers),
    row("smismember", -3, Read, First, "Returns for several values whether they are members.", smismember),
    row("spop", -2, Write, First, "Removes any members.", spop),
    row("srandmember", -2, Read, First, "Returns any members.", srandmember),
    row("srem", -3, Write, First, "Removes members.", srem),
    row("sscan", -3, Read, First, "Returns members in portions.", sscan),
    row("sunion", -2, Read, All, "Returns the members of any of the sets.", sunion),
];

fn set<'a>(database: &'a Database, command: &Command) -> Result<Option<&'a Set>, Failure> {
    database.get::<Set>(&command.args()[0])
}

fn members<'a>(members: impl IntoIterator<Item = &'a Bytes>) -> Reply {
    Reply::Set(members.into_iter().cloned().map(Reply::Bulk).collect())
}

fn sadd(context: &mut Context<'_>, command: &Command) -> Outcome {
    let added = context.database().edit_or_create(&command.args()[0], |set: &mut Set| {
        command.args()[1..].iter().filter(|member| set.insert(member)).count()
    })?;
    Ok(count(added))
}

fn srem(context: &mut Context<'_>, command: &Command) -> Outcome {
    let removed = context.database().edit(&command.args()[0], |set: &mut Set| {
        command.args()[1..].iter().filter(|member| set.remove(member)).count()
    })?;
    Ok(count(removed.unwrap_or(0)))
}

fn scard(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(set(context.database(), command)?.map_or(0, Set::len)))
}

fn sismember(context: &mut Context<'_>, command: &Command) -> Outcome {
    let set = set(context.database(), command)?;
    Ok(count(usize::from(set.is_some_and(|set| set.contains(&command.args()[1])))))
}

fn smismember(context: &mut Context<'_>, command: &Command) -> Outcome {
    let set = set(context.database(), command)?;
    let is_member = |member: &Bytes| count(usize::from(set.is_some_and(|set| set.contains(member))));
    Ok(Reply::Array(command.args()[1..].iter().map(is_member).collect()))
}

fn smembers(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(set(context.database(), command)?.map_or(Reply::Set(vec![]), |set| members(set.iter())))
}

/// `SPOP key [count]`
fn spop(context: &mut Context<'_>, command: &Command) -> Outcome {
    let limit = match &command.args()[1..] {
        [] => None,
        [limit] => {
            let limit = valkey_rdma_resp::integer::parse(limit).and_then(|limit| usize::try_from(limit).ok());
            Some(limit.ok_or(Failure::NOT_POSITIVE)?)
        }
        _ => return Err(Failure::SYNTAX),
    };
    let mut random = context.state.random.fork();
    let popped = context.database().edit(&command.args()[0], |set: &mut Set| {
        let number = limit.unwrap_or(1).min(set.len());
        let mut take = || set.take_at(random.usize(..set.len()));
        (0..number).filter_map(|_| take()).collect::<Vec<_>>()
    })?;
    Ok(match (limit, popped) {
        (None, popped) => popped.and_then(|mut popped| popped.pop()).map_or(Reply::Null, Reply::Bulk),
        (Some(_), popped) => members(popped.iter().flatten()),
    })
}

/// `SRANDMEMBER key [count]`
fn srandmember(context: &mut Context<'_>, command: &Command) -> Outcome {
    let limit = match &command.args()[1..] {
        [] => None,
        [limit] => Some(integer(limit)?),
        _ => return Err(Failure::SYNTAX),
    };
    let mut random = context.state.random.fork();
    let found = set(context.database(), command)?;
    let Some(limit) = limit else {
        let any = found.and_then(|set| set.at(random.usize(..set.len())));
        return Ok(any.map_or(Reply::Null, |member| Reply::Bulk(member.clone())));
    };
    let Some(set) = found else { return Ok(Reply::Array(vec![])) };
    let places = sample(limit, set.len(), &mut random)?;
    Ok(super::bulks(places.into_iter().filter_map(|index| set.at(index))))
}

/// Random indexes below `len`: at most `number` distinct ones, or, if `number` is negative, exactly that number with repeats.
fn sample(number: i64, len: usize, random: &mut fastrand::Rng) -> Result<Vec<usize>, Failure> {
    if number < 0 {
        let number = usize::try_from(number.unsigned_abs()).ok().filter(|number| *number <= MAX_SAMPLE);
        let number = number.ok_or(Failure::OUT_OF_RANGE)?;
        return Ok((0..number).map(|_| random.usize(..len)).collect());
    }
    let number = usize::try_from(number).unwrap_or(usize::MAX).min(len);
    if number == len {
        return Ok((0..len).collect());
    }
    Ok(random.choose_multiple(0..len, number))
}

/// Most items in one reply that repeats them: Valkey would try any number.
const MAX_SAMPLE: usize = 1 << 20;

/// `SSCAN key cursor [MATCH pattern] [COUNT count]`
fn sscan(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (cursor, options) = ScanOptions::parse(&command.args()[1..], Scanned::Members)?;
    let Some(set) = set(context.database(), command)? else { return Ok(portion(0, vec![])) };
    let (next, places) = options.portion(cursor, set.len(), 128);
    let found = places.into_iter().filter_map(|index| set.at(index)).filter(|member| options.matches(member));
    Ok(portion(next, found.cloned().map(Reply::Bulk).collect()))
}

#[derive(Clone, Copy)]
enum Algebra {
    Union,
    Intersection,
    Difference,
}

fn sunion(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(members(combine(context.database(), command.args(), Algebra::Union)?.iter()))
}

fn sinter(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(members(combine(context.database(), command.args(), Algebra::Intersection)?.iter()))
}

fn sdiff(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(members(combine(context.database(), command.args(), Algebra::Difference)?.iter()))
}

fn combine(database: &Database, keys: &[Bytes], algebra: Algebra) -> Result<Set, Failure> {
    let sets = keys.iter().map(|key| database.get::<Set>(key)).collect::<Result<Vec<_>, _>>()?;
    let mut result = Set::default();
    match algebra {
        Algebra::Union => {
            for member in sets.iter().flatten().flat_map(|set| set.iter()) {
                result.insert(member);
            }
        }
        Algebra::Intersection => {
            // In the order of the smallest, as Valkey walks it.
            let Some(sets) = sets.into_iter().collect::<Option<Vec<_>>>() else { return Ok(result) };
            let smallest = sets.iter().min_by_key(|set| set.len());
            for member in smallest.into_iter().flat_map(|set| set.iter()) {
                if sets.iter().all(|set| set.contains(member)) {
                    result.insert(member);
                }
            }
        }
        Algebra::Difference => {
            for member in sets[0].into_iter().flat_map(Set::iter) {
                if !sets[1..].iter().flatten().any(|set| set.contains(member)) {
                    result.insert(member);
                }
            }
        }
    }
    Ok(result)
}
