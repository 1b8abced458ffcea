//! Transactions in a cluster: MULTI to EXEC on the node of one slot, and WATCH before it.

use tokio::time::Instant;
use valkey_rdma_resp::{ServerError, ServerErrorKind};

use super::call::{ClusterCall, Target};
use super::client::Cluster;
use super::core::Place;
use super::route::slot_of;
use super::unknown_commands::Described;
use crate::command::table::{Access, find, for_each_key};
use crate::command::{Command, Commands, EncodedPipeline, Reply};
use crate::dedicated::Dedicated;
use crate::error::{ClusterError, Error};
use crate::link::Deadline;
use crate::stats::Purpose;
use crate::transaction::Watch;

impl Cluster {
    /// Sends WATCH on a dedicated connection to the node of the keys.
    pub(crate) async fn watch(&self, command: Command) -> Result<Watch, Error> {
        let slot = one_slot([&command], &Described::default())?.unwrap_or_else(|| self.core.any_slot());
        let deadline = self.core.config.limit(&command).and_then(Deadline::after);
        let target = Target::Slot(slot, Access::Write);
        let call = ClusterCall::of(&self.core, &command, target, deadline).repeatable(true).dedicated();
        let attempt = |place: Place| {
            let command = command.clone();
            async move {
                let (connection, deadline) = self.checkout_until(&place, deadline).await?;
                let begun = Watch::begin(&place.client, connection, command, deadline).await;
                begun.map_err(|error| match error {
                    Error::Server(error) => waited_out(error).into(),
                    error => error,
                })
            }
        };
        call.run(attempt).await
    }

    /// Sends a transaction, from MULTI to EXEC, to the node of its keys: with a command that may block, on a connection of its own. Returns
    /// the replies to all of it.
    pub(crate) async fn run_transaction(&self, commands: &[Command]) -> Result<Vec<Reply>, Error> {
        let inner = &commands[1..commands.len() - 1];
        let deadline = self.core.config.limit_together(inner).and_then(Deadline::after);
        let unknown: Vec<_> = inner.iter().filter(|command| find(command).is_none()).collect();
        let described = self.describe_all(unknown.into_iter(), deadline).await;
        let slot = one_slot(inner, &described)?.unwrap_or_else(|| self.core.any_slot());
        let repeatable = inner.iter().all(Command::is_idempotent);
        let target = Target::Slot(slot, Access::Write);
        let call = ClusterCall::new(&self.core, target, deadline, "MULTI").repeatable(repeatable);
        if inner.iter().any(Command::blocks) {
            let attempt = |place: Place| async move {
                let (mut connection, deadline) = self.checkout_until(&place, deadline).await?;
                let replies = connection.exchange_all(commands, deadline).await?;
                redirection(&replies).map_or(Ok(replies), Err)
            };
            return call.dedicated().run(attempt).await;
        }
        let attempt = |place: Place| async move {
            let encoded: EncodedPipeline = commands.iter().collect();
            let replies = place.client.send(Commands::Many(encoded), deadline).await.all()?;
            redirection(&replies).map_or(Ok(replies), Err)
        };
        call.run(attempt).await
    }

    /// A connection for a call at a place, and until when the call may use it: connecting has the endpoint's timeout in addition.
    async fn checkout_until(
        &self,
        place: &Place,
        deadline: Option<Deadline>,
    ) -> Result<(Dedicated, Option<Deadline>), Error> {
        let begin = Instant::now();
        let connection = self.core.checkout(place, Purpose::Call).await?;
        Ok((connection, deadline.and_then(|deadline| deadline.put_off(begin.elapsed()))))
    }
}

/// The error with which a node sends the transaction elsewhere, if it did: then nothing of it has run.
fn redirection(replies: &[Reply]) -> Option<Error> {
    let Some(Err(exec)) = replies.last() else { return None };
    let refused = replies.iter().find_map(|reply| reply.as_ref().err()).unwrap_or(exec);
    // If MULTI itself was refused, the commands behind it ran alone.
    let alone = replies.first().is_some_and(Result::is_err) && replies[1..].iter().any(Result::is_ok);
    (refused.is_about_node() && !alone).then(|| waited_out(refused.clone()).into())
}

/// ASK is waited out as TRYAGAIN is: behind ASKING the other node runs one command, and a transaction needs several.
fn waited_out(mut error: ServerError) -> ServerError {
    if error.kind() == ServerErrorKind::Ask {
        error.code = "TRYAGAIN".to_owned();
    }
    error
}

/// The slot of all keys of all commands; `None` if there are no keys. `described`: what servers say of commands that the table does not know.
fn one_slot<'a>(
    commands: impl IntoIterator<Item = &'a Command>,
    described: &Described,
) -> Result<Option<u16>, Error> {
    let mut slot = None;
    for command in commands {
        let learned;
        let description = match find(command) {
            Some(description) => description,
            None => match described.of(command)? {
                Some(known) => {
                    learned = known.describe(command.words().nth(1));
                    &learned
                }
                // No server knows it either. The node refuses it, and the transaction with it.
                None => continue,
            },
        };
        let mut other = None;
        for_each_key(command, description.keys, &mut |_, key| {
            let this = slot_of(key);
            other = Some(this).filter(|this| *slot.get_or_insert(*this) != *this);
            other.is_none()
        });
        if let (Some(first), Some(second)) = (slot, other) {
            return Err(ClusterError::CrossSlot { command: command.name(), first, second }.into());
        }
    }
    Ok(slot)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use valkey_rdma_resp::Value;

    use super::*;

    fn refusal(text: &str) -> Reply {
        Err(ServerError::from_reply(text.as_bytes()))
    }

    fn status(text: &'static str) -> Reply {
        Ok(Value::Simple(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn a_transaction_is_sent_elsewhere_only_if_nothing_of_it_ran() {
        let moved = || refusal("MOVED 1 h:1");
        let aborted = || refusal("EXECABORT x");
        let code =
            |replies: &[Reply]| redirection(replies).and_then(|error| Some(error.server()?.code.clone()));
        assert_eq!(code(&[status("OK"), moved(), aborted()]).as_deref(), Some("MOVED"));
        assert_eq!(code(&[status("OK"), refusal("ASK 1 h:1"), aborted()]).as_deref(), Some("TRYAGAIN"));
        assert_eq!(
            code(&[status("OK"), status("QUEUED"), refusal("CLUSTERDOWN x")]).as_deref(),
            Some("CLUSTERDOWN")
        );
        assert_eq!(code(&[status("OK"), refusal("ERR x"), aborted()]), None);
        assert_eq!(code(&[refusal("LOADING x"), status("OK"), refusal("ERR EXEC without MULTI")]), None);
        assert_eq!(code(&[status("OK"), status("QUEUED"), Ok(Value::Nil)]), None);
    }

    #[test]
    fn keys_of_all_commands_must_share_a_slot() {
        let commands = |lines: &[&str]| -> Vec<Command> {
            lines.iter().map(|line| Command::from_args(line.split(' '))).collect()
        };
        let one_slot = |lines: &[&str]| one_slot(&commands(lines), &Described::default());
        assert!(one_slot(&["SET {a}1 x", "PING", "GET {a}2"]).is_ok());
        let error = one_slot(&["SET a x", "GET b"]).expect_err("two slots");
        assert!(matches!(error, Error::Cluster(ClusterError::CrossSlot { .. })), "{error:?}");
        let text = "GET was not sent: it needs keys of slots 15495 and 3300 together; give keys that are used together the same \
                    hash tag, as {user1}:name and {user1}:mail have";
        assert_eq!(error.to_string(), text);
        assert_eq!(one_slot(&["SET a x", "NONSENSE b"]).expect("the node refuses it"), Some(slot_of(b"a")));
    }
}
