//! Strings as arrays of bits; the first is the highest of the first byte.

use std::ops::Range;

use bytes::Bytes;

use super::super::{Context, Failure, Outcome, count};
use super::{bit_offset, check_growth, rewrite};
use crate::args::{integer, lowercase, range};
use crate::store::{Expiry, Value};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

pub(super) fn getbit(context: &mut Context<'_>, command: &Command) -> Outcome {
    let offset = bit_offset(&command.args()[1], context.state.settings.max_value_len())?;
    let value = context.database().get::<Bytes>(&command.args()[0])?;
    Ok(Reply::Integer(value.is_some_and(|value| bit(value, offset)).into()))
}

pub(super) fn setbit(context: &mut Context<'_>, command: &Command) -> Outcome {
    let offset = bit_offset(&command.args()[1], context.state.settings.max_value_len())?;
    let on = match &command.args()[2][..] {
        b"0" => false,
        b"1" => true,
        _ => return Err(Failure::new("ERR bit is not an integer or out of range")),
    };
    let key = &command.args()[0];
    let value = context.database().get::<Bytes>(key)?;
    let old = value.is_some_and(|value| bit(value, offset));
    let growth = (offset / 8 + 1).saturating_sub(value.map_or(0, Bytes::len));
    check_growth(context, growth)?;
    rewrite(context.database(), key, |value| {
        if value.len() <= offset / 8 {
            value.resize(offset / 8 + 1, 0);
        }
        let mask = 0x80 >> (offset % 8);
        value[offset / 8] = if on { value[offset / 8] | mask } else { value[offset / 8] & !mask };
    })?;
    Ok(Reply::Integer(old.into()))
}

/// `BITCOUNT key [start [end [BYTE | BIT]]]`
pub(super) fn bitcount(context: &mut Context<'_>, command: &Command) -> Outcome {
    let value = context.database().get::<Bytes>(&command.args()[0])?.cloned().unwrap_or_default();
    let bits = bit_range(&command.args()[1..], &value)?;
    Ok(count(ones(&value, bits)))
}

/// How many bits in a range of an existing string are set.
fn ones(value: &[u8], bits: Range<usize>) -> usize {
    let whole = bits.start.div_ceil(8)..bits.end / 8;
    let one_by_one = |mut bits: Range<usize>| bits.by_ref().filter(|at| bit(value, *at)).count();
    if whole.is_empty() {
        return one_by_one(bits);
    }
    let within: usize = value[whole.clone()].iter().map(|byte| byte.count_ones() as usize).sum();
    one_by_one(bits.start..whole.start * 8) + within + one_by_one(whole.end * 8..bits.end)
}

/// `BITPOS key bit [start [end [BYTE | BIT]]]`
pub(super) fn bitpos(context: &mut Context<'_>, command: &Command) -> Outcome {
    let wanted = match &command.args()[1][..] {
        b"0" => false,
        b"1" => true,
        text => {
            integer(text)?;
            return Err(Failure::new("ERR The bit argument must be 1 or 0."));
        }
    };
    let value = context.database().get::<Bytes>(&command.args()[0])?.cloned();
    let Some(value) = value else { return Ok(Reply::Integer(if wanted { -1 } else { 0 })) };
    let bits = bit_range(&command.args()[2..], &value)?;
    Ok(match first(&value, bits, wanted) {
        Some(at) => count(at),
        // Behind an open end there are zeros.
        None if !wanted && command.args().len() < 4 => count(value.len() * 8),
        None => Reply::Integer(-1),
    })
}

/// The first bit in a range of an existing string that is set, or is not.
fn first(value: &[u8], bits: Range<usize>, set: bool) -> Option<usize> {
    // Bytes without such a bit are passed over whole.
    let without = if set { 0 } else { 0xff };
    let mut at = bits.start;
    while at < bits.end {
        if at.is_multiple_of(8) && value.get(at / 8) == Some(&without) {
            at += 8;
        } else if bit(value, at) == set {
            return Some(at);
        } else {
            at += 1;
        }
    }
    None
}

/// The bits that `[start [end [BYTE | BIT]]]` means.
fn bit_range(args: &[Bytes], value: &[u8]) -> Result<Range<usize>, Failure> {
    let end = |args: &[Bytes]| args.get(1).map_or(Ok(-1), |end| integer(end));
    let by_bits = match args.get(2).map(|unit| lowercase(unit)) {
        None => false,
        Some(unit) if unit.as_str() == "byte" => false,
        Some(unit) if unit.as_str() == "bit" => true,
        Some(_) => return Err(Failure::SYNTAX),
    };
    if args.len() > 3 {
        return Err(Failure::SYNTAX);
    }
    let Some(start) = args.first() else { return Ok(0..value.len() * 8) };
    let (start, end) = (integer(start)?, end(args)?);
    if by_bits {
        return Ok(range(start, end, value.len() * 8));
    }
    let bytes = range(start, end, value.len());
    Ok(bytes.start * 8..bytes.end * 8)
}

fn bit(value: &[u8], offset: usize) -> bool {
    value.get(offset / 8).is_some_and(|byte| byte & (0x80 >> (offset % 8)) != 0)
}

/// `BITOP AND | OR | XOR | NOT destination key [key ...]`
pub(super) fn bitop(context: &mut Context<'_>, command: &Command) -> Outcome {
    let operation = lowercase(&command.args()[0]);
    let combine: fn(&mut [u8], &[u8]) = match operation.as_str() {
        "and" => |all, other| combine(all, other, |one, other| one & other),
        "or" => |all, other| combine(all, other, |one, other| one | other),
        // `NOT` has nothing to be combined with.
        "xor" | "not" => |all, other| combine(all, other, |one, other| one ^ other),
        _ => return Err(Failure::SYNTAX),
    };
    let negated = operation.as_str() == "not";
    if negated && command.args().len() != 3 {
        return Err(Failure::new("ERR BITOP NOT must be called with a single source key."));
    }
    let database = context.database();
    let sources: Vec<Bytes> = command.args()[2..]
        .iter()
        .map(|key| Ok(database.get::<Bytes>(key)?.cloned().unwrap_or_default()))
        .collect::<Result<_, Failure>>()?;
    let len = sources.iter().map(Bytes::len).max().unwrap_or(0);
    if len.saturating_mul(sources.len()) > MAX_COMBINED {
        return Err(Failure::new(
            "ERR too much to combine: keys by the longest value's length make over 1 GiB",
        ));
    }
    check_growth(context, len)?;
    let mut result = sources[0].to_vec();
    result.resize(len, 0);
    for source in &sources[1..] {
        combine(&mut result, source);
    }
    if negated {
        result.iter_mut().for_each(|byte| *byte = !*byte);
    }
    let database = context.database();
    let destination = &command.args()[1];
    if len == 0 {
        database.remove(destination);
    } else {
        database.set(destination, Value::String(result.into()), Expiry::Never);
    }
    Ok(count(len))
}

/// Combines `all` with `other`, which goes on with zeros where it is shorter.
fn combine(all: &mut [u8], other: &[u8], bits: impl Fn(u8, u8) -> u8) {
    let (both, alone) = all.split_at_mut(other.len());
    for (byte, other) in both.iter_mut().zip(other) {
        *byte = bits(*byte, *other);
    }
    for byte in alone {
        *byte = bits(*byte, 0);
    }
}

/// Bytes of the longest source times the number of sources: everybody else waits for them.
const MAX_COMBINED: usize = 1 << 30;
