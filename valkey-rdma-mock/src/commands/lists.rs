//! Lists.

use bytes::Bytes;

use super::blocking::{block, seconds};
use super::{
    AllButLast, Context, Entry, Failure, First, FirstTwo, Outcome, Read, Write, bulks, count, kept, row,
    value_or_null,
};
use crate::args::{Options, integer, lowercase, position, range};
use crate::store::{Database, End, List, keep};
use crate::waiters::{Attempt, Awaited};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("blmove", 6, Write, FirstTwo, "Moves an item from one list to another, or waits for one.", blmove),
    row("blpop", -3, Write, AllButLast, "Removes the first item of a list, or waits for one.", blpop),
    row("brpop", -3, Write, AllButLast, "Removes the last item of a list, or waits for one.", brpop),
    row("lindex", 3, Read, First, "Returns an item by its position.", lindex),
    row("llen", 2, Read, First, "Returns the length of a list.", llen),
    row("lmove", 5, Write, FirstTwo, "Moves an item from one list to another.", lmove),
    row("lpop", -2, Write, First, "Removes the first items of a list.", lpop),
    row("lpos", -3, Read, First, "Returns the positions of a value.", lpos),
    row("lpush", -3, Write, First, "Adds items to the head of a list.", lpush),
    row("lrange", 4, Read, First, "Returns the items of a range.", lrange),
    row("lrem", 4, Write, First, "Removes items by their value.", lrem),
    row("lset", 4, Write, First, "Replaces an item.", lset),
    row("ltrim", 4, Write, First, "Keeps the items of a range only.", ltrim),
    row("rpop", -2, Write, First, "Removes the last items of a list.", rpop),
    row("rpush", -3, Write, First, "Adds items to the end of a list.", rpush),
];

fn lpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    push(context, command, End::Left)
}

fn rpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    push(context, command, End::Right)
}

fn push(context: &mut Context<'_>, command: &Command, end: End) -> Outcome {
    let len = context.database().edit_or_create(&command.args()[0], |list: &mut List| {
        for item in &command.args()[1..] {
            list.push(end, keep(item));
        }
        list.len()
    })?;
    Ok(count(len))
}

fn lpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    pop(context, command, End::Left, "lpop")
}

fn rpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    pop(context, command, End::Right, "rpop")
}

/// `... key [count]`
fn pop(context: &mut Context<'_>, command: &Command, end: End, name: &str) -> Outcome {
    let limit = match &command.args()[1..] {
        [] => None,
        [limit] => Some(positive(limit)?),
        _ => return Err(Failure::wrong_arity(name)),
    };
    let database = context.database();
    let key = &command.args()[0];
    let Some(limit) = limit else {
        return Ok(value_or_null(database.edit(key, |list: &mut List| list.pop(end))?.flatten()));
    };
    Ok(database.edit(key, |list: &mut List| pop_some(list, end, limit))?.unwrap_or(Reply::NullArray))
}

pub(super) fn pop_some(list: &mut List, end: End, limit: usize) -> Reply {
    Reply::Array((0..limit.min(list.len())).filter_map(|_| list.pop(end)).map(Reply::Bulk).collect())
}

/// A count that may be zero.
fn positive(text: &[u8]) -> Result<usize, Failure> {
    let number = valkey_rdma_resp::integer::parse(text).and_then(|number| usize::try_from(number).ok());
    number.ok_or(Failure::NOT_POSITIVE)
}

fn llen(context: &mut Context<'_>, command: &Command) -> Outcome {
    Ok(count(context.database().get::<List>(&command.args()[0])?.map_or(0, List::len)))
}

fn lrange(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (start, stop) = (integer(&command.args()[1])?, integer(&command.args()[2])?);
    let Some(list) = context.database().get::<List>(&command.args()[0])? else {
        return Ok(Reply::Array(vec![]));
    };
    Ok(bulks(list.range(range(start, stop, list.len()))))
}

fn lindex(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let Some(list) = database.get::<List>(&command.args()[0])? else { return Ok(Reply::Null) };
    let index = position(integer(&command.args()[1])?, list.len());
    Ok(value_or_null(index.and_then(|index| list.get(index)).cloned()))
}

/// `LPOS key value [RANK rank] [COUNT count] [MAXLEN length]`
fn lpos(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (mut rank, mut limit, mut compared) = (1, None, 0);
    let mut options = Options::new(&command.args()[2..]);
    while let Some(option) = options.next() {
        let number = options.value()?;
        let amount = |text| {
            let amount = integer(number).ok().and_then(|number| usize::try_from(number).ok());
            amount.ok_or(Failure::new(text))
        };
        match lowercase(option).as_str() {
            "rank" => rank = nonzero_rank(integer(number)?)?,
            "count" => limit = Some(amount("ERR COUNT can't be negative")?),
            "maxlen" => compared = amount("ERR MAXLEN can't be negative")?,
            _ => return Err(Failure::SYNTAX),
        }
    }
    let nothing = if limit.is_some() { Reply::Array(vec![]) } else { Reply::Null };
    let Some(list) = context.database().get::<List>(&command.args()[0])? else { return Ok(nothing) };
    let everything = |number| if number == 0 { usize::MAX } else { number };
    let items = list.range(0..list.len()).enumerate();
    let found = |(index, item): (usize, &Bytes)| (item == &command.args()[1]).then(|| count(index));
    let before = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let wanted = limit.map_or(1, everything);
    let mut positions: Vec<Reply> = if rank > 0 {
        items.take(everything(compared)).filter_map(found).skip(before).take(wanted).collect()
    } else {
        items.rev().take(everything(compared)).filter_map(found).skip(before).take(wanted).collect()
    };
    match limit {
        Some(_) => Ok(Reply::Array(positions)),
        None => Ok(positions.pop().unwrap_or(nothing)),
    }
}

/// Negative: counted from the end.
fn nonzero_rank(rank: i64) -> Result<i64, Failure> {
    match rank {
        0 => Err(Failure::new(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start \
             from the end of the list",
        )),
        i64::MIN => Err(Failure::NOT_NEGATABLE),
        rank => Ok(rank),
    }
}

fn lset(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let list = database.get::<List>(&command.args()[0])?.ok_or(Failure::NO_SUCH_KEY)?;
    let index = position(integer(&command.args()[1])?, list.len());
    let index = index.ok_or(Failure::new("ERR index out of range"))?;
    database.edit(&command.args()[0], |list: &mut List| list.set(index, kept(command, 2)))?;
    Ok(Reply::OK)
}

fn lrem(context: &mut Context<'_>, command: &Command) -> Outcome {
    let number = integer(&command.args()[1])?;
    if number == i64::MIN {
        return Err(Failure::NOT_NEGATABLE);
    }
    let end = if number < 0 { End::Right } else { End::Left };
    let limit =
        if number == 0 { usize::MAX } else { usize::try_from(number.unsigned_abs()).unwrap_or(usize::MAX) };
    let removed = context
        .database()
        .edit(&command.args()[0], |list: &mut List| list.remove(&command.args()[2], limit, end))?;
    Ok(count(removed.unwrap_or(0)))
}

fn ltrim(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (start, stop) = (integer(&command.args()[1])?, integer(&command.args()[2])?);
    context.database().edit(&command.args()[0], |list: &mut List| {
        let range = range(start, stop, list.len());
        list.trim(range);
    })?;
    Ok(Reply::OK)
}

fn lmove(context: &mut Context<'_>, command: &Command) -> Outcome {
    ends(command)?;
    Ok(try_lmove(context.database(), command)?.unwrap_or(Reply::Null))
}

fn blmove(context: &mut Context<'_>, command: &Command) -> Outcome {
    ends(command)?;
    let timeout = seconds(&command.args()[4])?;
    if context.in_transaction {
        // As in Valkey, the reply for no item is then that of `LMOVE`: a null, not a null array.
        return lmove(context, command);
    }
    block(context, command, &command.args()[..1], timeout, Reply::NullArray, Awaited::List, try_lmove)
}

fn try_lmove(database: &mut Database, command: &Command) -> Result<Option<Reply>, Failure> {
    let (from, to) = ends(command)?;
    try_move(database, command, from, to)
}

fn ends(command: &Command) -> Result<(End, End), Failure> {
    Ok((end(&command.args()[2])?, end(&command.args()[3])?))
}

pub(super) fn end(word: &[u8]) -> Result<End, Failure> {
    match lowercase(word).as_str() {
        "left" => Ok(End::Left),
        "right" => Ok(End::Right),
        _ => Err(Failure::SYNTAX),
    }
}

fn try_move(
    database: &mut Database,
    command: &Command,
    from: End,
    to: End,
) -> Result<Option<Reply>, Failure> {
    let (source, destination) = (&command.args()[0], &command.args()[1]);
    if database.get::<List>(source)?.is_none() {
        return Ok(None);
    }
    database.get::<List>(destination)?;
    let Some(item) = database.edit(source, |list: &mut List| list.pop(from))?.flatten() else {
        return Ok(None);
    };
    database.edit_or_create(destination, |list: &mut List| list.push(to, item.clone()))?;
    Ok(Some(Reply::Bulk(item)))
}

fn blpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    block_pop(context, command, |database, command| try_pop(database, command, End::Left))
}

fn brpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    block_pop(context, command, |database, command| try_pop(database, command, End::Right))
}

/// `... key [key ...] timeout`
fn block_pop(context: &mut Context<'_>, command: &Command, attempt: Attempt) -> Outcome {
    let (keys, timeout) = command.args().split_at(command.args().len() - 1);
    let timeout = seconds(&timeout[0])?;
    block(context, command, keys, timeout, Reply::NullArray, Awaited::List, attempt)
}

fn try_pop(database: &mut Database, command: &Command, end: End) -> Result<Option<Reply>, Failure> {
    for key in &command.args()[..command.args().len() - 1] {
        if let Some(Some(item)) = database.edit(key, |list: &mut List| list.pop(end))? {
            return Ok(Some(Reply::Array(vec![Reply::Bulk(key.clone()), Reply::Bulk(item)])));
        }
    }
    Ok(None)
}
