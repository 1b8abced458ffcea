//! Large strings, which a server moves to and from registered memory of its client (spec, area D). The keys are those of `GET` and `SET`.

use bytes::Bytes;
use valkey_rdma_server::{Command, RemoteRanges, Reply};

use super::strings::string;
use super::{Context, Entry, Failure, First, Outcome, Read, Write, count, kept, row, value_or_null};
use crate::args::{integer, lowercase};
use crate::store::{Expiry, Value};
use crate::transfer::{Transfer, crc32c};

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("blob.get", -2, Read, First, "Returns a string, or writes it into memory of the client.", get),
    row("blob.info", -2, Read, First, "Returns length, checksum and place of a string.", info),
    row("blob.set", -3, Write, First, "Sets a string, or reads it out of memory of the client.", set),
];

/// `BLOB.GET key [rkey addr len [rkey addr len ...]]`
fn get(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (key, place) = (&command.args()[0], &command.args()[1..]);
    let to = if place.is_empty() { None } else { Some(ranges(context, place)?) };
    let value = string(context.database(), key)?;
    let (Some(to), Some(value)) = (to, &value) else { return Ok(value_or_null(value)) };
    context.transfer = Some(Transfer::Write { to, value: value.clone() });
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
    let database = context.client().database;
    context.transfer = Some(Transfer::Read { from, len, key, database });
    Ok(Reply::OK)
}

/// `BLOB.INFO key [LEN | CRC | TIER]`
fn info(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some(value) = string(context.database(), &command.args()[0])? else { return Ok(Reply::Null) };
    let (len, crc, tier) = (count(value.len()), checksum(&value), Reply::bulk("dram"));
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
            "ERR this connection has no direct transfers: the client has not asked for them over RDMA",
        ));
    }
    Ok(RemoteRanges::parse(args)?)
}

/// What a client compares with what has arrived.
pub(crate) fn checksum(value: &[u8]) -> Reply {
    Reply::Integer(crc32c(value).into())
}
