//! Expiry of keys.

use bytes::Bytes;

use super::{Context, Entry, Failure, First, Outcome, Read, Write, row};
use crate::args::{integer, lowercase, moment};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("expire", -3, Write, First, "Sets the expiry of a key in seconds.", expire),
    row("expireat", -3, Write, First, "Sets the expiry of a key to a time in seconds.", expireat),
    row("persist", 2, Write, First, "Removes the expiry of a key.", persist),
    row("pexpire", -3, Write, First, "Sets the expiry of a key in milliseconds.", pexpire),
    row("pexpireat", -3, Write, First, "Sets the expiry of a key to a time in milliseconds.", pexpireat),
    row("pttl", 2, Read, First, "Returns the time left to a key in milliseconds.", pttl),
    row("ttl", 2, Read, First, "Returns the time left to a key in seconds.", ttl),
];

fn expire(context: &mut Context<'_>, command: &Command) -> Outcome {
    let base = context.database().now();
    expire_at(context, command, 1000, base, "expire")
}

fn pexpire(context: &mut Context<'_>, command: &Command) -> Outcome {
    let base = context.database().now();
    expire_at(context, command, 1, base, "pexpire")
}

fn expireat(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire_at(context, command, 1000, 0, "expireat")
}

fn pexpireat(context: &mut Context<'_>, command: &Command) -> Outcome {
    expire_at(context, command, 1, 0, "pexpireat")
}

/// `... key time [NX | XX | GT | LT]`
fn expire_at(context: &mut Context<'_>, command: &Command, unit_ms: i64, base: i64, name: &str) -> Outcome {
    let condition = ExpireIf::parse(&command.args()[2..])?;
    let amount = integer(&command.args()[1])?;
    let deadline = moment(amount, unit_ms, base).ok_or_else(|| Failure::invalid_expire_time(name))?;
    let key = &command.args()[0];
    let database = context.database();
    let Some(current) = database.deadline(key) else { return Ok(Reply::Integer(0)) };
    if !condition.allows(current, deadline) {
        return Ok(Reply::Integer(0));
    }
    database.expire(key, Some(deadline));
    Ok(Reply::Integer(1))
}

fn persist(context: &mut Context<'_>, command: &Command) -> Outcome {
    let key = &command.args()[0];
    let database = context.database();
    if database.deadline(key).flatten().is_none() {
        return Ok(Reply::Integer(0));
    }
    database.expire(key, None);
    Ok(Reply::Integer(1))
}

/// Rounded, as in Valkey, so that a fresh `EXPIRE key 10` shows 10.
fn ttl(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    about_deadline(context, command, |deadline| ((deadline - now).max(0) + 500) / 1000)
}

fn pttl(context: &mut Context<'_>, command: &Command) -> Outcome {
    let now = context.database().now();
    about_deadline(context, command, |deadline| (deadline - now).max(0))
}

fn about_deadline(context: &mut Context<'_>, command: &Command, show: impl FnOnce(i64) -> i64) -> Outcome {
    Ok(Reply::Integer(match context.database().deadline(&command.args()[0]) {
        None => -2,
        Some(None) => -1,
        Some(Some(deadline)) => show(deadline),
    }))
}

/// Conditions of `EXPIRE`. All that are given must hold.
#[derive(Default)]
pub(super) struct ExpireIf {
    none: bool,
    some: bool,
    later: bool,
    earlier: bool,
}

impl ExpireIf {
    fn parse(options: &[Bytes]) -> Result<Self, Failure> {
        let mut parsed = Self::default();
        for option in options {
            if !parsed.take(option) {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unsupported option {option}").into());
            }
        }
        parsed.check()?;
        Ok(parsed)
    }

    /// `false`: not a condition.
    pub(super) fn take(&mut self, option: &[u8]) -> bool {
        match lowercase(option).as_str() {
            "nx" => self.none = true,
            "xx" => self.some = true,
            "gt" => self.later = true,
            "lt" => self.earlier = true,
            _ => return false,
        }
        true
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.none && (self.some || self.later || self.earlier) {
            return Err(Failure::new("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        if self.later && self.earlier {
            return Err(Failure::new("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(())
    }

    /// No deadline counts as one infinitely late.
    pub(super) fn allows(&self, current: Option<i64>, new: i64) -> bool {
        let refused = self.none && current.is_some()
            || self.some && current.is_none()
            || self.later && current.is_none_or(|current| new <= current)
            || self.earlier && current.is_some_and(|current| new >= current);
        !refused
    }
}
