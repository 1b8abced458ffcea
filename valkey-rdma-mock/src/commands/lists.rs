//! Lists.

use bytes::Bytes;

use super::blocking::{block, seconds};
use super::{
    AllButLast, Context, Counted, Entry, Failure, First, FirstTwo, Outcome, Read, Store, Write, bulks, count,
    kept, row, value_or_null,
};
use crate::args::{Options, integer, lowercase, position, range};
use crate::store::{Database, End, List, keep};
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("blmove", 6, Store, FirstTwo, "Moves an item from one list to another, or waits for one.", blmove),
    row("blmpop", -5, Write, Counted(1), "Removes items of the first list that has some, or waits.", blmpop),
    row("blpop", -3, Write, AllButLast, "Removes the first item of a list, or waits for one.", blpop),
    row("brpop", -3, Write, AllButLast, "Removes the last item of a list, or waits for one.", brpop),
    row("brpoplpush", 4, Store, FirstTwo, "Moves the last item of a list to the head of another, or waits.", brpoplpush),
    row("lindex", 3, Read, First, "Returns an item by its position.", lindex),
    row("linsert", 5, Store, First, "Inserts an item before or after another.", linsert),
    row("llen", 2, Read, First, "Returns the length of a list.", llen),
    row("lmove", 5, Store, FirstTwo, "Moves an item from one list to another.", lmove),
    row("lmpop", -4, Write, Counted(0), "Removes items of the first list that has some.", lmpop),
    row("lpop", -2, Write, First, "Removes the first items of a list.", lpop),
    row("lpos", -3, Read, First, "Finds the positions of an item.", lpos),
    row("lpush", -3, Store, First, "Adds items to the head of a list.", lpush),
    row("lpushx", -3, Store, First, "Adds items to the head of a list if it exists.", lpushx),
    row("lrange", 4, Read, First, "Returns the items of a range.", lrange),
    row("lrem", 4, Write, First, "Removes items by their value.", lrem),
    row("lset", 4, Store, First, "Replaces an item.", lset),
    row("ltrim", 4, Write, First, "Keeps the items of a range only.", ltrim),
    row("rpop", -2, Write, First, "Removes the last items of a list.", rpop),
    row("rpoplpush", 3, Store, FirstTwo, "Moves the last item of a list to the head of another.", rpoplpush),
    row("rpush", -3, Store, First, "Adds items to the end of a list.", rpush),
    row("rpushx", -3, Store, First, "Adds items to the end of a list if it exists.", rpushx),
];

fn lpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    push(context, command, End::Left)
}

fn rpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    push(context, command, End::Right)
}

fn lpushx(context: &mut Context<'_>, command: &Command) -> Outcome {
    push_if_exists(context, command, End::Left)
}

fn rpushx(context: &mut Context<'_>, command: &Command) -> Outcome {
    push_if_exists(context, command, End::Right)
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

fn push_if_exists(context: &mut Context<'_>, command: &Command, end: End) -> Outcome {
    if context.database().get::<List>(&command.args()[0])?.is_none() {
        return Ok(Reply::Integer(0));
    }
    push(context, command, end)
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

fn pop_some(list: &mut List, end: End, limit: usize) -> Reply {
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

fn lset(context: &mut Context<'_>, command: &Command) -> Outcome {
    let database = context.database();
    let list = database.get::<List>(&command.args()[0])?.ok_or(Failure::NO_SUCH_KEY)?;
    let index = position(integer(&command.args()[1])?, list.len());
    let index = index.ok_or(Failure::new("ERR index out of range"))?;
    database.edit(&command.args()[0], |list: &mut List| list.set(index, kept(command, 2)))?;
    Ok(Reply::OK)
}

/// `LINSERT key BEFORE | AFTER pivot item`
fn linsert(context: &mut Context<'_>, command: &Command) -> Outcome {
    let after = match lowercase(&command.args()[1]).as_str() {
        "before" => false,
        "after" => true,
        _ => return Err(Failure::SYNTAX),
    };
    let len = context.database().edit(&command.args()[0], |list: &mut List| {
        let at = list.iter().position(|item| *item == command.args()[2])?;
        list.insert(at + usize::from(after), kept(command, 3));
        Some(list.len())
    })?;
    Ok(match len {
        None => Reply::Integer(0),
        Some(None) => Reply::Integer(-1),
        Some(Some(len)) => count(len),
    })
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

/// `LPOS key item [RANK rank] [COUNT count] [MAXLEN len]`
fn lpos(context: &mut Context<'_>, command: &Command) -> Outcome {
    let (mut rank, mut limit, mut max_len) = (1, None, 0);
    let mut options = Options::new(&command.args()[2..]);
    while let Some(option) = options.next() {
        match lowercase(option).as_str() {
            "rank" => {
                rank = integer(options.value()?)?;
                if rank == 0 {
                    return Err(Failure::new(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
                         negative to start from the end of the list",
                    ));
                }
                if rank == i64::MIN {
                    return Err(Failure::NOT_NEGATABLE);
                }
            }
            "count" => {
                let count = integer(options.value()?).ok().and_then(|count| usize::try_from(count).ok());
                limit = Some(count.ok_or(Failure::new("ERR COUNT can't be negative"))?);
            }
            "maxlen" => {
                let len = integer(options.value()?).ok().and_then(|len| usize::try_from(len).ok());
                max_len = len.ok_or(Failure::new("ERR MAXLEN can't be negative"))?;
            }
            _ => return Err(Failure::SYNTAX),
        }
    }
    let nothing = if limit.is_some() { Reply::Array(vec![]) } else { Reply::Null };
    let Some(list) = context.database().get::<List>(&command.args()[0])? else { return Ok(nothing) };
    let skip = usize::try_from(rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let looked_at = if max_len == 0 { usize::MAX } else { max_len };
    let wanted = match limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None => 1,
    };
    let matching = |(index, item): (usize, &Bytes)| (*item == command.args()[1]).then_some(index);
    let found: Vec<usize> = if rank > 0 {
        list.iter().enumerate().take(looked_at).filter_map(matching).skip(skip).take(wanted).collect()
    } else {
        list.iter().enumerate().rev().take(looked_at).filter_map(matching).skip(skip).take(wanted).collect()
    };
    Ok(match limit {
        Some(_) => Reply::Array(found.into_iter().map(count).collect()),
        None => found.first().map_or(Reply::Null, |index| count(*index)),
    })
}

fn rpoplpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    let moved = try_move(context.database(), command, End::Right, End::Left)?;
    Ok(moved.unwrap_or(Reply::Null))
}

fn brpoplpush(context: &mut Context<'_>, command: &Command) -> Outcome {
    let timeout = seconds(&command.args()[2])?;
    if context.in_transaction {
        return rpoplpush(context, command);
    }
    block(context, command, &command.args()[..1], timeout, Reply::NullArray, |database, command| {
        try_move(database, command, End::Right, End::Left)
    })
}

fn lmove(context: &mut Context<'_>, command: &Command) -> Outcome {
    ends(command)?;
    Ok(try_lmove(context.database(), command)?.unwrap_or(Reply::Null))
}

fn blmove(context: &mut Context<'_>, command: &Command) -> Outcome {
    ends(command)?;
    let timeout = seconds(&command.args()[4])?;
    if context.in_transaction {
        // Which has another way to say that there is nothing.
        return lmove(context, command);
    }
    block(context, command, &command.args()[..1], timeout, Reply::NullArray, try_lmove)
}

fn try_lmove(database: &mut Database, command: &Command) -> Result<Option<Reply>, Failure> {
    let (from, to) = ends(command)?;
    try_move(database, command, from, to)
}

fn ends(command: &Command) -> Result<(End, End), Failure> {
    Ok((end(&command.args()[2])?, end(&command.args()[3])?))
}

fn end(word: &[u8]) -> Result<End, Failure> {
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
fn block_pop(context: &mut Context<'_>, command: &Command, attempt: crate::waiters::Attempt) -> Outcome {
    let (keys, timeout) = command.args().split_at(command.args().len() - 1);
    let timeout = seconds(&timeout[0])?;
    block(context, command, keys, timeout, Reply::NullArray, attempt)
}

fn try_pop(database: &mut Database, command: &Command, end: End) -> Result<Option<Reply>, Failure> {
    for key in &command.args()[..command.args().len() - 1] {
        if let Some(Some(item)) = database.edit(key, |list: &mut List| list.pop(end))? {
            return Ok(Some(Reply::Array(vec![Reply::Bulk(key.clone()), Reply::Bulk(item)])));
        }
    }
    Ok(None)
}

/// `LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]`
fn lmpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    MultiPop::parse(command.args())?;
    Ok(try_lmpop(context.database(), command)?.unwrap_or(Reply::NullArray))
}

/// `BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]`
fn blmpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    let timeout = seconds(&command.args()[0])?;
    let plan = MultiPop::parse(&command.args()[1..])?;
    block(context, command, plan.keys, timeout, Reply::NullArray, |database, command| {
        MultiPop::parse(&command.args()[1..])?.run(database)
    })
}

fn try_lmpop(database: &mut Database, command: &Command) -> Result<Option<Reply>, Failure> {
    MultiPop::parse(command.args())?.run(database)
}

struct MultiPop<'a> {
    keys: &'a [Bytes],
    end: End,
    limit: usize,
}

impl<'a> MultiPop<'a> {
    fn parse(args: &'a [Bytes]) -> Result<Self, Failure> {
        let (keys, options) = counted_keys(args)?;
        let mut options = Options::new(options);
        let end = end(options.value()?)?;
        let limit = count_option(&mut options)?;
        Ok(Self { keys, end, limit })
    }

    fn run(&self, database: &mut Database) -> Result<Option<Reply>, Failure> {
        for key in self.keys {
            let popped = database.edit(key, |list: &mut List| pop_some(list, self.end, self.limit))?;
            if let Some(items) = popped {
                return Ok(Some(Reply::Array(vec![Reply::Bulk(key.clone()), items])));
            }
        }
        Ok(None)
    }
}

/// Splits `numkeys key [key ...] rest`.
pub(super) fn counted_keys(args: &[Bytes]) -> Result<(&[Bytes], &[Bytes]), Failure> {
    let number = args.first().and_then(|number| valkey_rdma_resp::integer::parse(number));
    let number = number.and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
    let number = number.ok_or(Failure::new("ERR numkeys should be greater than 0"))?;
    let rest = &args[1..];
    if number >= rest.len() {
        return Err(Failure::SYNTAX);
    }
    Ok(rest.split_at(number))
}

/// `[COUNT count]` at the end; 1 if it is not given.
pub(super) fn count_option(options: &mut Options<'_>) -> Result<usize, Failure> {
    let mut limit = None;
    while let Some(option) = options.next() {
        if lowercase(option).as_str() != "count" || limit.is_some() {
            return Err(Failure::SYNTAX);
        }
        let number = valkey_rdma_resp::integer::parse(options.value()?);
        let number = number.and_then(|number| usize::try_from(number).ok()).filter(|number| *number > 0);
        limit = Some(number.ok_or(Failure::new("ERR count should be greater than 0"))?);
    }
    Ok(limit.unwrap_or(1))
}
