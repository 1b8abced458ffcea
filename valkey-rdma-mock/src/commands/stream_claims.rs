//! Entries that consumers of a group have not acknowledged, and their move to another consumer.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::stream_groups::{consume, edit};
use super::streams::{INVALID_ID, entry_reply, id_reply, range_end, range_start, stream};
use super::{Context, Entry, Failure, First, Outcome, Read, Write, count, row};
use crate::args::{Options, integer, lowercase};
use crate::store::{Database, Group, Pending, StreamId, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("xautoclaim", -6, Write, First, "Takes over entries that wait too long for XACK.", xautoclaim),
    row("xclaim", -6, Write, First, "Takes over entries by their ids.", xclaim),
    row("xpending", -3, Read, First, "Returns entries that wait for XACK.", xpending),
];

fn no_group(key: &[u8], group: &[u8]) -> Failure {
    let (key, group) = (String::from_utf8_lossy(key), String::from_utf8_lossy(group));
    format!("NOGROUP No such key '{key}' or consumer group '{group}'").into()
}

fn group<'a>(database: &'a Database, key: &[u8], name: &[u8]) -> Result<&'a Group, Failure> {
    let found = stream(database, key)?.and_then(|stream| stream.groups.get(name));
    found.ok_or_else(|| no_group(key, name))
}

impl Pending {
    /// Milliseconds since it was delivered.
    fn idle(&self, now: i64) -> i64 {
        now.saturating_sub(self.delivered)
    }
}

/// `XPENDING key group [[IDLE milliseconds] start end count [consumer]]`
fn xpending(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (key, name, options) = (&command.args()[0], &command.args()[1], &command.args()[2..]);
    if options.is_empty() {
        return Ok(summary(group(context.database(), key, name)?));
    }
    if !(3..=6).contains(&options.len()) {
        return Err(Failure::SYNTAX);
    }
    let mut options = Options::new(options);
    let min_idle = if options.take_word("idle") { integer(options.value()?)? } else { 0 };
    let [start, end, limit, consumer @ ..] = options.rest() else { return Err(Failure::SYNTAX) };
    let limit = usize::try_from(integer(limit)?).unwrap_or(0);
    let (start, end) = (range_start(start)?, range_end(end)?);
    let database = context.database();
    let (group, now) = (group(database, key, name)?, database.now());
    if start > end {
        return Ok(Reply::Array(vec![]));
    }
    let wanted = group.pending.range(start..=end).filter(|(_, pending)| {
        consumer.first().is_none_or(|consumer| pending.consumer == *consumer) && pending.idle(now) >= min_idle
    });
    let show = |(id, pending): (&StreamId, &Pending)| {
        Reply::Array(vec![
            id_reply(*id),
            Reply::Bulk(pending.consumer.clone()),
            Reply::Integer(pending.idle(now).max(0)),
            Reply::Integer(i64::try_from(pending.times).unwrap_or(i64::MAX)),
        ])
    };
    Ok(Reply::Array(wanted.take(limit).map(show).collect()))
}

/// How many there are, the first and the last, and how many each consumer has.
fn summary(group: &Group) -> Reply {
    let (Some((first, _)), Some((last, _))) =
        (group.pending.first_key_value(), group.pending.last_key_value())
    else {
        return Reply::Array(vec![count(0), Reply::Null, Reply::Null, Reply::NullArray]);
    };
    let mut consumers: BTreeMap<&Bytes, usize> = BTreeMap::new();
    for pending in group.pending.values() {
        *consumers.entry(&pending.consumer).or_default() += 1;
    }
    let consumers = consumers.into_iter().map(|(consumer, number)| {
        Reply::Array(vec![Reply::Bulk(consumer.clone()), Reply::bulk(number.to_string())])
    });
    Reply::Array(vec![
        count(group.pending.len()),
        id_reply(*first),
        id_reply(*last),
        Reply::Array(consumers.collect()),
    ])
}

/// What a claim does to each entry.
struct Claim<'a> {
    consumer: &'a Bytes,
    min_idle: i64,
    /// The new time of delivery.
    delivered: i64,
    /// The new number of deliveries; one more than before, if it is not given.
    times: Option<u64>,
    just_id: bool,
    now: i64,
}

impl Claim<'_> {
    fn takes(&self, pending: &Pending) -> bool {
        self.min_idle <= 0 || pending.idle(self.now) >= self.min_idle
    }

    /// Gives the entry to the consumer, and returns its reply.
    fn take(&self, id: StreamId, fields: &[Bytes], pending: &mut Pending) -> Reply {
        pending.consumer = keep(self.consumer);
        pending.delivered = self.delivered;
        pending.times = self.times.unwrap_or(pending.times + u64::from(!self.just_id));
        if self.just_id { id_reply(id) } else { entry_reply(id, fields) }
    }

    /// Updates the times of the consumer: seen now, and active now if it received entries.
    fn note(&self, group: &mut Group, claimed: &[Reply]) {
        consume(group, self.consumer, self.now);
        if let Some(consumer) = group.consumers.get_mut(self.consumer).filter(|_| !claimed.is_empty()) {
            consumer.active = Some(self.now);
        }
    }
}

/// `XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME ms] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]`
fn xclaim(context: &mut Context<'_>, command: &Command) -> Outcome {
    let [key, name, consumer, min_idle, rest @ ..] = command.args() else { return Err(Failure::SYNTAX) };
    let database = context.database();
    group(database, key, name)?;
    let now = database.now();
    let number = |text: &[u8], what: &str| {
        integer(text).map_err(|_| Failure::from(format!("ERR Invalid {what} argument for XCLAIM")))
    };
    let min_idle = number(min_idle, "min-idle-time")?;
    // Options begin behind the ids.
    let ids: Vec<StreamId> = rest.iter().map_while(|id| StreamId::parse(id, 0)).collect();
    let mut claim = Claim { consumer, min_idle, delivered: now, times: None, just_id: false, now };
    let (mut force, mut last_delivered) = (false, StreamId::MIN);
    let mut options = Options::new(&rest[ids.len()..]);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "force" => force = true,
            "justid" => claim.just_id = true,
            "idle" if options.len() > 0 => {
                claim.delivered = now.saturating_sub(number(options.value()?, "IDLE option")?);
            }
            "time" if options.len() > 0 => claim.delivered = number(options.value()?, "TIME option")?,
            "retrycount" if options.len() > 0 => {
                claim.times = u64::try_from(number(options.value()?, "RETRYCOUNT option")?).ok();
            }
            "lastid" if options.len() > 0 => {
                last_delivered = StreamId::parse(options.value()?, 0).ok_or(INVALID_ID)?;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Unrecognized XCLAIM option '{option}'").into());
            }
        }
    }
    if !(0..=now).contains(&claim.delivered) {
        claim.delivered = now;
    }
    let claimed = edit(database, key, name, |stream, group| {
        group.last_delivered = group.last_delivered.max(last_delivered);
        let mut claimed = Vec::new();
        for id in ids {
            let Some(fields) = stream.get(id) else {
                // Deleted since.
                group.pending.remove(&id);
                continue;
            };
            match group.pending.get_mut(&id) {
                Some(pending) if claim.takes(pending) => claimed.push(claim.take(id, fields, pending)),
                None if force => {
                    let mut pending = Pending { consumer: keep(consumer), delivered: now, times: 1 };
                    claimed.push(claim.take(id, fields, &mut pending));
                    group.pending.insert(id, pending);
                }
                _ => {}
            }
        }
        claim.note(group, &claimed);
        claimed
    })?;
    Ok(Reply::Array(claimed.ok_or_else(|| no_group(key, name))?))
}

/// `XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]`
fn xautoclaim(context: &mut Context<'_>, command: &Command) -> Outcome {
    let [key, name, consumer, min_idle, start, options @ ..] = command.args() else {
        return Err(Failure::SYNTAX);
    };
    let min_idle =
        integer(min_idle).map_err(|_| Failure::new("ERR Invalid min-idle-time argument for XAUTOCLAIM"))?;
    let start = range_start(start)?;
    let (mut limit, mut just_id) = (100, false);
    let mut options = Options::new(options);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "count" if options.len() > 0 => {
                let number = integer(options.value()?).ok().filter(|number| (1..=MOST).contains(number));
                limit = number.ok_or(Failure::new("ERR COUNT must be > 0"))?;
            }
            "justid" => just_id = true,
            _ => return Err(Failure::SYNTAX),
        }
    }
    let database = context.database();
    group(database, key, name)?;
    let now = database.now();
    let claim = Claim { consumer, min_idle, delivered: now, times: None, just_id, now };
    let reply = edit(database, key, name, |stream, group| {
        let (mut claimed, mut deleted) = (Vec::new(), Vec::new());
        // As Valkey does, it looks at ten times as many entries as it may return.
        let mut attempts = limit.saturating_mul(10);
        let mut waiting = group.pending.range_mut(start..);
        let mut next = waiting.next();
        while let Some((id, pending)) = next.take_if(|_| attempts > 0 && limit > 0) {
            attempts -= 1;
            match stream.get(*id) {
                Some(fields) if claim.takes(pending) => {
                    claimed.push(claim.take(*id, fields, pending));
                    limit -= 1;
                }
                Some(_) => {}
                None => {
                    deleted.push(*id);
                    limit -= 1;
                }
            }
            next = waiting.next();
        }
        let next = next.map_or(StreamId::MIN, |(id, _)| *id);
        deleted.iter().for_each(|id| drop(group.pending.remove(id)));
        claim.note(group, &claimed);
        let deleted = deleted.into_iter().map(id_reply).collect();
        Reply::Array(vec![id_reply(next), Reply::Array(claimed), Reply::Array(deleted)])
    })?;
    reply.ok_or_else(|| no_group(key, name))
}

/// The largest count of XAUTOCLAIM: its ids must fit into memory.
const MOST: i64 = i64::MAX / 16;
