//! Settings, and standing still.

use std::time::Duration;

use bytes::Bytes;

use super::super::args::lowercase;
use super::{Context, Failure, Outcome};
use crate::command::Command;
use crate::reply::Reply;

/// `CONFIG GET pattern [pattern ...]`, `CONFIG SET name value [name value ...]`, `CONFIG RESETSTAT`
pub(super) fn config(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    match (subcommand.as_str(), &command.args()[1..]) {
        ("get", patterns @ [_, ..]) => {
            let settings = context.mock.settings();
            let found = settings.matching(patterns);
            Ok(Reply::Map(
                found.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value.clone()))).collect(),
            ))
        }
        ("set", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => config_set(context, pairs),
        ("set", [_, _, ..]) => Err(Failure::SYNTAX),
        ("resetstat", []) => Ok(Reply::OK),
        (known @ ("get" | "set" | "resetstat"), _) => Err(Failure::wrong_arity(&format!("config|{known}"))),
        _ => Err(Failure::unknown_subcommand("CONFIG", &command.args()[0])),
    }
}

/// Sets all or nothing.
fn config_set(context: &mut Context<'_>, pairs: &[Bytes]) -> Outcome {
    let mut settings = context.mock.settings();
    for pair in pairs.chunks_exact(2) {
        if !settings.has(lowercase(&pair[0]).as_str()) {
            let name = String::from_utf8_lossy(&pair[0]);
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'").into());
        }
    }
    for pair in pairs.chunks_exact(2) {
        settings.set(lowercase(&pair[0]).as_str(), Bytes::copy_from_slice(&pair[1]));
    }
    Ok(Reply::OK)
}

/// `DEBUG SLEEP seconds`
pub(super) fn debug(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    match (subcommand.as_str(), &command.args()[1..]) {
        ("sleep", [seconds]) => {
            let seconds = str::from_utf8(seconds).ok().and_then(|seconds| seconds.parse().ok());
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            context.stall_for = Some(duration.ok_or(Failure::new("ERR value is not a valid float"))?);
            Ok(Reply::OK)
        }
        _ => Err(Failure::unknown_subcommand("DEBUG", &command.args()[0])),
    }
}
