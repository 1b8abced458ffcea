//! Hashes.

use bytes::Bytes;

use super::keys::{ScanOptions, Scanned, portion};
use super::{Context, Entry, Failure, First, Outcome, Read, Write, bulks, count, row, value_or_null};
use crate::args::integer;
use crate::store::{Database, Hash, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("hdel", -3, Write, First, "Deletes fields.", hdel),
    row("hexists", 3, Read, First, "Returns whether a field exists.", hexists),
    row("hget", 3, Read, First, "Returns a field.", hget),
    row("hgetall", 2, Read, First, "Returns all fields.", hgetall),
    row("hincrby", 4, Write, First, "Increments an integer in a field.", hincrby),
    row("hkeys", 2, Read, First, "Returns the names of all fields.", hkeys),
    row("hlen", 2, Read, First, "Returns the number of fields.", hlen),
    row("hmget", -3, Read, First, "Returns several fields.", hmget),
    row("hmset", -4, Write, First, "Sets several fields.", hmset),
    row("hscan", -3, Read, First, "Returns fields in portions.", hscan),
    row("hset", -4, Write, First, "Sets fields.", hset),
    row("hsetnx", 4, Write, First, "Sets a field if it does not exist.", hsetnx),
    row("hvals", 2, Read, First, "Returns the values of all fields.", hvals),
];

fn hash<'a>(database: &'a Database, command: &Command) -> Result<Option<&'a Hash>, Failure> {
    database.get::<Hash>(&command.args()[0])
}

fn hset(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(set_pairs(context, command, "hset")?))
}

fn hmset(context: &mut Context<'_>, command: &Command) -> Outcome {
    set_pairs(context, command, "hmset")?;
    Ok(Reply::OK)
}

fn set_pairs(context: &mut Context<'_>, command: &Command, name: &str) -> Result<usize, Failure> {
    let pairs = &command.args()[1..];
    if !pairs.len().is_multiple_of(2) {
        return Err(Failure::wrong_arity(name));
    }
    context.database().edit_or_create(&command.args()[0], |hash: &mut Hash| {
        pairs.chunks_exact(2).filter(|pair| hash.set(&pair[0], keep(&pair[1]))).count()
    })
}

fn hsetnx(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    if hash(database, command)?.is_some_and(|hash| hash.get(&command.args()[1]).is_some()) {
        return Ok(Reply::Integer(0));
    }
    database.edit_or_create(&command.args()[0], |hash: &mut Hash| {
        hash.set(&command.args()[1], keep(&command.args()[2]))
    })?;
    Ok(Reply::Integer(1))
}

fn hget(context: &mut Context<'_>, command: &Command) -> Outcome {
    let hash = hash(context.database(), command)?;
    Ok(value_or_null(hash.and_then(|hash| hash.get(&command.args()[1])).cloned()))
}

fn hmget(context: &mut Context<'_>, command: &Command) -> Outcome {
    let hash = hash(context.database(), command)?;
    let values = command.args()[1..].iter().map(|field| hash.and_then(|hash| hash.get(field)).cloned());
    Ok(Reply::Array(values.map(value_or_null).collect()))
}

fn hgetall(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some(hash) = hash(context.database(), command)? else { return Ok(Reply::Map(vec![])) };
    let bulk = |bytes: &Bytes| Reply::Bulk(bytes.clone());
    Ok(Reply::Map(hash.iter().map(|(field, value)| (bulk(field), bulk(value))).collect()))
}

fn hkeys(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some(hash) = hash(context.database(), command)? else { return Ok(Reply::Array(vec![])) };
    Ok(bulks(hash.iter().map(|(field, _)| field)))
}

fn hvals(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some(hash) = hash(context.database(), command)? else { return Ok(Reply::Array(vec![])) };
    Ok(bulks(hash.iter().map(|(_, value)| value)))
}

fn hlen(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(hash(context.database(), command)?.map_or(0, Hash::len)))
}

fn hexists(context: &mut Context<'_>, command: &Command) -> Outcome {
    let hash = hash(context.database(), command)?;
    Ok(count(usize::from(hash.is_some_and(|hash| hash.get(&command.args()[1]).is_some()))))
}

fn hdel(context: &mut Context<'_>, command: &Command) -> Outcome {
    let fields = &command.args()[1..];
    let removed = context.database().edit(&command.args()[0], |hash: &mut Hash| {
        fields.iter().filter(|field| hash.remove(field).is_some()).count()
    })?;
    Ok(count(removed.unwrap_or(0)))
}

fn hincrby(context: &mut Context<'_>, command: &Command) -> Outcome {
    let increment = integer(&command.args()[2])?;
    let database = context.database();
    let field = &command.args()[1];
    let old = hash(database, command)?.and_then(|hash| hash.get(field));
    let old =
        old.map_or(Ok(0), |old| integer(old).map_err(|_| Failure::new("ERR hash value is not an integer")))?;
    let sum = old.checked_add(increment).ok_or(Failure::OVERFLOW)?;
    replace(database, command, sum.to_string().into())?;
    Ok(Reply::Integer(sum))
}

/// Sets a field.
fn replace(database: &mut Database, command: &Command, value: Bytes) -> Result<(), Failure> {
    let field = &command.args()[1];
    database.edit_or_create(&command.args()[0], |hash: &mut Hash| {
        hash.set(field, value);
    })
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
fn hscan(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (cursor, options) = ScanOptions::parse(&command.args()[1..], Scanned::Fields)?;
    let Some(hash) = hash(context.database(), command)? else { return Ok(portion(0, vec![])) };
    let (next, places) = options.portion(cursor, hash.len(), 512);
    let found =
        places.into_iter().filter_map(|index| hash.at(index)).filter(|(field, _)| options.matches(field));
    let items = found.flat_map(|(field, value)| {
        let value = (!options.no_values).then(|| Reply::Bulk(value.clone()));
        std::iter::once(Reply::Bulk(field.clone())).chain(value)
    });
    Ok(portion(next, items.collect()))
}
