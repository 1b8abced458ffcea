//! Large strings, which a server moves to and from registered memory of its client (spec, area D). The keys are those of `GET` and `SET`.

use bytes::Bytes;
use valkey_rdma_server::{Command, RemoteRanges, Reply};

use super::strings::{check_len, string};
use super::{Context, Entry, Failure, First, Outcome, Read, Write, count, kept, row, value_or_null};
use crate::arena::PART;
use crate::args::{integer, lowercase};
use crate::state::State;
use crate::store::{Expiry, Value};
use crate::transfer::Transfer;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("blob.get", -2, Read, First, "Returns a string, or writes it into memory of the client.", get),
    row("blob.info", -2, Read, First, "Returns length, checksum and place of a string.", info),
    row("blob.set", -3, Write, First, "Sets a string, or reads it out of memory of the client.", set),
];

/// `BLOB.GET key [rkey addr len [rkey addr len ...]]`
fn get(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (key, place) = (&command.args()[0], &command.args()[1..]);
    if place.is_empty() {
        return Ok(value_or_null(string(context.database(), key)?));
    }
    let to = ranges(context, place)?;
    let blob = blob(context, key)?;
    context.transfer = blob.map(|(value, checksum)| Transfer::Write { to, value, checksum });
    Ok(Reply::Null)
}

/// `BLOB.SET key data`, `BLOB.SET key len rkey addr len [rkey addr len ...]`
fn set(context: &mut Context<'_>, command: &Command) -> Outcome {
    let key = kept(command, 0);
    let [_, len, place @ ..] = command.args() else { return Err(Failure::wrong_arity("blob.set")) };
    if place.is_empty() {
        context.database().set(&key, Value::String(kept(command, 1)), Expiry::Never);
        return Ok(Reply::OK);
    }
    let len = usize::try_from(integer(len)?).map_err(|_| Failure::NOT_POSITIVE)?;
    let from = ranges(context, place)?;
    check_len(len, context.state.settings.max_value_len())?;
    let database = context.client().database;
    // Nothing has arrived yet, and the length may be a lie. A longer value gets its place with its first BLOB.GET.
    let fits = len as u64 <= from.room() && len <= PART;
    let place = if fits { context.state.arena.take(len) } else { None };
    context.transfer = Some(Transfer::Read { from, len, place, key, database });
    Ok(Reply::OK)
}

/// `BLOB.INFO key [LEN | CRC | TIER]`
fn info(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some((value, checksum)) = blob(context, &command.args()[0])? else { return Ok(Reply::Null) };
    let (len, crc, tier) = (count(value.len()), Reply::Integer(checksum.into()), Reply::bulk("dram"));
    match &command.args()[1..] {
        [] => Ok(Reply::Map(vec![
            (Reply::bulk("len"), len),
            (Reply::bulk("crc"), crc),
            (Reply::bulk("tier"), tier),
        ])),
        [field] => match lowercase(field).as_str() {
            "len" => Ok(len),
            "crc" => Ok(crc),
            "tier" => Ok(tier),
            _ => Err(Failure::SYNTAX),
        },
        _ => Err(Failure::SYNTAX),
    }
}

/// The memory that a client names, where it can be used.
fn ranges(context: &mut Context<'_>, args: &[Bytes]) -> Result<RemoteRanges, Failure> {
    if context.in_transaction {
        return Err(Failure::new("ERR direct transfers are not possible inside a transaction"));
    }
    if context.peer.direct().is_none() {
        return Err(Failure::new(
            "NODIRECT this connection has no direct transfers: the client has not asked for them over RDMA",
        ));
    }
    Ok(RemoteRanges::parse(args)?)
}

/// A string in memory that devices reach, and its checksum.
fn blob(context: &mut Context<'_>, key: &[u8]) -> Result<Option<(Bytes, u32)>, Failure> {
    let database = context.client().database;
    let State { databases, arena, .. } = &mut *context.state;
    databases[database].blob(key, |value| arena.place(value))
}
