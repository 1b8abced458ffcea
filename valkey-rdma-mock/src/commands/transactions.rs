//! Several commands as one.

use super::{Admin, All, Context, Entry, Failure, NoKey, Outcome, Store, call, row};
use crate::client::Transaction;
use crate::store::keep;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("discard", 1, Admin, NoKey, "Forgets the commands of a transaction.", discard),
    row("exec", 1, Admin, NoKey, "Runs the commands of a transaction.", exec),
    row("multi", 1, Admin, NoKey, "Begins a transaction.", multi),
    row("unwatch", 1, Admin, NoKey, "Forgets the watched keys.", unwatch),
    row("watch", -2, Admin, All, "Makes the next transaction depend on keys not changing.", watch),
];

fn multi(context: &mut Context<'_>, _command: &Command) -> Outcome {
    let held = context.state.held.charge();
    context.client().transaction = Some(Transaction { commands: Vec::new(), aborted: false, held });
    Ok(Reply::OK)
}

fn discard(context: &mut Context<'_>, _command: &Command) -> Outcome {
    if context.client().transaction.take().is_none() {
        return Err(Failure::new("ERR DISCARD without MULTI"));
    }
    stop_watching(context);
    Ok(Reply::OK)
}

fn exec(context: &mut Context<'_>, _command: &Command) -> Outcome {
    let client = context.client();
    let transaction = client.transaction.take().ok_or(Failure::new("ERR EXEC without MULTI"))?;
    let changed = client.watched_changed;
    stop_watching(context);
    if transaction.aborted {
        return Err(Failure::new("EXECABORT Transaction discarded because of previous errors."));
    }
    if changed {
        return Ok(Reply::NullArray);
    }
    context.in_transaction = true;
    let mut weight = 0;
    let replies = transaction.commands.iter().map(|command| {
        let Some(entry) = Entry::find(command.name()) else {
            return Failure::unknown_command(command.name(), command.args()).into();
        };
        // The commands together may store or return much more than each of them.
        let full = entry.kind == Store && context.state.would_overflow(command.args_len());
        let reply = if full || weight > MAX_REPLY {
            Failure::OUT_OF_MEMORY.into()
        } else {
            call(context, entry, command)
        };
        weight += reply.memory_size();
        reply
    });
    let replies = replies.collect();
    context.in_transaction = false;
    Ok(Reply::Array(replies))
}

/// Bytes of replies to one transaction, roughly, from which on its commands are not run.
const MAX_REPLY: usize = 1 << 30;

fn watch(context: &mut Context<'_>, command: &Command) -> Outcome {
    let client = context.client();
    let database = client.database;
    for key in command.args() {
        if client.watched.insert((database, keep(key))) {
            client.held.add(key.len());
        }
    }
    context.state.watchers.insert(context.client);
    Ok(Reply::OK)
}

fn unwatch(context: &mut Context<'_>, _command: &Command) -> Outcome {
    stop_watching(context);
    Ok(Reply::OK)
}

/// Forgets the watched keys.
pub(super) fn stop_watching(context: &mut Context<'_>) {
    let client = context.client();
    for (_, key) in std::mem::take(&mut client.watched) {
        client.held.remove(key.len());
    }
    client.watched_changed = false;
    context.state.watchers.remove(&context.client);
}
