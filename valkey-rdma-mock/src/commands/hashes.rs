//! Hashes.

use bytes::Bytes;

use super::keys::{ScanOptions, portion};
use super::sets::sample;
use super::{
    Context, Entry, Failure, First, Outcome, Read, Store, Write, bulks, count, hash_expiry, row,
    value_or_null,
};
use crate::args::{float, integer, lowercase};
use crate::decimal;
use crate::store::{Database, Hash, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("hdel", -3, Write, First, "Deletes fields.", hdel),
    row("hexists", 3, Read, First, "Tells whether a field exists.", hexists),
    row("hexpire", -6, Write, First, "Sets the expiry of fields in seconds.", hash_expiry::hexpire),
    row("hexpireat", -6, Write, First, "Sets the expiry of fields to a time in seconds.", hash_expiry::hexpireat),
    row("hexpiretime", -5, Read, First, "Returns the times at which fields expire in seconds.", hash_expiry::hexpiretime),
    row("hget", 3, Read, First, "Returns a field.", hget),
    row("hgetall", 2, Read, First, "Returns all fields.", hgetall),
    row("hgetdel", -5, Write, First, "Returns fields and deletes them.", hash_expiry::hgetdel),
    row("hgetex", -5, Write, First, "Returns fields and sets their expiry.", hash_expiry::hgetex),
    row("hincrby", 4, Store, First, "Increments an integer in a field.", hincrby),
    row("hincrbyfloat", 4, Store, First, "Increments a number in a field.", hincrbyfloat),
    row("hkeys", 2, Read, First, "Returns the names of all fields.", hkeys),
    row("hlen", 2, Read, First, "Returns the number of fields.", hlen),
    row("hmget", -3, Read, First, "Returns several fields.", hmget),
    row("hmset", -4, Store, First, "Sets several fields.", hmset),
    row("hpersist", -5, Write, First, "Removes the expiry of fields.", hash_expiry::hpersist),
    row("hpexpire", -6, Write, First, "Sets the expiry of fields in milliseconds.", hash_expiry::hpexpire),
    row("hpexpireat", -6, Write, First, "Sets the expiry of fields to a time in milliseconds.", hash_expiry::hpexpireat),
    row("hpexpiretime", -5, Read, First, "Returns the times at which fields expire in milliseconds.", hash_expiry::hpexpiretime),
    row("hpttl", -5, Read, First, "Returns the time left to fields in milliseconds.", hash_expiry::hpttl),
    row("hrandfield", -2, Read, First, "Returns any fields.", hrandfield),
    row("hscan", -3, Read, First, "Returns fields in portions.", hscan),
    row("hset", -4, Store, First, "Sets fields.", hset),
    row("hsetex", -6, Store, First, "Sets fields and their expiry.", hash_expiry::hsetex),
    row("hsetnx", 4, Store, First, "Sets a field if it does not exist.", hsetnx),
    row("hstrlen", 3, Read, First, "Returns the length of a field.", hstrlen),
    row("httl", -5, Read, First, "Returns the time left to fields in seconds.", hash_expiry::httl),
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

fn hstrlen(context: &mut Context<'_>, command: &Command) -> Outcome {
    let hash = hash(context.database(), command)?;
    Ok(count(hash.and_then(|hash| hash.get(&command.args()[1])).map_or(0, Bytes::len)))
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

fn hincrbyfloat(context: &mut Context<'_>, command: &Command) -> Outcome {
    if !float(&command.args()[2])?.is_finite() {
        return Err(Failure::new("ERR value is NaN or Infinity"));
    }
    let database = context.database();
    let old = hash(database, command)?.and_then(|hash| hash.get(&command.args()[1])).cloned();
    let old = old.unwrap_or(Bytes::from_static(b"0"));
    let sum = match decimal::add(&old, &command.args()[2]) {
        Some(Ok(sum)) => Bytes::from(sum),
        Some(Err(decimal::Overflow)) => {
            return Err(Failure::new("ERR increment would produce NaN or Infinity"));
        }
        None => return Err(Failure::new("ERR hash value is not a float")),
    };
    replace(database, command, sum.clone())?;
    Ok(Reply::Bulk(sum))
}

/// Sets a field and leaves it its expiry.
fn replace(database: &mut Database, command: &Command, value: Bytes) -> Result<(), Failure> {
    let field = &command.args()[1];
    database.edit_or_create(&command.args()[0], |hash: &mut Hash| {
        let deadline = hash.deadline(field).flatten();
        hash.set(field, value);
        if deadline.is_some() {
            hash.expire(field, deadline);
        }
    })
}

/// `HRANDFIELD key [count [WITHVALUES]]`
fn hrandfield(context: &mut Context<'_>, command: &Command) -> Outcome {
    let options = &command.args()[1..];
    let with_values = match options {
        [] | [_] => false,
        [_, option] if lowercase(option).as_str() == "withvalues" => true,
        _ => return Err(Failure::SYNTAX),
    };
    let limit = options.first().map(|limit| integer(limit)).transpose()?;
    if limit == Some(i64::MIN) {
        return Err(Failure::NOT_NEGATABLE);
    }
    if with_values && limit.is_some_and(|limit| limit.unsigned_abs() > i64::MAX as u64 / 2) {
        return Err(Failure::OUT_OF_RANGE);
    }
    let resp3 = context.client().protocol == valkey_rdma_server::Protocol::Resp3;
    let Some(hash) = hash(context.database(), command)? else {
        return Ok(if limit.is_some() { Reply::Array(vec![]) } else { Reply::Null });
    };
    let Some(limit) = limit else {
        let any = hash.at(fastrand::usize(..hash.len()));
        return Ok(any.map_or(Reply::Null, |(field, _)| Reply::Bulk(field.clone())));
    };
    let found = sample(limit, hash.len())?.into_iter().filter_map(|index| hash.at(index));
    Ok(Reply::Array(
        found
            .flat_map(|(field, value)| match (with_values, resp3) {
                (false, _) => vec![Reply::Bulk(field.clone())],
                (true, false) => vec![Reply::Bulk(field.clone()), Reply::Bulk(value.clone())],
                (true, true) => vec![bulks([field, value])],
            })
            .collect(),
    ))
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`
fn hscan(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (cursor, options) = ScanOptions::parse(&command.args()[1..], false)?;
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
