//! The commands the mock knows, and how one is found and run.
//!
//! To add a command: write its function in the file of its group (`fn(&mut Context, &Command) -> Outcome`, arguments
//! already counted), and give it a row in [`TABLE`], which is in alphabetical order.

mod connection;
mod introspection;
mod keys;
mod server;
mod strings;

use super::Context;
use super::args::lowercase;
use super::failure::Failure;
use crate::command::Command;
use crate::reply::Reply;

/// What a command's function returns.
type Outcome = Result<Reply, Failure>;

/// A row of the table: what `COMMAND` tells clients about a command, and the function behind it.
struct Entry {
    /// In lower case.
    name: &'static str,
    /// Number of words, the name included; negative: at least so many. Checked before `run` is called.
    arity: i64,
    group: Group,
    keys: Keys,
    summary: &'static str,
    run: fn(&mut Context<'_>, &Command) -> Outcome,
}

#[derive(Clone, Copy)]
enum Group {
    Connection,
    Generic,
    Server,
    String,
}

/// Which words of a command are keys.
#[derive(Clone, Copy)]
enum Keys {
    None,
    First,
    All,
    /// Keys and values in turn.
    EverySecond,
}

use Group::{Connection, Generic, Server, String};
use Keys::{All, EverySecond, First, None as NoKey};

#[rustfmt::skip] // One row, one line.
static TABLE: &[Entry] = &[
    row("auth", -2, Connection, NoKey, "Authenticates the connection.", connection::auth),
    row("client", -2, Connection, NoKey, "Shows and changes the connection: ID, INFO, SETNAME, SETINFO and others.", connection::client),
    row("command", -1, Server, NoKey, "Describes the commands.", introspection::command),
    row("config", -2, Server, NoKey, "Shows and changes settings.", server::config),
    row("dbsize", 1, Server, NoKey, "Returns the number of keys.", keys::dbsize),
    row("debug", -2, Server, NoKey, "SLEEP stalls the whole server.", server::debug),
    row("decr", 2, String, First, "Decrements an integer by one.", strings::decr),
    row("del", -2, Generic, All, "Deletes keys.", keys::del),
    row("echo", 2, Connection, NoKey, "Returns the given string.", connection::echo),
    row("exists", -2, Generic, All, "Counts which of the keys exist.", keys::exists),
    row("expire", -3, Generic, First, "Sets the expiry of a key in seconds.", keys::expire),
    row("flushall", -1, Server, NoKey, "Removes all keys of all databases.", keys::flushall),
    row("flushdb", -1, Server, NoKey, "Removes all keys of the selected database.", keys::flushdb),
    row("get", 2, String, First, "Returns a string.", strings::get),
    row("hello", -1, Connection, NoKey, "Greets the server and chooses the protocol.", connection::hello),
    row("incr", 2, String, First, "Increments an integer by one.", strings::incr),
    row("incrby", 3, String, First, "Increments an integer.", strings::incrby),
    row("info", -1, Server, NoKey, "Returns information about the server.", introspection::info),
    row("mget", -2, String, All, "Returns several strings.", strings::mget),
    row("mset", -3, String, EverySecond, "Sets several strings.", strings::mset),
    row("pexpire", -3, Generic, First, "Sets the expiry of a key in milliseconds.", keys::pexpire),
    row("ping", -1, Connection, NoKey, "Answers PONG, or the given string.", connection::ping),
    row("pttl", 2, Generic, First, "Returns the time left to a key in milliseconds.", keys::pttl),
    row("quit", -1, Connection, NoKey, "Closes the connection.", connection::quit),
    row("reset", 1, Connection, NoKey, "Resets the connection.", connection::reset),
    row("select", 2, Connection, NoKey, "Selects a database.", connection::select),
    row("set", -3, String, First, "Sets a string.", strings::set),
    row("ttl", 2, Generic, First, "Returns the time left to a key in seconds.", keys::ttl),
];

/// What a connection may do before it has given the password.
const BEFORE_AUTH: [&str; 4] = ["auth", "hello", "quit", "reset"];

/// Runs `command` or says why not.
pub(super) fn run(context: &mut Context<'_>, command: &Command) -> Reply {
    dispatch(context, command).unwrap_or_else(Reply::from)
}

fn dispatch(context: &mut Context<'_>, command: &Command) -> Outcome {
    let Some(entry) = Entry::find(command.name()) else {
        return Err(Failure::unknown_command(command.name(), command.args()));
    };
    let words = 1 + command.args().len() as i64;
    if words < entry.arity.abs() || (entry.arity > 0 && words != entry.arity) {
        return Err(Failure::wrong_arity(entry.name));
    }
    if !context.session.authenticated && !BEFORE_AUTH.contains(&entry.name) {
        return Err(Failure::NOT_AUTHENTICATED);
    }
    (entry.run)(context, command)
}

impl Entry {
    fn find(name: &[u8]) -> Option<&'static Self> {
        let name = lowercase(name);
        let at = TABLE.binary_search_by_key(&name.as_str(), |entry| entry.name).ok()?;
        Some(&TABLE[at])
    }
}

const fn row(
    name: &'static str,
    arity: i64,
    group: Group,
    keys: Keys,
    summary: &'static str,
    run: fn(&mut Context<'_>, &Command) -> Outcome,
) -> Entry {
    Entry { name, arity, group, keys, summary, run }
}

#[cfg(test)]
mod tests {
    use super::TABLE;

    #[test]
    fn the_table_is_in_alphabetical_order() {
        assert!(TABLE.is_sorted_by_key(|entry| entry.name));
    }
}
