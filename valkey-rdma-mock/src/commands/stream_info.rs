//! `XINFO STREAM`: the length, ids and edges of a stream.

use bytes::Bytes;

use super::streams::{entry_reply, id_reply, stream};
use super::{Context, Entry, Failure, Outcome, Read, Second, container, count};
use crate::args::lowercase;
use crate::store::{Stream, StreamId};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    container("xinfo", -2, Read, Second, "STREAM, without FULL.", xinfo),
];

/// `XINFO STREAM key`
fn xinfo(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (subcommand, args) = (&command.args()[0], &command.args()[1..]);
    match (lowercase(subcommand).as_str(), args) {
        ("stream", [key]) => {
            let found = stream(context.database(), key)?.ok_or(Failure::NO_SUCH_KEY)?;
            Ok(describe(found))
        }
        ("stream", []) => Err(Failure::wrong_arity("xinfo|stream")),
        // The mock also refuses `FULL`, which Valkey knows: an error shows the gap, a shorter reply would hide it.
        ("stream", _) => Err(Failure::wrong_subcommand_args("XINFO", subcommand)),
        _ => Err(Failure::unknown_subcommand("XINFO", subcommand)),
    }
}

/// The map of 10 fields that Valkey 9.1 returns.
fn describe(stream: &Stream) -> Reply {
    let mut entries = stream.range(StreamId::MIN, StreamId::MAX);
    let first = entries.next();
    let last = entries.next_back().or(first);
    let entry = |entry: Option<(StreamId, &Vec<Bytes>)>| {
        entry.map_or(Reply::Null, |(id, fields)| entry_reply(id, fields))
    };
    let field = |name: &'static str, value| (Reply::bulk(name), value);
    // Valkey's figures for a stream that fits into one node: 100 entries, 4096 bytes. The mock has no radix tree.
    let (tree_keys, tree_nodes) = if stream.len() == 0 { (0, 1) } else { (1, 2) };
    Reply::Map(vec![
        field("length", count(stream.len())),
        field("radix-tree-keys", count(tree_keys)),
        field("radix-tree-nodes", count(tree_nodes)),
        field("last-generated-id", id_reply(stream.last_id)),
        field("max-deleted-entry-id", id_reply(stream.max_deleted)),
        field("entries-added", Reply::Integer(i64::try_from(stream.entries_added).unwrap_or(i64::MAX))),
        field("recorded-first-entry-id", id_reply(first.map_or(StreamId::MIN, |(id, _)| id))),
        field("groups", count(stream.groups.len())),
        field("first-entry", entry(first)),
        field("last-entry", entry(last)),
    ])
}
