//! Strings, and numbers in them.

use bytes::{Bytes, BytesMut};

use super::{
    All, Context, Entry, EverySecond, Failure, First, Outcome, Read, Write, count, kept, row, value_or_null,
};
use crate::args::{Options, integer, lowercase, moment, range};
use crate::store::{Database, Expiry, Value, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("append", 3, Write, First, "Appends to a string.", append),
    row("decr", 2, Write, First, "Decrements an integer by one.", decr),
    row("decrby", 3, Write, First, "Decrements an integer.", decrby),
    row("get", 2, Read, First, "Returns a string.", get),
    row("getdel", 2, Write, First, "Returns a string and deletes it.", getdel),
    row("getex", -2, Write, First, "Returns a string and sets its expiry.", getex),
    row("getrange", 4, Read, First, "Returns a part of a string.", getrange),
    row("getset", 3, Write, First, "Sets a string and returns the one before.", getset),
    row("incr", 2, Write, First, "Increments an integer by one.", incr),
    row("incrby", 3, Write, First, "Increments an integer.", incrby),
    row("mget", -2, Read, All, "Returns several strings.", mget),
    row("mset", -3, Write, EverySecond, "Sets several strings.", mset),
    row("msetnx", -3, Write, EverySecond, "Sets several strings if none of them exists.", msetnx),
    row("psetex", 4, Write, First, "Sets a string and its expiry in milliseconds.", psetex),
    row("set", -3, Write, First, "Sets a string.", set),
    row("setex", 4, Write, First, "Sets a string and its expiry in seconds.", setex),
    row("setnx", 3, Write, First, "Sets a string if it does not exist.", setnx),
    row("setrange", 4, Write, First, "Overwrites a part of a string.", setrange),
    row("strlen", 2, Read, First, "Returns the length of a string.", strlen),
];

pub(super) fn string(database: &Database, key: &[u8]) -> Result<Option<Bytes>, Failure> {
    Ok(database.get::<Bytes>(key)?.cloned())
}

fn get(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(value_or_null(string(context.database(), &command.args()[0])?))
}

/// `SET key value [NX | XX | IFEQ value] [GET] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL]`
fn set(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    let options = SetOptions::parse(&command.args()[2..], now)?;
    store(context, command, &command.args()[1], &options)
}

/// Sets the first argument to `value`, as far as `options` allow it.
fn store(context: &mut Context<'_>, command: &Command, value: &Bytes, options: &SetOptions<'_>) -> Outcome {
    let database = context.database();
    let key = &command.args()[0];
    // Only options that read the old value check its type.
    let old = match (&options.only_if, options.get) {
        (Some(OnlyIf::Equal(_)), _) | (_, true) => string(database, key)?,
        _ => None,
    };
    let allowed = match &options.only_if {
        None => true,
        Some(OnlyIf::Absent) => !database.contains(key),
        Some(OnlyIf::Present) => database.contains(key),
        Some(OnlyIf::Equal(expected)) => old.as_ref() == Some(*expected),
    };
    if allowed {
        match options.expiry {
            // In the past already: as if it had been there for a moment.
            Expiry::At(deadline) if deadline <= database.now() => drop(database.remove(key)),
            expiry => database.set(key, Value::String(keep(value)), expiry),
        }
    }
    Ok(match (options.get, allowed) {
        (true, _) => value_or_null(old),
        (false, true) => Reply::OK,
        (false, false) => Reply::Null,
    })
}

struct SetOptions<'a> {
    only_if: Option<OnlyIf<'a>>,
    get: bool,
    expiry: Expiry,
}

#[derive(PartialEq, Eq)]
enum OnlyIf<'a> {
    Absent,
    Present,
    Equal(&'a Bytes),
}

impl<'a> SetOptions<'a> {
    fn parse(options: &'a [Bytes], now: i64) -> Result<Self, Failure> {
        let mut parsed = Self { only_if: None, get: false, expiry: Expiry::Never };
        let mut options = Options::new(options);
        while let Some(option) = options.next() {
            let word = lowercase(option);
            // Of each choice only one may be given.
            match word.as_str() {
                "nx" if matches!(parsed.only_if, None | Some(OnlyIf::Absent)) => {
                    parsed.only_if = Some(OnlyIf::Absent);
                }
                "xx" if matches!(parsed.only_if, None | Some(OnlyIf::Present)) => {
                    parsed.only_if = Some(OnlyIf::Present);
                }
                "ifeq" if parsed.only_if.is_none() => parsed.only_if = Some(OnlyIf::Equal(options.value()?)),
                "get" => parsed.get = true,
                "keepttl" if matches!(parsed.expiry, Expiry::Never | Expiry::Keep) => {
                    parsed.expiry = Expiry::Keep;
                }
                unit if parsed.expiry == Expiry::Never && is_unit(unit) => {
                    parsed.expiry = Expiry::At(deadline(unit, options.value()?, now, "set")?);
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

/// Whether an option is followed by a time.
pub(super) fn is_unit(option: &str) -> bool {
    matches!(option, "ex" | "px" | "exat" | "pxat")
}

/// The point in time that such an option means.
pub(super) fn deadline(unit: &str, amount: &[u8], now: i64, command: &str) -> Result<i64, Failure> {
    if integer(amount)? == 0 {
        return Err(Failure::invalid_expire_time(command));
    }
    deadline_or_now(unit, amount, now, command)
}

/// Like [`deadline`], but accepts zero.
pub(super) fn deadline_or_now(unit: &str, amount: &[u8], now: i64, command: &str) -> Result<i64, Failure> {
    let amount = integer(amount)?;
    let unit_ms = if unit.starts_with('e') { 1000 } else { 1 };
    let base = if unit.ends_with("at") { 0 } else { now };
    Some(amount)
        .filter(|amount| *amount >= 0)
        .and_then(|amount| moment(amount, unit_ms, base))
        .ok_or_else(|| Failure::invalid_expire_time(command))
}

fn setex(context: &mut Context<'_>, command: &Command) -> Outcome {
    set_for(context, command, "ex", "setex")
}

fn psetex(context: &mut Context<'_>, command: &Command) -> Outcome {
    set_for(context, command, "px", "psetex")
}

fn set_for(context: &mut Context<'_>, command: &Command, unit: &str, name: &str) -> Outcome {
    let now = context.database().now();
    let expiry = Expiry::At(deadline(unit, &command.args()[1], now, name)?);
    store(context, command, &command.args()[2], &SetOptions { only_if: None, get: false, expiry })
}

fn setnx(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    if database.contains(&command.args()[0]) {
        return Ok(Reply::Integer(0));
    }
    database.set(&command.args()[0], Value::String(kept(command, 1)), Expiry::Never);
    Ok(Reply::Integer(1))
}

fn getset(context: &mut Context<'_>, command: &Command) -> Outcome {
    let options = SetOptions { only_if: None, get: true, expiry: Expiry::Never };
    store(context, command, &command.args()[1], &options)
}

fn getdel(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let value = string(database, &command.args()[0])?;
    database.remove(&command.args()[0]);
    Ok(value_or_null(value))
}

/// `GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST]`
fn getex(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let mut options = Options::new(&command.args()[1..]);
    let mut change = None;
    while let Some(option) = options.next() {
        let word = lowercase(option);
        match word.as_str() {
            "persist" if change.is_none() => change = Some(None),
            unit if change.is_none() && is_unit(unit) => {
                change = Some(Some(deadline(unit, options.value()?, database.now(), "getex")?));
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    let key = &command.args()[0];
    let Some(value) = string(database, key)? else { return Ok(Reply::Null) };
    if let Some(deadline) = change
        && database.deadline(key) != Some(deadline)
    {
        database.expire(key, deadline);
    }
    Ok(Reply::Bulk(value))
}

fn mget(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    // A key of another type is as good as none.
    let values = command.args().iter().map(|key| value_or_null(string(database, key).unwrap_or(None)));
    Ok(Reply::Array(values.collect()))
}

fn mset(context: &mut Context<'_>, command: &Command) -> Outcome {
    set_pairs(context, command, "mset")?;
    Ok(Reply::OK)
}

fn msetnx(context: &mut Context<'_>, command: &Command) -> Outcome {
    if command.args().len().is_multiple_of(2) {
        let database = context.database();
        if command.args().iter().step_by(2).any(|key| database.contains(key)) {
            return Ok(Reply::Integer(0));
        }
    }
    set_pairs(context, command, "msetnx")?;
    Ok(Reply::Integer(1))
}

fn set_pairs(context: &mut Context<'_>, command: &Command, name: &str) -> Result<(), Failure> {
    if !command.args().len().is_multiple_of(2) {
        return Err(Failure::wrong_arity(name));
    }
    let database = context.database();
    for pair in command.args().chunks_exact(2) {
        database.set(&pair[0], Value::String(keep(&pair[1])), Expiry::Never);
    }
    Ok(())
}

fn strlen(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(context.database().get::<Bytes>(&command.args()[0])?.map_or(0, Bytes::len)))
}

fn append(context: &mut Context<'_>, command: &Command) -> Outcome {
    let limit = context.state.settings.max_value_len();
    let (key, more) = (&command.args()[0], &command.args()[1]);
    let database = context.database();
    let len = database.get::<Bytes>(key)?.map_or(0, Bytes::len) + more.len();
    check_len(len, limit)?;
    rewrite(database, key, |value| value.extend_from_slice(more))?;
    Ok(count(len))
}

fn getrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (start, end) = (integer(&command.args()[1])?, integer(&command.args()[2])?);
    let Some(value) = string(context.database(), &command.args()[0])? else { return Ok(Reply::bulk("")) };
    if start < 0 && end < 0 && start > end {
        return Ok(Reply::bulk(""));
    }
    // Unlike the ranges of lists, an end before the beginning means the first byte.
    let end = if end < 0 { end.saturating_add(value.len() as i64).max(0) } else { end };
    Ok(Reply::Bulk(value.slice(range(start, end, value.len()))))
}

fn setrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    let limit = context.state.settings.max_value_len();
    let (key, patch) = (&command.args()[0], &command.args()[2]);
    let offset = integer(&command.args()[1])?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Failure::new("ERR offset is out of range"));
    };
    let database = context.database();
    let old = database.get::<Bytes>(key)?.map_or(0, Bytes::len);
    if patch.is_empty() {
        return Ok(count(old));
    }
    let end = offset.saturating_add(patch.len());
    check_len(end, limit)?;
    rewrite(context.database(), key, |value| {
        if value.len() < end {
            value.resize(end, 0);
        }
        value[offset..end].copy_from_slice(patch);
    })?;
    Ok(count(old.max(end)))
}

pub(super) fn check_len(len: usize, limit: usize) -> Result<(), Failure> {
    if len > limit {
        return Err(Failure::new("ERR string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    Ok(())
}

/// Changes a string, in place if it is not shared. The expiry stays.
fn rewrite(database: &mut Database, key: &Bytes, change: impl FnOnce(&mut BytesMut)) -> Result<(), Failure> {
    database.edit_or_create(key, |value: &mut Bytes| {
        let mut bytes =
            std::mem::take(value).try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        change(&mut bytes);
        *value = bytes.freeze();
    })?;
    database.touch(key);
    Ok(())
}

fn incr(context: &mut Context<'_>, command: &Command) -> Outcome {
    add(context, command, 1)
}

fn decr(context: &mut Context<'_>, command: &Command) -> Outcome {
    add(context, command, -1)
}

fn incrby(context: &mut Context<'_>, command: &Command) -> Outcome {
    let increment = integer(&command.args()[1])?;
    add(context, command, increment)
}

fn decrby(context: &mut Context<'_>, command: &Command) -> Outcome {
    let decrement = integer(&command.args()[1])?;
    let increment = decrement.checked_neg().ok_or(Failure::new("ERR decrement would overflow"))?;
    add(context, command, increment)
}

fn add(context: &mut Context<'_>, command: &Command, increment: i64) -> Outcome {
    let database = context.database();
    let value = database.get::<Bytes>(&command.args()[0])?.map_or(Ok(0), |value| integer(value))?;
    let sum = value.checked_add(increment).ok_or(Failure::OVERFLOW)?;
    database.set(&command.args()[0], Value::String(sum.to_string().into()), Expiry::Keep);
    Ok(Reply::Integer(sum))
}
