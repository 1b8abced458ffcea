//! Several commands as one.

use super::{Admin, All, Context, Entry, Failure, NoKey, Outcome, call, row};
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
    context.client().transaction = Some(Transaction { commands: Vec::new(), aborted: false });
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
    let replies = transaction.commands.iter().map(|command| {
        let Some(entry) = Entry::find(command.name()) else {
            return command.unknown();
        };
        call(context, entry, command)
    });
    let replies = replies.collect();
    context.in_transaction = false;
    Ok(Reply::Array(replies))
}

fn watch(context: &mut Context<'_>, command: &Command) -> Outcome {
    let client = context.client();
    let database = client.database;
    for key in command.args() {
        client.watched.insert((database, keep(key)));
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
    client.watched.clear();
    client.watched_changed = false;
    context.state.watchers.remove(&context.client);
}
