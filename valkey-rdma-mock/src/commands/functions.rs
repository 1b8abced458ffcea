//! Scripting commands. The mock has no interpreter: it refuses scripts, and functions return nil.

use super::{Admin, Context, Counted, Entry, Failure, NoKey, Outcome, container, row};
use crate::args::lowercase;
use valkey_rdma_resp::integer;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("eval", -3, Admin, Counted(1), "Refused: there is no Lua here.", eval),
    row("evalsha", -3, Admin, Counted(1), "Finds no script.", evalsha),
    row("fcall", -3, Admin, Counted(1), "Calls a function.", fcall),
    row("fcall_ro", -3, Admin, Counted(1), "Calls a function.", fcall),
    container("function", -2, Admin, NoKey, "LOAD, DELETE and FLUSH. Functions return nil: the mock has no interpreter.", function),
    container("script", -2, Admin, NoKey, "EXISTS and FLUSH; there are no scripts.", script),
];

fn eval(_context: &mut Context<'_>, _command: &Command) -> Outcome {
    Err(Failure::new("ERR this mock has no Lua: EVAL needs a real Valkey"))
}

/// The error after which clients send the script itself.
fn evalsha(_context: &mut Context<'_>, _command: &Command) -> Outcome {
    Err(Failure::new("NOSCRIPT No matching script."))
}

/// `SCRIPT EXISTS digest [digest ...]`, `SCRIPT FLUSH [ASYNC | SYNC]`
fn script(_context: &mut Context<'_>, command: &Command) -> Outcome {
    match (lowercase(&command.args()[0]).as_str(), &command.args()[1..]) {
        ("exists", digests @ [_, ..]) => {
            Ok(Reply::Array(digests.iter().map(|_| Reply::Integer(0)).collect()))
        }
        ("flush", []) => Ok(Reply::OK),
        ("flush", [mode]) if matches!(lowercase(mode).as_str(), "async" | "sync") => Ok(Reply::OK),
        ("flush", [_]) => Err(Failure::new("ERR SCRIPT FLUSH only support SYNC|ASYNC option")),
        ("load", [_]) => Err(Failure::new("ERR this mock has no Lua: SCRIPT LOAD needs a real Valkey")),
        (known @ ("exists" | "load"), _) => Err(Failure::wrong_arity(&format!("script|{known}"))),
        _ => Err(Failure::unknown_subcommand("SCRIPT", &command.args()[0])),
    }
}

/// `FCALL function numkeys [key ...] [arg ...]`
fn fcall(context: &mut Context<'_>, command: &Command) -> Outcome {
    let rest = &command.args()[2..];
    let number = integer::parse(&command.args()[1]).ok_or(Failure::new("ERR Bad number of keys provided"))?;
    let number = usize::try_from(number).map_err(|_| Failure::new("ERR Number of keys can't be negative"))?;
    if number > rest.len() {
        return Err(Failure::new("ERR Number of keys can't be greater than number of args"));
    }
    if !context.state.functions.is_loaded(&command.args()[0]) {
        return Err(Failure::new("ERR Function not found"));
    }
    Ok(Reply::Null)
}

/// `FUNCTION LOAD [REPLACE] code`, `FUNCTION DELETE library`, `FUNCTION FLUSH`
fn function(context: &mut Context<'_>, command: &Command) -> Outcome {
    let functions = &mut context.state.functions;
    match (lowercase(&command.args()[0]).as_str(), &command.args()[1..]) {
        ("load", [code]) => Ok(Reply::bulk(functions.load(code, false)?)),
        ("load", [replace, code]) if lowercase(replace).as_str() == "replace" => {
            Ok(Reply::bulk(functions.load(code, true)?))
        }
        ("load", [other, _, ..]) => {
            Err(format!("ERR Unknown option given: {}", String::from_utf8_lossy(other)).into())
        }
        ("delete", [library]) if functions.delete(library) => Ok(Reply::OK),
        ("delete", [_]) => Err(Failure::new("ERR Library not found")),
        ("flush", []) => {
            functions.flush();
            Ok(Reply::OK)
        }
        ("flush", [mode]) if matches!(lowercase(mode).as_str(), "async" | "sync") => {
            functions.flush();
            Ok(Reply::OK)
        }
        (known @ ("load" | "delete"), _) => Err(Failure::wrong_arity(&format!("function|{known}"))),
        _ => Err(Failure::unknown_subcommand("FUNCTION", &command.args()[0])),
    }
}
