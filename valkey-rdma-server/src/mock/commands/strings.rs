//! Strings, and integers in them.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::args::{Options, integer, lowercase, milliseconds};
use super::super::database::Expiry;
use super::{Context, Failure, Outcome};
use crate::command::Command;
use crate::reply::Reply;

/// `GET key`
pub(super) fn get(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(value_or_null(context.database().get(&command.args()[0]).cloned()))
}

/// `SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | KEEPTTL]`
pub(super) fn set(context: &mut Context<'_>, command: &Command) -> Outcome {
    let options = SetOptions::parse(&command.args()[2..])?;
    let mut database = context.database();
    let exists = database.contains(&command.args()[0]);
    if exists && options.only_if == Some(OnlyIf::Absent)
        || !exists && options.only_if == Some(OnlyIf::Present)
    {
        let old = database.get(&command.args()[0]).cloned();
        return Ok(if options.get { value_or_null(old) } else { Reply::Null });
    }
    let old = database.set(kept(command, 0), kept(command, 1), options.expiry);
    Ok(if options.get { value_or_null(old) } else { Reply::OK })
}

/// `MGET key [key ...]`
pub(super) fn mget(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    Ok(Reply::Array(command.args().iter().map(|key| value_or_null(database.get(key).cloned())).collect()))
}

/// `MSET key value [key value ...]`
pub(super) fn mset(context: &mut Context<'_>, command: &Command) -> Outcome {
    if command.args().len() % 2 == 1 {
        return Err(Failure::wrong_arity("mset"));
    }
    let mut database = context.database();
    for index in (0..command.args().len()).step_by(2) {
        database.set(kept(command, index), kept(command, index + 1), Expiry::Never);
    }
    Ok(Reply::OK)
}

/// `INCR key`
pub(super) fn incr(context: &mut Context<'_>, command: &Command) -> Outcome {
    add(context, command, 1)
}

/// `DECR key`
pub(super) fn decr(context: &mut Context<'_>, command: &Command) -> Outcome {
    add(context, command, -1)
}

/// `INCRBY key increment`
pub(super) fn incrby(context: &mut Context<'_>, command: &Command) -> Outcome {
    let increment = integer(&command.args()[1])?;
    add(context, command, increment)
}

fn add(context: &mut Context<'_>, command: &Command, increment: i64) -> Outcome {
    let mut database = context.database();
    let value = database.get(&command.args()[0]).map_or(Ok(0), |value| integer(value))?;
    let Some(sum) = value.checked_add(increment) else {
        return Err(Failure::new("ERR increment or decrement would overflow"));
    };
    database.set(kept(command, 0), sum.to_string().into(), Expiry::Keep);
    Ok(Reply::Integer(sum))
}

struct SetOptions {
    only_if: Option<OnlyIf>,
    get: bool,
    expiry: Expiry,
}

#[derive(PartialEq, Eq)]
enum OnlyIf {
    Absent,
    Present,
}

impl SetOptions {
    fn parse(options: &[Bytes]) -> Result<Self, Failure> {
        let mut parsed = Self { only_if: None, get: false, expiry: Expiry::Never };
        let mut options = Options::new(options);
        while let Some(option) = options.next() {
            // Of each choice only one may be given.
            match lowercase(option).as_str() {
                "nx" if parsed.only_if != Some(OnlyIf::Present) => parsed.only_if = Some(OnlyIf::Absent),
                "xx" if parsed.only_if != Some(OnlyIf::Absent) => parsed.only_if = Some(OnlyIf::Present),
                "get" => parsed.get = true,
                "keepttl" if parsed.expiry == Expiry::Never => parsed.expiry = Expiry::Keep,
                "ex" if parsed.expiry == Expiry::Never => {
                    parsed.expiry = Expiry::At(deadline(options.value()?, 1000)?);
                }
                "px" if parsed.expiry == Expiry::Never => {
                    parsed.expiry = Expiry::At(deadline(options.value()?, 1)?);
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok(parsed)
    }
}

/// The point in time `amount` units from now, which must be in the future.
fn deadline(amount: &[u8], unit_ms: i64) -> Result<Instant, Failure> {
    milliseconds(integer(amount)?, unit_ms)
        .filter(|amount| *amount > 0)
        .and_then(|amount| Instant::now().checked_add(Duration::from_millis(amount.unsigned_abs())))
        .ok_or_else(|| Failure::invalid_expire_time("set"))
}

fn value_or_null(value: Option<Bytes>) -> Reply {
    value.map_or(Reply::Null, Reply::Bulk)
}

/// An argument that the table promises to be there, in a form that may be stored.
fn kept(command: &Command, index: usize) -> Bytes {
    command.keep(index).expect("the table checks the number of arguments")
}
