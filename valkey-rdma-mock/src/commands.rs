//! The commands of the mock, and how a command is found and run.
//!
//! **To add a command**, follow the recipe in `CONTRIBUTING.md`. The function of a command has the type of [`Entry::run`]; its arguments
//! are already counted. A command with subcommands, such as `CLIENT`, has a row made by [`container`], every other command one made
//! by [`row`].

mod blobs;
mod blocking;
mod client;
mod cluster;
mod connection;
mod expiry;
mod functions;
mod hashes;
mod introspection;
mod keys;
mod list_pops;
mod lists;
mod pubsub;
mod redirect;
mod server;
mod sets;
mod sorted_ranges;
mod sorted_sets;
mod stream_claims;
mod stream_groups;
mod stream_info;
mod streams;
mod strings;
mod transactions;

use std::sync::LazyLock;

use bytes::Bytes;
use foldhash::fast::RandomState;
use indexmap::IndexMap;

use crate::args::lowercase;
use crate::context::Context;
use crate::failure::Failure;
use valkey_rdma_resp::integer;
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

/// What a command's function returns.
type Outcome = Result<Reply, Failure>;

/// A row of the table: what `COMMAND` reports about a command, and its function.
struct Entry {
    /// In lower case.
    name: &'static str,
    /// Number of words including the name. Negative: a minimum. Checked before `run` is called.
    arity: i64,
    kind: Kind,
    keys: Keys,
    /// The first argument is a subcommand, which error texts name as well.
    has_subcommands: bool,
    summary: &'static str,
    run: fn(&mut Context<'_>, &Command) -> Outcome,
}

/// What a command does to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing.
    Admin,
    Read,
    Write,
}

/// Which words of a command are keys.
#[derive(Debug, Clone, Copy)]
enum Keys {
    None,
    First,
    Second,
    FirstTwo,
    All,
    AllButLast,
    /// Keys and values in turn.
    EverySecond,
    /// The argument with this index is the number of keys that follow it.
    Counted(usize),
    /// The first half of what follows `STREAMS`.
    Streams,
}

use Keys::{All, AllButLast, Counted, EverySecond, First, FirstTwo, None as NoKey, Second, Streams};
use Kind::{Admin, Read, Write};

/// The tables of all files here, each with the group that `COMMAND DOCS` names.
const TABLES: &[(&str, &[Entry])] = &[
    ("string", blobs::TABLE),
    ("connection", client::TABLE),
    ("cluster", cluster::TABLE),
    ("connection", connection::TABLE),
    ("generic", expiry::TABLE),
    ("scripting", functions::TABLE),
    ("hash", hashes::TABLE),
    ("generic", keys::TABLE),
    ("list", list_pops::TABLE),
    ("list", lists::TABLE),
    ("pubsub", pubsub::TABLE),
    ("server", server::TABLE),
    ("set", sets::TABLE),
    ("sorted-set", sorted_ranges::TABLE),
    ("sorted-set", sorted_sets::TABLE),
    ("stream", stream_claims::TABLE),
    ("stream", stream_groups::TABLE),
    ("stream", stream_info::TABLE),
    ("stream", streams::TABLE),
    ("string", strings::TABLE),
    ("transactions", transactions::TABLE),
];

/// All commands, sorted by name, each with its group.
static COMMANDS: LazyLock<IndexMap<&'static str, (&'static str, &'static Entry), RandomState>> =
    LazyLock::new(|| {
        let rows = TABLES.iter().flat_map(|(group, table)| table.iter().map(move |entry| (*group, entry)));
        let mut commands: IndexMap<_, _, _> =
            rows.map(|(group, entry)| (entry.name, (group, entry))).collect();
        commands.sort_keys();
        commands
    });

/// Commands that a connection may run before it has authenticated.
const BEFORE_AUTH: [&str; 4] = ["auth", "hello", "quit", "reset"];

/// Commands that a subscribed RESP2 connection may run.
const WHILE_LISTENING: [&str; 9] = [
    "ping",
    "psubscribe",
    "punsubscribe",
    "quit",
    "reset",
    "ssubscribe",
    "subscribe",
    "sunsubscribe",
    "unsubscribe",
];

/// Commands that are not queued after `MULTI`.
const NOT_QUEUED: [&str; 4] = ["discard", "exec", "quit", "reset"];

/// Runs `command`, or returns the error why it may not run.
pub(super) fn run(context: &mut Context<'_>, command: &Command) -> Reply {
    if context.client().killed {
        // Its connection ends before any reply.
        return Reply::Null;
    }
    context.state.commands_run += 1;
    context.state.catch_up();
    let reply = match admit(context, command) {
        Ok(Admitted::Run(entry)) => call(context, entry, command),
        Ok(Admitted::Queued) => Reply::simple("QUEUED"),
        Ok(Admitted::Answered(reply)) => reply,
        Err(failure) => {
            // A transaction that misses a command is not run.
            if let Some(transaction) = &mut context.client().transaction {
                transaction.aborted = true;
            }
            failure.into()
        }
    };
    if !command.is("ASKING") && context.client().transaction.is_none() {
        context.client().asking = false;
    }
    context.state.errors += u64::from(matches!(reply, Reply::Error(_)));
    context.state.settle();
    reply
}

enum Admitted {
    Run(&'static Entry),
    Queued,
    /// A test has prepared this reply.
    Answered(Reply),
}

/// Checks everything that can refuse a command before it runs.
fn admit(context: &mut Context<'_>, command: &Command) -> Result<Admitted, Failure> {
    let Some(entry) = Entry::find(command.name()) else {
        let prepared = prepared_for_unknown(context, command);
        return prepared.map(Admitted::Answered).ok_or_else(|| command.unknown().into());
    };
    if !entry.takes(command) {
        return Err(Failure::wrong_arity(entry.name));
    }
    let now = context.state.now;
    let client = context.client();
    client.last_command = entry.name;
    client.last_seen = now;
    client.commands += 1;
    if !client.authenticated && !BEFORE_AUTH.contains(&entry.name) {
        return Err(Failure::NOT_AUTHENTICATED);
    }
    if let Some(member) = context.state.member.clone() {
        let has_keys = !matches!(entry.keys, NoKey) || CHANNELS.contains(&entry.name);
        if let Some(reply) = member.behaviour.called(&entry.full_name(command), has_keys) {
            return Ok(Admitted::Answered(reply));
        }
        redirect::check(context, &member, entry, command)?;
    }
    let client = context.client();
    if client.listens() && client.protocol == Protocol::Resp2 && !WHILE_LISTENING.contains(&entry.name) {
        return Err(Failure::only_listening(&entry.full_name(command)));
    }
    if client.transaction.is_some() && !NOT_QUEUED.contains(&entry.name) {
        let name = entry.full_name(command);
        if NOT_IN_TRANSACTIONS.contains(&name.as_str()) {
            return Err(format!("ERR Command '{name}' not allowed inside a transaction").into());
        }
        if let Some(transaction) = &mut client.transaction {
            transaction.commands.push(command.kept());
        }
        return Ok(Admitted::Queued);
    }
    Ok(Admitted::Run(entry))
}

/// The reply that a test has prepared for a command of a node that the mock does not know, by its name or with its subcommand.
fn prepared_for_unknown(context: &Context<'_>, command: &Command) -> Option<Reply> {
    let member = context.state.member.as_ref()?;
    let name = lowercase(command.name());
    let with_subcommand =
        command.args().first().map(|first| format!("{}|{}", name.as_str(), lowercase(first).as_str()));
    let names = with_subcommand.into_iter().chain([name.as_str().to_owned()]);
    names.into_iter().find_map(|name| member.behaviour.called(&name, false))
}

/// What Valkey refuses between `MULTI` and `EXEC`.
const NOT_IN_TRANSACTIONS: [&str; 3] = ["client|reply", "multi", "watch"];

/// Commands whose arguments name shard channels, which have slots as keys have.
const CHANNELS: [&str; 3] = ["spublish", "ssubscribe", "sunsubscribe"];

/// Runs a command that was admitted, and remembers what it read for client-side caching.
fn call(context: &mut Context<'_>, entry: &'static Entry, command: &Command) -> Reply {
    let reply = (entry.run)(context, command).unwrap_or_else(Reply::from);
    if entry.kind == Read && context.client().tracking {
        context.state.tracking.remember(context.client, entry.keys.of(command).into_iter());
    }
    reply
}

impl Entry {
    fn find(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.get(lowercase(name).as_str()).map(|(_, entry)| *entry)
    }

    /// Whether the number of words is right.
    fn takes(&self, command: &Command) -> bool {
        let words = 1 + command.args().len() as i64;
        words >= self.arity.abs() && (self.arity < 0 || words == self.arity)
    }

    /// The name in error texts: `client|list` for a command of subcommands.
    fn full_name(&self, command: &Command) -> String {
        match command.args().first() {
            Some(subcommand) if self.has_subcommands => {
                format!("{}|{}", self.name, lowercase(subcommand).as_str())
            }
            _ => self.name.to_owned(),
        }
    }
}

const fn row(
    name: &'static str,
    arity: i64,
    kind: Kind,
    keys: Keys,
    summary: &'static str,
    run: fn(&mut Context<'_>, &Command) -> Outcome,
) -> Entry {
    Entry { name, arity, kind, keys, has_subcommands: false, summary, run }
}

/// A row of a command whose first argument is a subcommand, such as `CLIENT`.
const fn container(
    name: &'static str,
    arity: i64,
    kind: Kind,
    keys: Keys,
    summary: &'static str,
    run: fn(&mut Context<'_>, &Command) -> Outcome,
) -> Entry {
    Entry { has_subcommands: true, ..row(name, arity, kind, keys, summary, run) }
}

impl Keys {
    /// The keys of a command whose arguments were counted.
    fn of(self, command: &Command) -> Vec<&Bytes> {
        let args = command.args();
        let counted = |at: usize| {
            let count = args.get(at).and_then(|count| integer::parse(count));
            let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            args.iter().skip(at + 1).take(count)
        };
        match self {
            Self::None => vec![],
            Self::First => args.iter().take(1).collect(),
            Self::Second => args.iter().skip(1).take(1).collect(),
            Self::FirstTwo => args.iter().take(2).collect(),
            Self::All => args.iter().collect(),
            Self::AllButLast => args[..args.len() - 1].iter().collect(),
            Self::EverySecond => args.iter().step_by(2).collect(),
            Self::Counted(at) => counted(at).collect(),
            Self::Streams => {
                // A group or a consumer may have the name `streams`.
                let named = args.first().is_some_and(|arg| arg.eq_ignore_ascii_case(b"group"));
                let options = args.get(if named { 3 } else { 0 }..).unwrap_or_default();
                let start = options.iter().position(|arg| arg.eq_ignore_ascii_case(b"streams"));
                let rest = start.map_or(&[][..], |start| &options[start + 1..]);
                rest[..rest.len() / 2].iter().collect()
            }
        }
    }

    /// First, last and step of `COMMAND INFO`, which cannot express all.
    fn span(self) -> (i64, i64, i64) {
        match self {
            Self::None | Self::Counted(_) | Self::Streams => (0, 0, 0),
            Self::First => (1, 1, 1),
            Self::Second => (2, 2, 1),
            Self::FirstTwo => (1, 2, 1),
            Self::All => (1, -1, 1),
            Self::AllButLast => (1, -2, 1),
            Self::EverySecond => (1, -1, 2),
        }
    }
}

/// A count as a reply.
fn count(count: usize) -> Reply {
    Reply::Integer(i64::try_from(count).unwrap_or(i64::MAX))
}

/// A string that may not be there.
fn value_or_null(value: Option<Bytes>) -> Reply {
    value.map_or(Reply::Null, Reply::Bulk)
}

/// A list of strings.
fn bulks<'a>(items: impl IntoIterator<Item = &'a Bytes>) -> Reply {
    Reply::Array(items.into_iter().cloned().map(Reply::Bulk).collect())
}

/// An argument that the table promises to be there, in a form that may be stored.
fn kept(command: &Command, index: usize) -> Bytes {
    command.keep(index).expect("the table checks the number of arguments")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_by_its_name_in_any_case_and_has_one_row() {
        let mut names: Vec<_> =
            TABLES.iter().flat_map(|(_, table)| table.iter().map(|entry| entry.name)).collect();
        names.sort_unstable();
        let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
        assert!(twice.is_empty(), "these commands have two rows: {twice:?}");
        for name in COMMANDS.keys() {
            assert_eq!(Entry::find(name.to_uppercase().as_bytes()).unwrap().name, *name);
        }
    }
}
