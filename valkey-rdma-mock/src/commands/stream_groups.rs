//! Consumer groups of streams.

use bytes::Bytes;

use super::blocking::block;
use super::streams::{INVALID_ID, ReadPlan, by_stream, entry_reply, id_reply, stream};
use super::{Context, Entry, Failure, First, Outcome, Second, Streams, Write, container, count, row};
use crate::args::{Options, integer, lowercase};
use crate::store::{Database, Group, Pending, Stream, StreamId, keep};
use crate::waiters::Awaited;
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("xack", -4, Write, First, "Acknowledges entries.", xack),
    container("xgroup", -2, Write, Second, "CREATE, DESTROY, SETID, CREATECONSUMER and DELCONSUMER.", xgroup),
    row("xreadgroup", -7, Write, Streams, "Returns entries that no other consumer got, or waits for some.", xreadgroup),
];

pub(super) fn no_group(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into()
}

fn key_must_exist() -> Failure {
    Failure::new(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
         option to create an empty stream automatically.",
    )
}

/// Changes an existing group. `None`: no such key or group.
pub(super) fn edit<R>(
    database: &mut Database,
    key: &[u8],
    group: &[u8],
    change: impl FnOnce(&mut Stream, &mut Group) -> R,
) -> Result<Option<R>, Failure> {
    let done = database.edit(key, |stream: &mut Stream| {
        // Taken out, so that `change` can read the stream.
        let (name, mut content) = stream.groups.remove_entry(group)?;
        let result = change(stream, &mut content);
        stream.groups.insert(name, content);
        stream.touch();
        Some(result)
    })?;
    Ok(done.flatten())
}

/// `XGROUP CREATE | SETID | DESTROY | CREATECONSUMER | DELCONSUMER key group ...`
pub(super) fn xgroup(context: &mut Context<'_>, command: &Command) -> Outcome {
    let subcommand = lowercase(&command.args()[0]);
    match (subcommand.as_str(), &command.args()[1..]) {
        ("create", [key, group, id, options @ ..]) => create(context, key, group, id, options),
        ("setid", [key, group, id, options @ ..]) => set_id(context, key, group, id, options),
        ("destroy", [key, group]) => {
            let done = context.database().edit(key, |stream: &mut Stream| {
                let removed = stream.groups.remove(group).is_some();
                if removed {
                    stream.touch();
                }
                removed
            })?;
            Ok(count(usize::from(done.ok_or_else(key_must_exist)?)))
        }
        ("createconsumer", [key, group, consumer]) => {
            let database = context.database();
            stream(database, key)?.ok_or_else(key_must_exist)?;
            let now = database.now();
            let added = edit(database, key, group, |_, group| consume(group, consumer, now))?;
            Ok(count(usize::from(added.ok_or_else(|| no_group(key, group))?)))
        }
        ("delconsumer", [key, group, consumer]) => {
            let database = context.database();
            stream(database, key)?.ok_or_else(key_must_exist)?;
            let dropped = edit(database, key, group, |_, group| {
                let before = group.pending.len();
                group.pending.retain(|_, pending| pending.consumer != *consumer);
                group.consumers.remove(consumer);
                before - group.pending.len()
            })?;
            Ok(count(dropped.ok_or_else(|| no_group(key, group))?))
        }
        (known @ ("create" | "setid" | "destroy" | "createconsumer" | "delconsumer"), _) => {
            Err(Failure::wrong_arity(&format!("xgroup|{known}")))
        }
        _ => Err(Failure::unknown_subcommand("XGROUP", &command.args()[0])),
    }
}

/// Makes sure there is a consumer of this name. `true`: it is new.
pub(super) fn consume(group: &mut Group, consumer: &Bytes, now: i64) -> bool {
    let new = !group.consumers.contains_key(consumer);
    let entry = group.consumers.entry(keep(consumer)).or_default();
    entry.seen = now;
    new
}

fn create(context: &mut Context<'_>, key: &Bytes, group: &Bytes, id: &Bytes, options: &[Bytes]) -> Outcome {
    let (make, entries_read) = group_options(options, true)?;
    let database = context.database();
    let found = stream(database, key)?;
    if found.is_none() && !make {
        return Err(key_must_exist());
    }
    let last_delivered = match &id[..] {
        b"$" => found.map_or(StreamId::MIN, |stream| stream.last_id),
        id => StreamId::parse(id, 0).ok_or(INVALID_ID)?,
    };
    if found.is_some_and(|stream| stream.groups.contains_key(group)) {
        return Err(Failure::new("BUSYGROUP Consumer Group name already exists"));
    }
    database.edit_or_create(key, |stream: &mut Stream| {
        stream.groups.insert(keep(group), Group { last_delivered, entries_read, ..Group::default() });
        stream.touch();
    })?;
    Ok(Reply::OK)
}

fn set_id(context: &mut Context<'_>, key: &Bytes, group: &Bytes, id: &Bytes, options: &[Bytes]) -> Outcome {
    let (_, entries_read) = group_options(options, false)?;
    let database = context.database();
    let last = stream(database, key)?.ok_or_else(key_must_exist)?.last_id;
    let id = match &id[..] {
        b"$" => last,
        id => StreamId::parse(id, 0).ok_or(INVALID_ID)?,
    };
    let done = edit(database, key, group, |_, group| {
        group.last_delivered = id;
        group.entries_read = entries_read;
    })?;
    done.ok_or_else(|| no_group(key, group))?;
    Ok(Reply::OK)
}

/// `[MKSTREAM] [ENTRIESREAD count]`
fn group_options(options: &[Bytes], of_create: bool) -> Result<(bool, Option<u64>), Failure> {
    let (mut make, mut entries_read) = (false, None);
    let mut options = Options::new(options);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "mkstream" if of_create => make = true,
            "entriesread" => {
                let number = integer(options.value()?)?;
                if number < -1 {
                    return Err(Failure::new("ERR value for ENTRIESREAD must be positive or -1"));
                }
                entries_read = u64::try_from(number).ok();
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    Ok((make, entries_read))
}

/// `XREADGROUP GROUP group consumer [COUNT count] [BLOCK ms] [NOACK] STREAMS key [key ...] id [id ...]`
pub(super) fn xreadgroup(context: &mut Context<'_>, command: &Command) -> Outcome {
    let plan = ReadPlan::parse(command, true)?;
    plan.check_balance("xreadgroup")?;
    let Some((group, _)) = plan.group else {
        return Err(Failure::new("ERR Missing GROUP option for XREADGROUP"));
    };
    for (key, id) in plan.keys.iter().zip(plan.ids) {
        check_group(context.database(), key, group)?;
        match &id[..] {
            b">" => {}
            b"$" => {
                return Err(Failure::new(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of this \
                     consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would just \
                     return an empty result set.",
                ));
            }
            id => drop(StreamId::parse(id, 0).ok_or(INVALID_ID)?),
        }
    }
    let resp3 = context.client().protocol == Protocol::Resp3;
    let again = plan.command(resp3);
    match plan.block {
        None => Ok(try_read(context.database(), &again)?.unwrap_or(Reply::NullArray)),
        Some(timeout) => {
            block(context, &again, plan.keys, timeout, Reply::NullArray, Awaited::Changed, try_read)
        }
    }
}

fn check_group(database: &Database, key: &[u8], group: &[u8]) -> Result<(), Failure> {
    if stream(database, key)?.is_some_and(|stream| stream.groups.contains_key(group)) {
        return Ok(());
    }
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    let text =
        format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option");
    Err(text.into())
}

fn try_read(database: &mut Database, command: &Command) -> Result<Option<Reply>, Failure> {
    let plan = ReadPlan::parse(command, true)?;
    let Some((name, consumer)) = plan.group else { return Err(Failure::SYNTAX) };
    // Nothing is delivered if one of the keys has lost its group since.
    for key in plan.keys {
        check_group(database, key, name)?;
    }
    let now = database.now();
    let mut found = Vec::new();
    for (key, id) in plan.keys.iter().zip(plan.ids) {
        let history = StreamId::parse(id, 0);
        let nothing_new = history.is_none()
            && stream(database, key)?
                .and_then(|stream| Some((stream, stream.groups.get(name)?)))
                .is_some_and(|(stream, group)| {
                    group.last_delivered >= stream.last_id && group.consumers.contains_key(consumer)
                });
        if nothing_new {
            continue;
        }
        let entries = edit(database, key, name, |stream, group| {
            consume(group, consumer, now);
            match history {
                Some(after) => history_of(stream, group, consumer, after, plan.limit, now),
                None => deliver(stream, group, consumer, plan.limit, plan.no_ack, now),
            }
        })?;
        let entries = entries.ok_or_else(|| no_group(key, name))?;
        if history.is_some() || !entries.is_empty() {
            found.push((Reply::Bulk(key.clone()), Reply::Array(entries)));
        }
    }
    Ok((!found.is_empty()).then(|| by_stream(found, command.is("xread3"))))
}

/// Entries that the consumer has received and not acknowledged. Reading them counts as another delivery. Entries deleted since have
/// no fields.
fn history_of(
    stream: &Stream,
    group: &mut Group,
    consumer: &Bytes,
    after: StreamId,
    limit: usize,
    now: i64,
) -> Vec<Reply> {
    let Some(start) = after.next() else { return Vec::new() };
    let mine = group.pending.range_mut(start..).filter(|(_, pending)| pending.consumer == *consumer);
    mine.take(limit)
        .map(|(id, pending)| match stream.get(*id) {
            Some(fields) => {
                pending.delivered = now;
                pending.times += 1;
                entry_reply(*id, fields)
            }
            None => Reply::Array(vec![id_reply(*id), Reply::NullArray]),
        })
        .collect()
}

/// Delivers entries that no consumer of the group has received yet.
fn deliver(
    stream: &Stream,
    group: &mut Group,
    consumer: &Bytes,
    limit: usize,
    no_ack: bool,
    now: i64,
) -> Vec<Reply> {
    let Some(start) = group.last_delivered.next() else { return Vec::new() };
    let mut entries = Vec::new();
    for (id, fields) in stream.range(start, StreamId::MAX).take(limit) {
        group.last_delivered = id;
        group.entries_read = group.entries_read.map(|number| number + 1).or_else(|| {
            // Known again once the last entry is reached.
            (id == stream.last_id).then_some(stream.entries_added)
        });
        if !no_ack {
            group.pending.insert(id, Pending { consumer: keep(consumer), delivered: now, times: 1 });
        }
        entries.push(entry_reply(id, fields));
    }
    if !entries.is_empty()
        && let Some(consumer) = group.consumers.get_mut(consumer)
    {
        consumer.active = Some(now);
    }
    entries
}

/// `XACK key group id [id ...]`
pub(super) fn xack(context: &mut Context<'_>, command: &Command) -> Outcome {
    let ids = command.args()[2..].iter().map(|id| StreamId::parse(id, 0).ok_or(INVALID_ID));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let acknowledged = edit(context.database(), &command.args()[0], &command.args()[1], |_, group| {
        ids.iter().filter(|id| group.pending.remove(id).is_some()).count()
    })?;
    Ok(count(acknowledged.unwrap_or(0)))
}
