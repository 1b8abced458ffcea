//! Settings, and standing still.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{Admin, Context, Entry, Failure, NoKey, Outcome, container, count, introspection, row};
use crate::args::{integer, lowercase};
use crate::config::memory as settings_memory;
use crate::membership::{Member, OFFSET};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    container("command", -1, Admin, NoKey, "Describes the commands.", introspection::command),
    container("config", -2, Admin, NoKey, "Shows and changes settings.", config),
    container("debug", -2, Admin, NoKey, "SLEEP stalls the whole server.", debug),
    row("info", -1, Admin, NoKey, "Returns information about the server.", introspection::info),
    row("role", 1, Admin, NoKey, "Returns the role.", role),
    row("time", 1, Admin, NoKey, "Returns the time.", time),
    row("wait", 3, Admin, NoKey, "Returns how many replicas have everything.", wait),
];

/// `CONFIG GET pattern [pattern ...]`, `CONFIG SET name value [name value ...]`, `CONFIG RESETSTAT`
fn config(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    match (subcommand.as_str(), &command.args()[1..]) {
        ("get", patterns @ [_, ..]) => {
            let found = context.state.settings.matching(patterns);
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
    let settings = &mut context.state.settings;
    for pair in pairs.chunks_exact(2) {
        if !settings.has(lowercase(&pair[0]).as_str()) {
            let name = String::from_utf8_lossy(&pair[0]);
            return Err(format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'").into());
        }
    }
    for pair in pairs.chunks_exact(2) {
        let name = lowercase(&pair[0]);
        if MEMORY_SETTINGS.contains(&name.as_str()) && settings_memory(&pair[1]).is_none() {
            return Err(format!(
                "ERR CONFIG SET failed (possibly related to argument '{}') - argument must be a memory value",
                name.as_str()
            )
            .into());
        }
    }
    for pair in pairs.chunks_exact(2) {
        settings.set(lowercase(&pair[0]).as_str(), Bytes::copy_from_slice(&pair[1]));
    }
    Ok(Reply::OK)
}

/// `DEBUG SLEEP seconds`
fn debug(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    match (subcommand.as_str(), &command.args()[1..]) {
        ("sleep", [seconds]) => {
            let seconds = str::from_utf8(seconds).ok().and_then(|seconds| seconds.parse().ok());
            let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            let duration = duration.ok_or(Failure::NOT_A_FLOAT)?;
            if duration > LONGEST_SLEEP {
                return Err(Failure::new("ERR DEBUG SLEEP here takes at most 3600 seconds"));
            }
            let until = Instant::now() + duration;
            context.state.stalled_until = Some(until);
            context.stalled_until = Some(until);
            Ok(Reply::OK)
        }
        _ => Err(Failure::unknown_subcommand("DEBUG", &command.args()[0])),
    }
}

/// Settings that are amounts of memory.
const MEMORY_SETTINGS: [&str; 3] = ["client-query-buffer-limit", "maxmemory", "proto-max-bulk-len"];

/// A forgotten sleep does not stall the mock for good.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

fn role(context: &mut Context<'_>, _command: &Command) -> Outcome {
    if let Some(member) = &context.state.member {
        return Ok(member_role(member));
    }
    Ok(Reply::Array(vec![Reply::bulk("master"), Reply::Integer(0), Reply::Array(vec![])]))
}

fn member_role(member: &Member) -> Reply {
    let topology = member.topology();
    let address = |node: usize| {
        let node = &topology.nodes[node];
        (Reply::bulk(node.ip()), node.addr.port())
    };
    match topology.nodes[member.index].primary {
        Some(primary) => {
            let (ip, port) = address(primary);
            let offset = Reply::Integer(OFFSET);
            Reply::Array(vec![
                Reply::bulk("slave"),
                ip,
                Reply::Integer(port.into()),
                Reply::bulk("connected"),
                offset,
            ])
        }
        None => {
            let replicas = topology.replicas_of(member.index).map(|node| {
                let (ip, port) = address(node);
                Reply::Array(vec![ip, Reply::bulk(port.to_string()), Reply::bulk(OFFSET.to_string())])
            });
            Reply::Array(vec![
                Reply::bulk("master"),
                Reply::Integer(OFFSET),
                Reply::Array(replicas.collect()),
            ])
        }
    }
}

/// Seconds since 1970, and microseconds.
fn time(context: &mut Context<'_>, _command: &Command) -> Outcome {
    let now = context.database().now();
    let parts = [now / 1000, now % 1000 * 1000];
    Ok(Reply::Array(parts.iter().map(|part| Reply::bulk(part.to_string())).collect()))
}

/// Returns immediately: there are no replicas, or they have everything already.
fn wait(context: &mut Context<'_>, command: &Command) -> Outcome {
    integer(&command.args()[0])?;
    if integer(&command.args()[1])? < 0 {
        return Err(Failure::new("ERR timeout is negative"));
    }
    Ok(count(context.state.member.as_ref().map_or(0, |member| {
        let topology = member.topology();
        topology.replicas_of(member.index).filter(|node| !topology.nodes[*node].failed).count()
    })))
}
