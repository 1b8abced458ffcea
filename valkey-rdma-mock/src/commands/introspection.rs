//! `COMMAND` and `INFO`.

use std::fmt::{self, Write};

use bytes::Bytes;
use nix::sys::resource::{UsageWho, getrusage};

use super::{COMMANDS, Context, Entry, Failure, Kind, Outcome, count};
use crate::args::lowercase;
use crate::version::{REDIS_VERSION, VALKEY_VERSION};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

/// `COMMAND`, `COMMAND COUNT`, `COMMAND LIST`, `COMMAND INFO [name ...]`, `COMMAND DOCS [name ...]`
pub(super) fn command(_context: &mut Context<'_>, command: &Command) -> Outcome {
    let entries = || COMMANDS.values().map(|(_, entry)| *entry);
    let Some((subcommand, names)) = command.args().split_first() else {
        return Ok(Reply::Array(entries().map(Entry::describe).collect()));
    };
    match (lowercase(subcommand).as_str(), names) {
        ("count", []) => Ok(count(COMMANDS.len())),
        ("list", []) => Ok(Reply::Array(COMMANDS.keys().map(|name| Reply::bulk(*name)).collect())),
        ("info", []) => Ok(Reply::Array(entries().map(Entry::describe).collect())),
        ("info", names) => Ok(Reply::Array(
            names.iter().map(|name| Entry::find(name).map_or(Reply::Null, Entry::describe)).collect(),
        )),
        ("docs", []) => Ok(Reply::Map(COMMANDS.values().map(document).collect())),
        ("docs", names) => {
            let known = names.iter().filter_map(|name| COMMANDS.get(lowercase(name).as_str()));
            Ok(Reply::Map(known.map(document).collect()))
        }
        ("getkeys", [name, args @ ..]) => {
            let words = Command::new(name.clone(), args.to_vec());
            let entry = Entry::find(name).ok_or(Failure::new("ERR Invalid command specified"))?;
            if !entry.takes(&words) {
                return Err(Failure::new("ERR Invalid number of arguments specified for command"));
            }
            let keys = entry.keys.of(&words);
            if keys.is_empty() {
                return Err(Failure::new("ERR The command has no key arguments"));
            }
            Ok(super::bulks(keys))
        }
        (known @ ("count" | "list" | "getkeys"), _) => Err(Failure::wrong_arity(&format!("command|{known}"))),
        _ => Err(Failure::unknown_subcommand("COMMAND", subcommand)),
    }
}

impl Entry {
    /// The entry of `COMMAND INFO`. ACL categories, tips, key specifications and
    /// subcommands are empty.
    fn describe(&self) -> Reply {
        let (first, last, step) = self.keys.span();
        let flags: &[&str] = match self.kind {
            Kind::Admin => &[],
            Kind::Read => &["readonly"],
            Kind::Write => &["write"],
        };
        Reply::Array(vec![
            Reply::bulk(self.name),
            Reply::Integer(self.arity),
            Reply::Set(flags.iter().map(|flag| Reply::simple(*flag)).collect()),
            Reply::Integer(first),
            Reply::Integer(last),
            Reply::Integer(step),
            Reply::Set(vec![]),
            Reply::Array(vec![]),
            Reply::Array(vec![]),
            Reply::Array(vec![]),
        ])
    }
}

/// The pair of `COMMAND DOCS`. Without `arguments` valkey-cli would print `(null)` in its help.
fn document((group, entry): &(&'static str, &'static Entry)) -> (Reply, Reply) {
    let fields = vec![
        (Reply::bulk("summary"), Reply::bulk(entry.summary)),
        (Reply::bulk("group"), Reply::bulk(*group)),
        (Reply::bulk("arguments"), Reply::Array(vec![])),
    ];
    (Reply::bulk(entry.name), Reply::Map(fields))
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

const SECTIONS: [(&str, Section); 8] = [
    ("Server", server),
    ("Clients", clients),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
];

fn server(context: &Context<'_>, text: &mut String) -> fmt::Result {
    write!(
        text,
        "redis_version:{REDIS_VERSION}\r\nserver_name:valkey\r\nvalkey_version:{VALKEY_VERSION}\r\n"
    )?;
    let mode = if context.state.member.is_some() { "cluster" } else { "standalone" };
    write!(text, "executable:valkey-rdma-mock\r\nserver_mode:{mode}\r\nredis_mode:{mode}\r\n")?;
    write!(text, "os:{}\r\narch_bits:{}\r\n", std::env::consts::OS, usize::BITS)?;
    write!(text, "process_id:{}\r\n", std::process::id())?;
    write!(text, "transport:{}\r\n", context.peer.transport())?;
    write!(text, "uptime_in_seconds:{}\r\n", context.state.clock.started.elapsed().as_secs())?;
    let Some(member) = &context.state.member else { return Ok(()) };
    for line in member.listeners.get().into_iter().flatten() {
        write!(text, "{line}\r\n")?;
    }
    write!(text, "availability_zone:{}\r\n", member.zone())
}

/// That of the whole process, which can be a test's.
fn cpu(_context: &Context<'_>, text: &mut String) -> fmt::Result {
    let Ok(used) = getrusage(UsageWho::RUSAGE_SELF) else { return Ok(()) };
    for (name, time) in [("sys", used.system_time()), ("user", used.user_time())] {
        write!(text, "used_cpu_{name}:{}.{:06}\r\n", time.tv_sec(), time.tv_usec())?;
    }
    Ok(())
}

fn clients(context: &Context<'_>, text: &mut String) -> fmt::Result {
    let tracking = context.state.clients.values().filter(|client| client.tracking).count();
    let listening = context.state.clients.values().filter(|client| client.listens()).count();
    write!(text, "connected_clients:{}\r\n", context.state.clients.len())?;
    write!(text, "blocked_clients:{}\r\n", context.state.waiters.len())?;
    write!(text, "tracking_clients:{tracking}\r\npubsub_clients:{listening}\r\n")
}

fn persistence(_context: &Context<'_>, text: &mut String) -> fmt::Result {
    write!(text, "loading:0\r\nasync_loading:0\r\n")
}

fn stats(context: &Context<'_>, text: &mut String) -> fmt::Result {
    let state = &context.state;
    write!(text, "total_connections_received:{}\r\n", state.clients_seen)?;
    write!(text, "total_commands_processed:{}\r\n", state.commands_run)?;
    write!(text, "total_error_replies:{}\r\n", state.errors)?;
    write!(text, "tracking_total_keys:{}\r\n", state.tracking.keys())
}

fn replication(context: &Context<'_>, text: &mut String) -> fmt::Result {
    if let Some(member) = &context.state.member {
        let topology = member.topology();
        if let Some(primary) = topology.nodes[member.index].primary {
            let primary = &topology.nodes[primary];
            write!(
                text,
                "role:slave\r\nmaster_host:{}\r\nmaster_port:{}\r\n",
                primary.ip(),
                primary.addr.port()
            )?;
            return write!(text, "master_link_status:up\r\nconnected_slaves:0\r\n");
        }
        let replicas = topology.replicas_of(member.index).count();
        return write!(text, "role:master\r\nconnected_slaves:{replicas}\r\n");
    }
    write!(text, "role:master\r\nconnected_slaves:0\r\n")
}

fn cluster(context: &Context<'_>, text: &mut String) -> fmt::Result {
    write!(text, "cluster_enabled:{}\r\n", u8::from(context.state.member.is_some()))
}

fn keyspace(context: &Context<'_>, text: &mut String) -> fmt::Result {
    for (index, database) in context.state.databases.iter().enumerate() {
        if database.len() > 0 {
            let (keys, expires) = (database.len(), database.expiring());
            write!(text, "db{index}:keys={keys},expires={expires},avg_ttl=0\r\n")?;
        }
    }
    Ok(())
}
