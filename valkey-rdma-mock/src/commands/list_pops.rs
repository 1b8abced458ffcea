//! Pops from the first of several lists that has items.

use bytes::Bytes;

use super::blocking::{block, seconds};
use super::lists::{end, pop_some};
use super::{Context, Counted, Entry, Failure, Outcome, Write, row};
use crate::args::{Options, integer};
use crate::store::{Database, End, List};
use crate::waiters::Awaited;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("blmpop", -5, Write, Counted(1), "Removes items of the first list that has some, or waits for some.", blmpop),
    row("lmpop", -4, Write, Counted(0), "Removes items of the first list that has some.", lmpop),
];

/// `LMPOP numkeys key [key ...] LEFT | RIGHT [COUNT count]`
fn lmpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    let pop = Pop::parse(command.args())?;
    Ok(pop.attempt(context.database())?.unwrap_or(Reply::NullArray))
}

/// `BLMPOP timeout numkeys key [key ...] LEFT | RIGHT [COUNT count]`
fn blmpop(context: &mut Context<'_>, command: &Command) -> Outcome {
    let pop = Pop::parse(&command.args()[1..])?;
    let timeout = seconds(&command.args()[0])?;
    block(context, command, pop.keys, timeout, Reply::NullArray, Awaited::List, |database, command| {
        Pop::parse(&command.args()[1..])?.attempt(database)
    })
}

/// What to take from where.
struct Pop<'a> {
    keys: &'a [Bytes],
    end: End,
    limit: usize,
}

impl<'a> Pop<'a> {
    /// `numkeys key [key ...] LEFT | RIGHT [COUNT count]`
    fn parse(args: &'a [Bytes]) -> Result<Self, Failure> {
        let (number, rest) = args.split_first().ok_or(Failure::SYNTAX)?;
        let number = above_zero(number).ok_or(Failure::new("ERR numkeys should be greater than 0"))?;
        let (keys, rest) = rest.split_at_checked(number).ok_or(Failure::SYNTAX)?;
        let mut options = Options::new(rest);
        let end = end(options.value()?)?;
        let mut limit = 1;
        if options.take_word("count") {
            let number = options.value()?;
            limit = above_zero(number).ok_or(Failure::new("ERR count should be greater than 0"))?;
        }
        if options.len() > 0 {
            return Err(Failure::SYNTAX);
        }
        Ok(Self { keys, end, limit })
    }

    fn attempt(&self, database: &mut Database) -> Result<Option<Reply>, Failure> {
        for key in self.keys {
            if let Some(items) = database.edit(key, |list: &mut List| pop_some(list, self.end, self.limit))? {
                return Ok(Some(Reply::Array(vec![Reply::Bulk(key.clone()), items])));
            }
        }
        Ok(None)
    }
}

fn above_zero(text: &[u8]) -> Option<usize> {
    usize::try_from(integer(text).ok()?).ok().filter(|number| *number > 0)
}
