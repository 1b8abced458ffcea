//! What streams, groups and consumers tell about themselves.

use bytes::Bytes;

use super::stream_groups::{no_group, waiting_for};
use super::streams::{entry_reply, id_reply, stream};
use super::{Context, Failure, Outcome, count};
use crate::args::lowercase;
use crate::store::{Consumer, Group, Stream, StreamId};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

/// `XINFO STREAM key`, `XINFO GROUPS key`, `XINFO CONSUMERS key group`
pub(super) fn xinfo(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    let database = context.database();
    let now = database.now();
    match (subcommand.as_str(), &command.args()[1..]) {
        ("stream", [key]) => Ok(describe(stream(database, key)?.ok_or(Failure::NO_SUCH_KEY)?)),
        ("stream", [_, ..]) => Err(Failure::new("ERR this mock does not know XINFO STREAM ... FULL")),
        ("groups", [key]) => {
            let stream = stream(database, key)?.ok_or(Failure::NO_SUCH_KEY)?;
            Ok(Reply::Array(
                stream.groups.iter().map(|(name, group)| describe_group(stream, name, group)).collect(),
            ))
        }
        ("consumers", [key, name]) => {
            let stream = stream(database, key)?.ok_or(Failure::NO_SUCH_KEY)?;
            let group = stream.groups.get(name).ok_or_else(|| no_group(key, name))?;
            let describe = |(name, consumer): (&Bytes, &Consumer)| {
                Reply::Map(vec![
                    (Reply::bulk("name"), Reply::Bulk(name.clone())),
                    (Reply::bulk("pending"), count(waiting_for(group, name))),
                    (Reply::bulk("idle"), Reply::Integer(now - consumer.seen)),
                    (
                        Reply::bulk("inactive"),
                        Reply::Integer(consumer.active.map_or(-1, |active| now - active)),
                    ),
                ])
            };
            Ok(Reply::Array(group.consumers.iter().map(describe).collect()))
        }
        (known @ ("stream" | "groups" | "consumers"), _) => {
            Err(Failure::wrong_arity(&format!("xinfo|{known}")))
        }
        _ => Err(Failure::unknown_subcommand("XINFO", &command.args()[0])),
    }
}

fn describe(stream: &Stream) -> Reply {
    let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let entry = |entry: Option<(StreamId, &Vec<Bytes>)>| {
        entry.map_or(Reply::Null, |(id, fields)| entry_reply(id, fields))
    };
    let mut all = stream.range(StreamId::MIN, StreamId::MAX);
    let first = all.next();
    let last = all.next_back().or(first);
    // Valkey keeps a hundred entries in a node.
    let nodes = stream.len().div_ceil(100);
    Reply::Map(vec![
        (Reply::bulk("length"), count(stream.len())),
        (Reply::bulk("radix-tree-keys"), count(nodes)),
        (Reply::bulk("radix-tree-nodes"), count(nodes + 1)),
        (Reply::bulk("last-generated-id"), id_reply(stream.last_id)),
        (Reply::bulk("max-deleted-entry-id"), id_reply(stream.max_deleted)),
        (Reply::bulk("entries-added"), number(stream.entries_added)),
        (Reply::bulk("recorded-first-entry-id"), id_reply(stream.first_id().unwrap_or(StreamId::MIN))),
        (Reply::bulk("groups"), count(stream.groups.len())),
        (Reply::bulk("first-entry"), entry(first)),
        (Reply::bulk("last-entry"), entry(last)),
    ])
}

fn describe_group(stream: &Stream, name: &Bytes, group: &Group) -> Reply {
    let number = |number: u64| Reply::Integer(i64::try_from(number).unwrap_or(i64::MAX));
    let read = group.entries_read;
    // What is left can only be told while nothing between was deleted.
    let lag = match read {
        _ if stream.entries_added == 0 => Some(0),
        Some(read) if stream.max_deleted <= group.last_delivered => stream.entries_added.checked_sub(read),
        _ => None,
    };
    Reply::Map(vec![
        (Reply::bulk("name"), Reply::Bulk(name.clone())),
        (Reply::bulk("consumers"), count(group.consumers.len())),
        (Reply::bulk("pending"), count(group.pending.len())),
        (Reply::bulk("last-delivered-id"), id_reply(group.last_delivered)),
        (Reply::bulk("entries-read"), read.map_or(Reply::Null, number)),
        (Reply::bulk("lag"), lag.map_or(Reply::Null, number)),
    ])
}
