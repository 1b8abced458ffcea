//! Keys, whatever they hold.

use bytes::Bytes;

use super::{
    Admin, All, Context, Entry, Failure, First, FirstTwo, NoKey, Outcome, Read, Write, bulks, count, row,
};
use crate::args::{Options, integer, lowercase};
use crate::glob;
use crate::store::DATABASES;
use crate::store::{Expiry, Value, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("dbsize", 1, Admin, NoKey, "Returns the number of keys.", dbsize),
    row("del", -2, Write, All, "Deletes keys.", del),
    row("exists", -2, Read, All, "Counts which of the keys exist.", exists),
    row("flushall", -1, Write, NoKey, "Removes all keys of all databases.", flushall),
    row("flushdb", -1, Write, NoKey, "Removes all keys of the selected database.", flushdb),
    row("keys", 2, Admin, NoKey, "Returns the keys that match a pattern.", keys),
    row("randomkey", 1, Admin, NoKey, "Returns any key.", randomkey),
    row("rename", 3, Write, FirstTwo, "Renames a key.", rename),
    row("scan", -2, Admin, NoKey, "Returns keys in portions.", scan),
    row("touch", -2, Read, All, "Counts which of the keys exist.", exists),
    row("type", 2, Read, First, "Returns the type of a value.", type_of),
    row("unlink", -2, Write, All, "Deletes keys.", del),
];

fn del(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    Ok(count(command.args().iter().filter(|key| database.remove(key)).count()))
}

/// A key named twice counts twice.
fn exists(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    Ok(count(command.args().iter().filter(|key| database.contains(key)).count()))
}

fn type_of(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(Reply::simple(context.database().value(&command.args()[0]).map_or("none", Value::type_name)))
}

fn dbsize(context: &mut Context<'_>, _command: &Command) -> Outcome {
    Ok(count(context.database().len()))
}

fn flushdb(context: &mut Context<'_>, command: &Command) -> Outcome {
    check_flush_mode(command)?;
    context.database().clear();
    context.state.tracking.flush(&context.state.clients);
    Ok(Reply::OK)
}

fn flushall(context: &mut Context<'_>, command: &Command) -> Outcome {
    check_flush_mode(command)?;
    for database in &mut context.state.databases {
        database.clear();
    }
    context.state.tracking.flush(&context.state.clients);
    Ok(Reply::OK)
}

fn check_flush_mode(command: &Command) -> Result<(), Failure> {
    match command.args() {
        [] => Ok(()),
        [mode] if matches!(lowercase(mode).as_str(), "async" | "sync") => Ok(()),
        _ => Err(Failure::SYNTAX),
    }
}

fn keys(context: &mut Context<'_>, command: &Command) -> Outcome {
    let pattern = &command.args()[0];
    Ok(bulks(context.database().iter().map(|(key, _)| key).filter(|key| glob::matches_exactly(pattern, key))))
}

fn randomkey(context: &mut Context<'_>, _command: &Command) -> Outcome {
    let mut random = context.state.random.fork();
    let database = context.database();
    if database.len() == 0 {
        return Ok(Reply::Null);
    }
    let any = random.usize(..database.len());
    Ok(database.at(any).map_or(Reply::Null, |(key, _)| Reply::Bulk(key.clone())))
}

fn rename(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (from, to) = (&command.args()[0], &command.args()[1]);
    let database = context.database();
    let (value, deadline) = database.take(from).ok_or(Failure::NO_SUCH_KEY)?;
    database.set(to, value, deadline.map_or(Expiry::Never, Expiry::At));
    Ok(Reply::OK)
}

/// A database by its number.
pub(super) fn database_index(text: &[u8]) -> Result<usize, Failure> {
    let Ok(index) = i32::try_from(integer(text)?) else {
        return Err(Failure::new("ERR value is out of range, value must between -2147483648 and 2147483647"));
    };
    let index = usize::try_from(index).ok().filter(|index| *index < DATABASES);
    index.ok_or(Failure::new("ERR DB index is out of range"))
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
fn scan(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (cursor, options) = ScanOptions::parse(command.args(), Scanned::Keys)?;
    let database = context.database();
    let (next, places) = options.portion(cursor, database.len(), 0);
    let found = places.into_iter().filter_map(|index| database.at(index)).filter(|(key, value)| {
        options.matches(key) && options.kind.as_ref().is_none_or(|kind| kind == value.type_name())
    });
    Ok(portion(next, found.map(|(key, _)| Reply::Bulk(key.clone())).collect()))
}

/// What a command of the `SCAN` family iterates over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scanned {
    Keys,
    /// The fields of a hash.
    Fields,
    /// The members of a set or a sorted set.
    Members,
}

/// What the commands of the `SCAN` family take beside a cursor.
///
/// They iterate from the last index to the first, because removing an item moves the last item into its place: an item that
/// was not returned yet never moves behind the cursor. The cursor is the number of indexes left.
pub(super) struct ScanOptions {
    pattern: Option<Bytes>,
    count: usize,
    kind: Option<String>,
    pub(super) no_values: bool,
}

impl ScanOptions {
    /// Reads the cursor and what follows it.
    pub(super) fn parse(args: &[Bytes], of: Scanned) -> Result<(usize, Self), Failure> {
        let mut options = Options::new(args);
        let cursor = str::from_utf8(options.value()?).ok().and_then(|cursor| cursor.parse::<u64>().ok());
        let cursor = cursor.ok_or(Failure::new("ERR invalid cursor"))?;
        let mut parsed = Self { pattern: None, count: 10, kind: None, no_values: false };
        while let Some(option) = options.next() {
            match lowercase(option).as_str() {
                "match" => parsed.pattern = Some(keep(options.value()?)),
                "count" => {
                    let count = integer(options.value()?)?;
                    parsed.count =
                        usize::try_from(count).ok().filter(|count| *count > 0).ok_or(Failure::SYNTAX)?;
                }
                "type" if of == Scanned::Keys => {
                    let kind = lowercase(options.value()?).as_str().to_owned();
                    if !["string", "list", "set", "zset", "hash", "stream"].contains(&kind.as_str()) {
                        return Err(format!("ERR unknown type name '{kind}'").into());
                    }
                    parsed.kind = Some(kind);
                }
                "novalues" if of == Scanned::Fields => parsed.no_values = true,
                "novalues" => return Err(Failure::new("ERR NOVALUES option can only be used in HSCAN")),
                _ => return Err(Failure::SYNTAX),
            }
        }
        Ok((usize::try_from(cursor).unwrap_or(usize::MAX), parsed))
    }

    /// The places to look at now, and the cursor for the next time. A collection of up to `small` items is shown at
    /// once and in its order, as Valkey does with those it keeps in one piece.
    pub(super) fn portion(&self, cursor: usize, len: usize, small: usize) -> (usize, Vec<usize>) {
        if len <= small {
            return (0, (0..len).collect());
        }
        let end = if cursor == 0 { len } else { cursor.min(len) };
        let start = end.saturating_sub(self.count);
        (start, (start..end).rev().collect())
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches_exactly(pattern, name))
    }
}

/// The reply of the `SCAN` family.
pub(super) fn portion(next: usize, items: Vec<Reply>) -> Reply {
    Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(items)])
}
