//! Keys whatever they hold, and their expiry.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::DATABASES;
use super::super::args::{integer, lowercase, milliseconds};
use super::{Context, Failure, Outcome};
use crate::command::Command;
use crate::reply::Reply;

/// `DEL key [key ...]`
pub(super) fn del(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut database = context.database();
    Ok(count(command.args().iter().filter(|key| database.remove(key).is_some()).count()))
}

/// `EXISTS key [key ...]`: a key named twice counts twice.
pub(super) fn exists(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    Ok(count(command.args().iter().filter(|key| database.contains(key)).count()))
}

/// `DBSIZE`
pub(super) fn dbsize(context: &mut Context<'_>, _command: &Command) -> Outcome {
    Ok(count(context.database().len()))
}

/// `FLUSHDB [ASYNC | SYNC]`
pub(super) fn flushdb(context: &mut Context<'_>, command: &Command) -> Outcome {
    check_flush_mode(command)?;
    context.database().clear();
    Ok(Reply::OK)
}

/// `FLUSHALL [ASYNC | SYNC]`
pub(super) fn flushall(context: &mut Context<'_>, command: &Command) -> Outcome {
    check_flush_mode(command)?;
    for index in 0..DATABASES {
        context.mock.database(index).clear();
    }
    Ok(Reply::OK)
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(super) fn expire(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire_in(context, command, 1000, "expire")
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(super) fn pexpire(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire_in(context, command, 1, "pexpire")
}

/// `TTL key`: rounded, as in Valkey, so that a fresh `EXPIRE key 10` shows 10.
pub(super) fn ttl(context: &mut Context<'_>, command: &Command) -> Outcome {
    time_left(context, command, |left| (left.as_millis() + 500) / 1000)
}

/// `PTTL key`
pub(super) fn pttl(context: &mut Context<'_>, command: &Command) -> Outcome {
    time_left(context, command, |left| left.as_millis())
}

fn time_left(context: &mut Context<'_>, command: &Command, unit: fn(Duration) -> u128) -> Outcome {
    let left = match context.database().deadline(&command.args()[0]) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => {
            let left = deadline.saturating_duration_since(Instant::now());
            i64::try_from(unit(left)).unwrap_or(i64::MAX)
        }
    };
    Ok(Reply::Integer(left))
}

fn expire_in(context: &mut Context<'_>, command: &Command, unit_ms: i64, name: &str) -> Outcome {
    let condition = ExpireIf::parse(&command.args()[2..])?;
    let too_far = || Failure::invalid_expire_time(name);
    let amount = milliseconds(integer(&command.args()[1])?, unit_ms).ok_or_else(too_far)?;
    let now = Instant::now();
    let deadline = match u64::try_from(amount) {
        Ok(amount) => now.checked_add(Duration::from_millis(amount)).ok_or_else(too_far)?,
        // In the past, however far.
        Err(_) => now,
    };

    let key = &command.args()[0];
    let mut database = context.database();
    let Some(current) = database.deadline(key) else { return Ok(Reply::Integer(0)) };
    if !condition.allows(current, deadline) {
        return Ok(Reply::Integer(0));
    }
    if amount <= 0 {
        database.remove(key);
    } else {
        database.expire_at(key, deadline);
    }
    Ok(Reply::Integer(1))
}

/// Conditions of `EXPIRE`. All that are given must hold.
#[derive(Default)]
struct ExpireIf {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl ExpireIf {
    fn parse(options: &[Bytes]) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        for option in options {
            match lowercase(option).as_str() {
                "nx" => parsed.none = true,
                "xx" => parsed.some = true,
                "gt" => parsed.later = true,
                "lt" => parsed.earlier = true,
                _ => {
                    let option = String::from_utf8_lossy(option);
                    return Err(format!("ERR Unsupported option {option}").into());
                }
            }
        }
        if parsed.none && (parsed.some || parsed.later || parsed.earlier) {
            return Err(Failure::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if parsed.later && parsed.earlier {
            return Err(Failure::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(parsed)
    }

    /// No deadline counts as one infinitely late.
    fn allows(&self, current: Option<Instant>, new: Instant) -> bool {
        let refused = self.none && current.is_some()
            || self.some && current.is_none()
            || self.later && current.is_none_or(|current| new <= current)
            || self.earlier && current.is_some_and(|current| new >= current);
        !refused
    }
}

fn check_flush_mode(command: &Command) -> Result<(), Failure> {
    match command.args() {
        [] => Ok(()),
        [mode] if matches!(lowercase(mode).as_str(), "async" | "sync") => Ok(()),
        _ => Err(Failure::SYNTAX),
    }
}

fn count(count: usize) -> Reply {
    Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}
