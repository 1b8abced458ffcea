//! Fields of hashes that go by themselves.

use bytes::Bytes;

use super::expiry::ExpireIf;
use super::strings::{deadline_or_now, is_unit};
use super::{Context, Failure, Outcome, value_or_null};
use crate::args::{Options, integer, lowercase, moment};
use crate::store::{Hash, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

pub(super) fn hexpire(context: &mut Context<'_>, command: &Command) -> Outcome {
    let base = context.database().now();
    expire(context, command, 1000, base, "hexpire")
}

pub(super) fn hpexpire(context: &mut Context<'_>, command: &Command) -> Outcome {
    let base = context.database().now();
    expire(context, command, 1, base, "hpexpire")
}

pub(super) fn hexpireat(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire(context, command, 1000, 0, "hexpireat")
}

pub(super) fn hpexpireat(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire(context, command, 1, 0, "hpexpireat")
}

/// `... key time [NX | XX | GT | LT] FIELDS numfields field [field ...]`
fn expire(context: &mut Context<'_>, command: &Command, unit_ms: i64, base: i64, name: &str) -> Outcome {
    let amount = integer(&command.args()[1])?;
    let deadline =
        Some(amount).filter(|amount| *amount >= 0).and_then(|amount| moment(amount, unit_ms, base));
    let deadline = deadline.ok_or_else(|| Failure::invalid_expire_time(name))?;
    let mut condition = ExpireIf::default();
    let mut options = Options::new(&command.args()[2..]);
    while options.rest().first().is_some_and(|option| condition.take(option)) {
        options.next();
    }
    condition.check()?;
    let fields = fields(&mut options)?;
    let database = context.database();
    let now = database.now();
    let done = database.edit(&command.args()[0], |hash: &mut Hash| {
        fields
            .iter()
            .map(|field| match hash.deadline(field) {
                None => -2,
                Some(current) if !condition.allows(current, deadline) => 0,
                Some(_) if deadline <= now => {
                    hash.remove(field);
                    2
                }
                Some(_) => {
                    hash.expire(field, Some(deadline));
                    1
                }
            })
            .collect::<Vec<i64>>()
    })?;
    Ok(numbers(done, fields.len()))
}

pub(super) fn hpersist(context: &mut Context<'_>, command: &Command) -> Outcome {
    let fields = fields(&mut Options::new(&command.args()[1..]))?;
    let done = context.database().edit(&command.args()[0], |hash: &mut Hash| {
        fields
            .iter()
            .map(|field| match hash.deadline(field) {
                None => -2,
                Some(None) => -1,
                Some(Some(_)) => {
                    hash.expire(field, None);
                    1
                }
            })
            .collect::<Vec<i64>>()
    })?;
    Ok(numbers(done, fields.len()))
}

pub(super) fn httl(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    about_deadlines(context, command, |deadline| ((deadline - now).max(0) + 999) / 1000)
}

pub(super) fn hpttl(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    about_deadlines(context, command, |deadline| (deadline - now).max(0))
}

pub(super) fn hexpiretime(context: &mut Context<'_>, command: &Command) -> Outcome {
    about_deadlines(context, command, |deadline| deadline / 1000 + i64::from(deadline % 1000 > 0))
}

pub(super) fn hpexpiretime(context: &mut Context<'_>, command: &Command) -> Outcome {
    about_deadlines(context, command, |deadline| deadline)
}

/// `... key FIELDS numfields field [field ...]`
fn about_deadlines(context: &mut Context<'_>, command: &Command, tell: impl Fn(i64) -> i64) -> Outcome {
    let fields = fields(&mut Options::new(&command.args()[1..]))?;
    let hash = context.database().get::<Hash>(&command.args()[0])?;
    let told = hash.map(|hash| {
        let tell = |field| match hash.deadline(field) {
            None => -2,
            Some(None) => -1,
            Some(Some(deadline)) => tell(deadline),
        };
        fields.iter().map(|field| tell(&field[..])).collect()
    });
    Ok(numbers(told, fields.len()))
}

/// -2 for each field if there is no such key.
fn numbers(numbers: Option<Vec<i64>>, fields: usize) -> Reply {
    let numbers = numbers.unwrap_or_else(|| vec![-2; fields]);
    Reply::Array(numbers.into_iter().map(Reply::Integer).collect())
}

/// `FIELDS numfields field [field ...]`, the last of the options.
fn fields<'a>(options: &mut Options<'a>) -> Result<&'a [Bytes], Failure> {
    counted(options, 1)
}

/// As [`fields`], with `each` words for a field.
fn counted<'a>(options: &mut Options<'a>, each: usize) -> Result<&'a [Bytes], Failure> {
    if !options.take_word("fields") {
        return Err(Failure::SYNTAX);
    }
    let number =
        valkey_rdma_resp::integer::parse(options.value()?).and_then(|number| usize::try_from(number).ok());
    let number = number.filter(|number| *number > 0).ok_or(Failure::new(
        "ERR numfields should be greater than 0 and match the provided number of fields",
    ))?;
    if options.len() != number.saturating_mul(each) {
        return Err(Failure::new(
            "ERR numfields should be greater than 0 and match the provided number of fields",
        ));
    }
    Ok(options.rest())
}

/// `HGETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST] FIELDS numfields field [field ...]`
pub(super) fn hgetex(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    let mut options = Options::new(&command.args()[1..]);
    let mut change = None;
    while let Some(option) = options.rest().first() {
        let word = lowercase(option);
        match word.as_str() {
            "fields" => break,
            "persist" if change.is_none() => {
                options.next();
                change = Some(None);
            }
            unit if change.is_none() && is_unit(unit) => {
                options.next();
                change = Some(Some(deadline_or_now(unit, options.value()?, now, "hgetex")?));
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    let fields = fields(&mut options)?;
    let values = context.database().edit(&command.args()[0], |hash: &mut Hash| {
        let values: Vec<Option<Bytes>> = fields.iter().map(|field| hash.get(field).cloned()).collect();
        for field in fields {
            match change {
                Some(Some(deadline)) if deadline <= now => drop(hash.remove(field)),
                Some(deadline) => hash.expire(field, deadline),
                None => {}
            }
        }
        values
    })?;
    Ok(Reply::Array(
        values.unwrap_or_else(|| vec![None; fields.len()]).into_iter().map(value_or_null).collect(),
    ))
}

/// `HGETDEL key FIELDS numfields field [field ...]`
pub(super) fn hgetdel(context: &mut Context<'_>, command: &Command) -> Outcome {
    let fields = fields(&mut Options::new(&command.args()[1..]))?;
    let values = context.database().edit(&command.args()[0], |hash: &mut Hash| {
        fields.iter().map(|field| hash.remove(field)).collect::<Vec<_>>()
    })?;
    Ok(Reply::Array(
        values.unwrap_or_else(|| vec![None; fields.len()]).into_iter().map(value_or_null).collect(),
    ))
}

/// `HSETEX key [NX | XX] [FNX | FXX] [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL] FIELDS numfields field value [field value ...]`
pub(super) fn hsetex(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let now = database.now();
    let mut options = Options::new(&command.args()[1..]);
    let (mut key_must, mut fields_must, mut keep_ttl, mut until) = (None, None, false, None);
    while let Some(option) = options.rest().first() {
        let word = lowercase(option);
        match word.as_str() {
            "fields" => break,
            "nx" if key_must.is_none() => key_must = Some(false),
            "xx" if key_must.is_none() => key_must = Some(true),
            "fnx" if fields_must.is_none() => fields_must = Some(false),
            "fxx" if fields_must.is_none() => fields_must = Some(true),
            "keepttl" if until.is_none() => keep_ttl = true,
            unit if until.is_none() && !keep_ttl && is_unit(unit) => {
                options.next();
                let amount = options.rest().first().ok_or(Failure::SYNTAX)?;
                until = Some(deadline_or_now(unit, amount, now, "hsetex")?);
            }
            _ => return Err(Failure::SYNTAX),
        }
        options.next();
    }
    let pairs = counted(&mut options, 2)?;
    let hash = database.get::<Hash>(&command.args()[0])?;
    let has = |field: &[u8]| hash.is_some_and(|hash| hash.get(field).is_some());
    let allowed = key_must.is_none_or(|must| must == hash.is_some())
        && fields_must.is_none_or(|must| pairs.chunks_exact(2).all(|pair| has(&pair[0]) == must));
    if !allowed {
        return Ok(Reply::Integer(0));
    }
    database.edit_or_create(&command.args()[0], |hash: &mut Hash| {
        for pair in pairs.chunks_exact(2) {
            let before = hash.deadline(&pair[0]).flatten();
            hash.set(&pair[0], keep(&pair[1]));
            match if keep_ttl { before } else { until } {
                Some(deadline) if deadline <= now => drop(hash.remove(&pair[0])),
                None => {}
                deadline => hash.expire(&pair[0], deadline),
            }
        }
    })?;
    Ok(Reply::Integer(1))
}
