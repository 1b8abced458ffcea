//! Streams. Consumer groups are in [`stream_groups`](super::stream_groups).

use bytes::Bytes;

use super::blocking::block;
use super::{Context, Entry, Failure, First, Outcome, Read, Streams, Write, count, row};
use crate::args::{Options, integer, lowercase};
use crate::store::{Database, Stream, StreamId, keep, number};
use crate::waiters::Awaited;
use valkey_rdma_server::Command;
use valkey_rdma_server::Protocol;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("xadd", -5, Write, First, "Appends an entry.", xadd),
    row("xdel", -3, Write, First, "Deletes entries.", xdel),
    row("xlen", 2, Read, First, "Returns the number of entries.", xlen),
    row("xrange", -4, Read, First, "Returns the entries of a range.", xrange),
    row("xread", -4, Read, Streams, "Returns new entries, or waits for some.", xread),
    row("xrevrange", -4, Read, First, "Returns the entries of a range, from the last.", xrevrange),
    row("xtrim", -4, Write, First, "Removes the oldest entries.", xtrim),
];

pub(super) const INVALID_ID: Failure =
    Failure::new("ERR Invalid stream ID specified as stream command argument");

pub(super) fn stream<'a>(database: &'a Database, key: &[u8]) -> Result<Option<&'a Stream>, Failure> {
    database.get::<Stream>(key)
}

pub(super) fn id_reply(id: StreamId) -> Reply {
    Reply::bulk(id.to_string())
}

pub(super) fn entry_reply(id: StreamId, fields: &[Bytes]) -> Reply {
    Reply::Array(vec![id_reply(id), super::bulks(fields)])
}

/// `XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value [field value ...]`
fn xadd(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut options = Options::new(&command.args()[1..]);
    let (mut create, mut trim) = (true, None);
    loop {
        match options.rest().first().map(|option| lowercase(option)) {
            Some(word) if word.as_str() == "nomkstream" => {
                options.next();
                create = false;
            }
            Some(word) if matches!(word.as_str(), "maxlen" | "minid") => {
                trim = Some(Trim::parse(&mut options)?)
            }
            _ => break,
        }
    }
    let wanted = options.next().ok_or_else(|| Failure::wrong_arity("xadd"))?;
    let wanted = NewId::parse(wanted)?;
    let fields = options.rest();
    if fields.is_empty() || !fields.len().is_multiple_of(2) {
        return Err(Failure::wrong_arity("xadd"));
    }
    if wanted == NewId::Exactly(StreamId::MIN) {
        return Err(Failure::new("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let key = &command.args()[0];
    let database = context.database();
    let existing = stream(database, key)?;
    if existing.is_none() && !create {
        return Ok(Reply::Null);
    }
    let now = u64::try_from(database.now()).unwrap_or(0);
    let id = wanted.resolve(existing.map_or(StreamId::MIN, |stream| stream.last_id), now)?;
    let fields = fields.iter().map(keep).collect();
    database.edit_or_create(key, |stream: &mut Stream| {
        stream.append(id, fields);
        if let Some(trim) = trim {
            trim.apply(stream);
        }
    })?;
    Ok(id_reply(id))
}

/// The id of `XADD`.
#[derive(PartialEq, Eq)]
enum NewId {
    Any,
    AnyIn(u64),
    Exactly(StreamId),
}

impl NewId {
    fn parse(text: &[u8]) -> Result<Self, Failure> {
        if text == b"*" {
            return Ok(Self::Any);
        }
        if let Some(ms) = text.strip_suffix(b"-*") {
            return number(ms).map(Self::AnyIn).ok_or(INVALID_ID);
        }
        StreamId::parse(text, 0).map(Self::Exactly).ok_or(INVALID_ID)
    }

    fn resolve(self, last: StreamId, now: u64) -> Result<StreamId, Failure> {
        let exhausted =
            Failure::new("ERR The stream has exhausted the last possible ID, unable to add more items");
        let too_small =
            Failure::new("ERR The ID specified in XADD is equal or smaller than the target stream top item");
        if last == StreamId::MAX {
            return Err(exhausted);
        }
        match self {
            Self::Any if now > last.ms => Ok(StreamId { ms: now, seq: 0 }),
            Self::Any => last.next().ok_or(exhausted),
            Self::AnyIn(ms) if ms > last.ms => Ok(StreamId { ms, seq: 0 }),
            Self::AnyIn(ms) if ms == last.ms && last.seq < u64::MAX => Ok(StreamId { ms, seq: last.seq + 1 }),
            Self::Exactly(id) if id > last => Ok(id),
            Self::AnyIn(_) | Self::Exactly(_) => Err(too_small),
        }
    }
}

/// `MAXLEN | MINID [= | ~] threshold [LIMIT count]`
struct Trim {
    to: TrimTo,
}

enum TrimTo {
    Len(usize),
    Id(StreamId),
}

impl Trim {
    /// From the word `MAXLEN` or `MINID` on.
    fn parse(options: &mut Options<'_>) -> Result<Self, Failure> {
        let by_len = options.take_word("maxlen");
        if !by_len && !options.take_word("minid") {
            return Err(Failure::SYNTAX);
        }
        let about = options.take_word("~");
        if !about {
            options.take_word("=");
        }
        let threshold = options.value()?;
        let to = if by_len {
            let len = integer(threshold)?;
            TrimTo::Len(
                usize::try_from(len).map_err(|_| Failure::new("ERR The MAXLEN argument must be >= 0."))?,
            )
        } else {
            TrimTo::Id(StreamId::parse(threshold, 0).ok_or(INVALID_ID)?)
        };
        if options.take_word("limit") {
            let limit = integer(options.value()?)?;
            if limit < 0 {
                return Err(Failure::new("ERR The LIMIT argument must be >= 0."));
            }
            if !about {
                return Err(Failure::new(
                    "ERR syntax error, LIMIT cannot be used without the special ~ option",
                ));
            }
        }
        // About means to whole nodes of 100 entries: what is less than a node stays, as in Valkey.
        Ok(Self { to: if about { to.rounded() } else { to } })
    }

    fn apply(&self, stream: &mut Stream) -> usize {
        let excess = match self.to {
            TrimTo::Len(len) => stream.len().saturating_sub(len),
            TrimTo::Id(id) => id.previous().map_or(0, |end| stream.range(StreamId::MIN, end).count()),
        };
        (0..excess).filter(|_| stream.remove_first()).count()
    }
}

impl TrimTo {
    fn rounded(self) -> Self {
        match self {
            Self::Len(len) => Self::Len(len.saturating_add(NODE - 1) / NODE * NODE),
            id => id,
        }
    }
}

/// Valkey's `stream-node-max-entries`.
const NODE: usize = 100;

fn xtrim(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut options = Options::new(&command.args()[1..]);
    let trim = Trim::parse(&mut options)?;
    if options.len() > 0 {
        return Err(Failure::SYNTAX);
    }
    let removed = context.database().edit(&command.args()[0], |stream: &mut Stream| trim.apply(stream))?;
    Ok(count(removed.unwrap_or(0)))
}

fn xlen(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(stream(context.database(), &command.args()[0])?.map_or(0, Stream::len)))
}

fn xdel(context: &mut Context<'_>, command: &Command) -> Outcome {
    let ids = command.args()[1..].iter().map(|id| StreamId::parse(id, 0).ok_or(INVALID_ID));
    let ids = ids.collect::<Result<Vec<_>, _>>()?;
    let removed = context.database().edit(&command.args()[0], |stream: &mut Stream| {
        ids.iter().filter(|id| stream.remove(**id)).count()
    })?;
    Ok(count(removed.unwrap_or(0)))
}

fn xrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    entries(context, command, 1, 2, false)
}

fn xrevrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    entries(context, command, 2, 1, true)
}

/// `... key start end [COUNT count]`
fn entries(context: &mut Context<'_>, command: &Command, start: usize, end: usize, reverse: bool) -> Outcome {
    let (start, end) = (range_start(&command.args()[start])?, range_end(&command.args()[end])?);
    let limit = match &command.args()[3..] {
        [] => usize::MAX,
        [word, limit] if lowercase(word).as_str() == "count" => {
            let limit = integer(limit)?;
            match usize::try_from(limit) {
                Ok(limit) if limit > 0 => limit,
                _ => return Ok(Reply::NullArray),
            }
        }
        _ => return Err(Failure::SYNTAX),
    };
    let Some(stream) = stream(context.database(), &command.args()[0])? else {
        return Ok(Reply::Array(vec![]));
    };
    let show = |(id, fields): (StreamId, &Vec<Bytes>)| entry_reply(id, fields);
    Ok(Reply::Array(if reverse {
        stream.range(start, end).rev().take(limit).map(show).collect()
    } else {
        stream.range(start, end).take(limit).map(show).collect()
    }))
}

/// The first id of a range: `-`, `id` or `(id`.
pub(super) fn range_start(text: &[u8]) -> Result<StreamId, Failure> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        [b'(', id @ ..] => StreamId::parse(id, 0)
            .ok_or(INVALID_ID)?
            .next()
            .ok_or(Failure::new("ERR invalid start ID for the interval")),
        id => StreamId::parse(id, 0).ok_or(INVALID_ID),
    }
}

/// The last id of a range: `+`, `id` or `(id`.
pub(super) fn range_end(text: &[u8]) -> Result<StreamId, Failure> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        [b'(', id @ ..] => StreamId::parse(id, u64::MAX)
            .ok_or(INVALID_ID)?
            .previous()
            .ok_or(Failure::new("ERR invalid end ID for the interval")),
        id => StreamId::parse(id, u64::MAX).ok_or(INVALID_ID),
    }
}

/// `XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]`
fn xread(context: &mut Context<'_>, command: &Command) -> Outcome {
    let mut plan = ReadPlan::parse(command, false)?;
    plan.check_balance("xread")?;
    // `$` and `+` are resolved now, not when an entry arrives.
    let database = context.database();
    let mut resolved: Vec<Bytes> = Vec::new();
    for (key, id) in plan.keys.iter().zip(plan.ids) {
        let found = stream(database, key)?;
        let id = match &id[..] {
            b"$" => found.map_or(StreamId::MIN, |stream| stream.last_id),
            b"+" => found
                .and_then(|stream| stream.range(StreamId::MIN, StreamId::MAX).next_back())
                .map_or(StreamId::MIN, |(id, _)| id.previous().unwrap_or(StreamId::MIN)),
            b">" => {
                return Err(Failure::new(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> <consumer> option.",
                ));
            }
            id => StreamId::parse(id, 0).ok_or(INVALID_ID)?,
        };
        resolved.push(id.to_string().into());
    }
    plan.ids = &resolved;
    let resp3 = context.client().protocol == Protocol::Resp3;
    let again = plan.command(resp3);
    match plan.block {
        None => Ok(try_read(context.database(), &again)?.unwrap_or(Reply::NullArray)),
        Some(timeout) => {
            block(context, &again, plan.keys, timeout, Reply::NullArray, Awaited::Stream, try_read)
        }
    }
}

/// Runs what [`ReadPlan::command`] wrote.
fn try_read(database: &mut Database, command: &Command) -> Result<Option<Reply>, Failure> {
    let plan = ReadPlan::parse(command, false)?;
    let mut found = Vec::new();
    for (key, id) in plan.keys.iter().zip(plan.ids) {
        let after = StreamId::parse(id, 0).ok_or(INVALID_ID)?;
        let Some((stream, start)) = stream(database, key)?.zip(after.next()) else { continue };
        let entries: Vec<Reply> = stream
            .range(start, StreamId::MAX)
            .take(plan.limit)
            .map(|(id, fields)| entry_reply(id, fields))
            .collect();
        if !entries.is_empty() {
            found.push((Reply::Bulk(key.clone()), Reply::Array(entries)));
        }
    }
    Ok((!found.is_empty()).then(|| by_stream(found, command.is("xread3"))))
}

/// Entries by stream: a map in RESP3, pairs in RESP2.
pub(super) fn by_stream(found: Vec<(Reply, Reply)>, resp3: bool) -> Reply {
    if resp3 {
        return Reply::Map(found);
    }
    Reply::Array(found.into_iter().map(|(key, entries)| Reply::Array(vec![key, entries])).collect())
}

/// The parsed arguments of `XREAD` and `XREADGROUP`.
pub(super) struct ReadPlan<'a> {
    pub(super) group: Option<(&'a Bytes, &'a Bytes)>,
    pub(super) no_ack: bool,
    pub(super) limit: usize,
    /// How long to wait; `Some(None)`: for ever.
    pub(super) block: Option<Option<std::time::Duration>>,
    pub(super) keys: &'a [Bytes],
    pub(super) ids: &'a [Bytes],
}

impl<'a> ReadPlan<'a> {
    pub(super) fn parse(command: &'a Command, of_group: bool) -> Result<Self, Failure> {
        let mut plan =
            Self { group: None, no_ack: false, limit: usize::MAX, block: None, keys: &[], ids: &[] };
        let mut options = Options::new(command.args());
        while let Some(option) = options.next() {
            match lowercase(option).as_str() {
                "count" => {
                    let limit = integer(options.value()?)?;
                    plan.limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
                }
                "block" => {
                    let time = integer(options.value()?)
                        .map_err(|_| Failure::new("ERR timeout is not an integer or out of range"))?;
                    let time = u64::try_from(time).map_err(|_| Failure::new("ERR timeout is negative"))?;
                    plan.block = Some((time > 0).then(|| std::time::Duration::from_millis(time)));
                }
                "group" if of_group && options.len() >= 2 => {
                    plan.group = Some((options.value()?, options.value()?))
                }
                "group" if !of_group => {
                    return Err(Failure::new(
                        "ERR The GROUP option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                "noack" if of_group => plan.no_ack = true,
                "noack" => {
                    return Err(Failure::new(
                        "ERR The NOACK option is only supported by XREADGROUP. You called XREAD instead.",
                    ));
                }
                "streams" => {
                    let rest = options.rest();
                    (plan.keys, plan.ids) = rest.split_at(rest.len() / 2);
                    return Ok(plan);
                }
                _ => return Err(Failure::SYNTAX),
            }
        }
        Err(Failure::SYNTAX)
    }

    pub(super) fn check_balance(&self, name: &str) -> Result<(), Failure> {
        if self.keys.is_empty() || self.keys.len() != self.ids.len() {
            return Err(Failure::from(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID{} must be specified.",
                if name == "xread" { " or '$'" } else { " or '>'" }
            )));
        }
        Ok(())
    }

    /// The plan as a command that can be run again later. Its name contains the protocol version.
    pub(super) fn command(&self, resp3: bool) -> Command {
        let mut words: Vec<Bytes> = Vec::new();
        if let Some((group, consumer)) = self.group {
            words.extend([Bytes::from_static(b"GROUP"), keep(group), keep(consumer)]);
        }
        if self.no_ack {
            words.push(Bytes::from_static(b"NOACK"));
        }
        if self.limit != usize::MAX {
            words.extend([Bytes::from_static(b"COUNT"), self.limit.to_string().into()]);
        }
        words.push(Bytes::from_static(b"STREAMS"));
        words.extend(self.keys.iter().chain(self.ids).map(keep));
        Command::new(if resp3 { "xread3" } else { "xread2" }, words)
    }
}
