//! Saving, as far as a server without a disk has something to say about it: everything is saved at once, to nowhere.

use super::{Admin, Context, Entry, Failure, NoKey, Outcome, row};
use crate::args::lowercase;
use valkey_rdma_server::Command;
use valkey_rdma_server::Reply;

#[rustfmt::skip] // One row, one line.
pub(super) const TABLE: &[Entry] = &[
    row("bgsave", -1, Admin, NoKey, "Takes note of the time of a save; writes nothing.", bgsave),
    row("lastsave", 1, Admin, NoKey, "Returns the time of the last save, at first that of the start.", lastsave),
    row("save", 1, Admin, NoKey, "Takes note of the time of a save; writes nothing.", save),
];

/// `BGSAVE [SCHEDULE | CANCEL]`
fn bgsave(context: &mut Context<'_>, command: &Command) -> Outcome {
    match command.args() {
        [] => {}
        [option] if lowercase(option).as_str() == "schedule" => {}
        [option] if lowercase(option).as_str() == "cancel" => {
            return Err(Failure::new("ERR Background saving is currently not in progress or scheduled"));
        }
        _ => return Err(Failure::SYNTAX),
    }
    context.state.save();
    let when = if context.in_transaction { "scheduled" } else { "started" };
    Ok(Reply::simple(format!("Background saving {when}")))
}

fn save(context: &mut Context<'_>, _command: &Command) -> Outcome {
    context.state.save();
    Ok(Reply::OK)
}

/// Seconds since 1970.
fn lastsave(context: &mut Context<'_>, _command: &Command) -> Outcome {
    Ok(Reply::Integer(context.state.last_save / 1000))
}
