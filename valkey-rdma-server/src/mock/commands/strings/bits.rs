//! Strings as arrays of bits; the first is the highest of the first byte.

use bytes::Bytes;

use super::super::super::args::{integer, lowercase, range};
use super::super::super::store::{Expiry, Value};
use super::super::{Context, Failure, Outcome, count};
use super::{bit_offset, rewrite};
use crate::command::Command;
use crate::reply::Reply;

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
    let database = context.database();
    let key = &command.args()[0];
    let old = database.get::<Bytes>(key)?.is_some_and(|value| bit(value, offset));
    rewrite(database, key, |value| {
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
    Ok(count(bits.filter(|at| bit(&value, *at)).count()))
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
    let found = bit_range(&command.args()[2..], &value)?.find(|at| bit(&value, *at) == wanted);
    Ok(match found {
        Some(at) => count(at),
        // Behind an open end there are zeros.
        None if !wanted && command.args().len() < 4 => count(value.len() * 8),
        None => Reply::Integer(-1),
    })
}

/// The bits that `[start [end [BYTE | BIT]]]` means.
fn bit_range(args: &[Bytes], value: &[u8]) -> Result<std::ops::Range<usize>, Failure> {
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
    let combine: fn(u8, u8) -> u8 = match operation.as_str() {
        "and" => |one, other| one & other,
        "or" => |one, other| one | other,
        "xor" | "not" => |one, other| one ^ other,
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
    let mut result = sources[0].to_vec();
    result.resize(len, 0);
    for (at, byte) in result.iter_mut().enumerate() {
        for source in &sources[1..] {
            *byte = combine(*byte, source.get(at).copied().unwrap_or(0));
        }
        if negated {
            *byte = !*byte;
        }
    }
    let destination = &command.args()[1];
    if len == 0 {
        database.remove(destination);
    } else {
        database.set(destination, Value::String(result.into()), Expiry::Never);
    }
    Ok(count(len))
}
