//! What the mock tells about itself.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::super::args::lowercase;
use super::super::{DATABASES, REDIS_VERSION, VALKEY_VERSION};
use super::{Context, Entry, Failure, Group, Keys, Outcome, TABLE};
use crate::command::Command;
use crate::reply::Reply;

/// `COMMAND`, `COMMAND COUNT`, `COMMAND LIST`, `COMMAND INFO [name ...]`, `COMMAND DOCS [name ...]`
pub(super) fn command(_context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some((subcommand, names)) = command.args().split_first() else {
        return Ok(Reply::Array(TABLE.iter().map(Entry::describe).collect()));
    };
    match (lowercase(subcommand).as_str(), names) {
        ("count", []) => Ok(Reply::Integer(TABLE.len() as i64)),
        ("list", []) => Ok(Reply::Array(TABLE.iter().map(|entry| Reply::bulk(entry.name)).collect())),
        ("info", []) => Ok(Reply::Array(TABLE.iter().map(Entry::describe).collect())),
        ("info", names) => Ok(Reply::Array(
            names.iter().map(|name| Entry::find(name).map_or(Reply::NullArray, Entry::describe)).collect(),
        )),
        ("docs", []) => Ok(Reply::Map(TABLE.iter().map(Entry::document).collect())),
        ("docs", names) => {
            Ok(Reply::Map(names.iter().filter_map(|name| Entry::find(name)).map(Entry::document).collect()))
        }
        (known @ ("count" | "list"), _) => Err(Failure::wrong_arity(&format!("command|{known}"))),
        _ => Err(Failure::unknown_subcommand("COMMAND", subcommand)),
    }
}

impl Entry {
    /// The entry of `COMMAND INFO`. What nobody asks a mock for (flags, ACL categories, tips, key specifications,
    /// subcommands) is there, but empty.
    fn describe(&self) -> Reply {
        let (first, last, step) = match self.keys {
            Keys::None => (0, 0, 0),
            Keys::First => (1, 1, 1),
            Keys::All => (1, -1, 1),
            Keys::EverySecond => (1, -1, 2),
        };
        Reply::Array(vec![
            Reply::bulk(self.name),
            Reply::Integer(self.arity),
            Reply::Set(vec![]),
            Reply::Integer(first),
            Reply::Integer(last),
            Reply::Integer(step),
            Reply::Set(vec![]),
            Reply::Array(vec![]),
            Reply::Array(vec![]),
            Reply::Array(vec![]),
        ])
    }

    /// The pair of `COMMAND DOCS`. Without `arguments` valkey-cli would print `(null)` in its help.
    fn document(&self) -> (Reply, Reply) {
        let group = match self.group {
            Group::Connection => "connection",
            Group::Generic => "generic",
            Group::Server => "server",
            Group::String => "string",
        };
        let fields = vec![
            (Reply::bulk("summary"), Reply::bulk(self.summary)),
            (Reply::bulk("group"), Reply::bulk(group)),
            (Reply::bulk("arguments"), Reply::Array(vec![])),
        ];
        (Reply::bulk(self.name), Reply::Map(fields))
    }
}

/// `INFO [section ...]`
pub(super) fn info(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut text = String::new();
    for (name, write) in SECTIONS {
        if wants(command.args(), name) {
            // Sections are set apart by an empty line.
            let separator = if text.is_empty() { "" } else { "\r\n" };
            let written = write!(text, "{separator}# {name}\r\n").and_then(|()| write(context, &mut text));
            written.expect("writing to a String cannot fail");
        }
    }
    Ok(Reply::Verbatim { format: *b"txt", text: text.into() })
}

fn wants(asked: &[Bytes], section: &str) -> bool {
    asked.is_empty()
        || asked.iter().any(|asked| {
            asked.eq_ignore_ascii_case(section.as_bytes())
                || matches!(lowercase(asked).as_str(), "all" | "default" | "everything")
        })
}

type Section = fn(&Context<'_>, &mut String) -> fmt::Result;

const SECTIONS: [(&str, Section); 4] =
    [("Server", server), ("Clients", clients), ("Stats", stats), ("Keyspace", keyspace)];

fn server(context: &Context<'_>, text: &mut String) -> fmt::Result {
    write!(
        text,
        "redis_version:{REDIS_VERSION}\r\nserver_name:valkey\r\nvalkey_version:{VALKEY_VERSION}\r\n"
    )?;
    write!(text, "executable:valkey-rdma-mock\r\nserver_mode:standalone\r\nredis_mode:standalone\r\n")?;
    write!(text, "os:{}\r\narch_bits:{}\r\n", std::env::consts::OS, usize::BITS)?;
    write!(text, "process_id:{}\r\n", std::process::id())?;
    write!(text, "transport:{}\r\n", context.peer.transport())?;
    write!(text, "uptime_in_seconds:{}\r\n", context.mock.started.elapsed().as_secs())
}

fn clients(context: &Context<'_>, text: &mut String) -> fmt::Result {
    // The mock itself holds the first reference.
    write!(text, "connected_clients:{}\r\n", Arc::strong_count(&context.mock.connected) - 1)
}

fn stats(context: &Context<'_>, text: &mut String) -> fmt::Result {
    let sessions = context.mock.sessions_started.load(Ordering::Relaxed);
    let commands = context.mock.commands_run.load(Ordering::Relaxed);
    write!(text, "total_connections_received:{sessions}\r\ntotal_commands_processed:{commands}\r\n")
}

fn keyspace(context: &Context<'_>, text: &mut String) -> fmt::Result {
    for index in 0..DATABASES {
        let database = context.mock.database(index);
        if database.len() > 0 {
            let (keys, expires) = (database.len(), database.expiring());
            write!(text, "db{index}:keys={keys},expires={expires},avg_ttl=0\r\n")?;
        }
    }
    Ok(())
}
