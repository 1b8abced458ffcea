//! [`ClusterTransaction`]: MULTI to EXEC on the node of one slot, and WATCH before it.

use valkey_rdma_resp::{FromValue, ServerError, ServerErrorKind};

use super::client::ClusterClient;
use super::pipeline::transaction_refusal;
use super::route::slot_of;
use super::tries::{Target, Tries};
use crate::error::{ClusterError, Error};
use crate::multiplexer::{Deadline, Replies};
use crate::pipeline::convert_replies;
use crate::resp::command_table::{Access, find, for_each_key};
use crate::resp::{Command, EncodedPipeline, IntoCommand, Reply, ToArg};
use crate::transaction::{Watch, results};

/// Commands that one node runs all or none. Their keys must be in the same slot.
///
/// ```no_run
/// # async fn example(cluster: valkey_rdma_client::ClusterClient) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::cmd;
///
/// let transfer = cluster
///     .transaction()
///     .command(cmd!["DECRBY", "{account}:1", 10])
///     .command(cmd!["INCRBY", "{account}:2", 10]);
/// let (first, second): (i64, i64) = transfer.query().await?;
/// # Ok(())
/// # }
/// ```
///
/// # While its slot moves
/// A transaction that meets a key on the move waits until the key has arrived: ASK cannot be followed within MULTI.
#[derive(Clone, Debug)]
#[must_use = "a transaction does nothing until executed"]
pub struct ClusterTransaction {
    cluster: ClusterClient,
    commands: Vec<Command>,
}

impl ClusterClient {
    /// Begins a transaction.
    pub fn transaction(&self) -> ClusterTransaction {
        ClusterTransaction { cluster: self.clone(), commands: vec![Command::new("MULTI")] }
    }

    /// Watches keys of one slot on a dedicated connection, as [`Client::watch`](crate::Client::watch) does. If the slot
    /// moves before the transaction, it fails with MOVED, and its commands have not run. If a key is on the move already,
    /// this waits until its slot has arrived, as a [`transaction`](Self::transaction) does.
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command).
    ///
    /// # Cancel safety
    /// Dropping the future closes the dedicated connection.
    pub async fn watch(&self, keys: impl IntoIterator<Item = impl ToArg>) -> Result<Watch, Error> {
        let command = keys.into_iter().fold(Command::new("WATCH"), Command::arg);
        let slot = one_slot([&command])?;
        let deadline = self.limit(&command).and_then(Deadline::after);
        let target = Target::Slot(slot, Access::Write);
        let mut tries = Tries::new(&self.core, target, deadline, command.name()).apart();
        loop {
            let place = tries.next().await?;
            let begun = async {
                let connection = self.core.checkout(&place).await?;
                Watch::begin(&place.client, connection, command.clone()).await
            };
            match begun.await {
                Ok(watch) => return Ok(watch),
                Err(Error::Server(error)) => tries.failed(&place, waited_out(error).into(), true).await?,
                Err(error) => tries.failed(&place, error, true).await?,
            }
        }
    }
}

impl ClusterTransaction {
    /// Adds a command.
    pub fn command(mut self, command: impl IntoCommand) -> Self {
        self.push(command);
        self
    }

    /// Adds a command in place, for loops.
    pub fn push(&mut self, command: impl IntoCommand) -> &mut Self {
        self.commands.push(command.into_command());
        self
    }

    /// Executes the commands and returns their replies, in order, as [`Transaction::execute`](crate::Transaction::execute)
    /// does.
    ///
    /// # Errors
    /// [`ClusterError::CrossSlot`] if the keys are not all in one slot; otherwise as
    /// [`Transaction::execute`](crate::Transaction::execute).
    ///
    /// # Cancel safety
    /// Dropping the future discards the replies. The transaction runs as a whole or not at all.
    pub async fn execute(mut self) -> Result<Vec<Reply>, Error> {
        for command in &self.commands[1..] {
            if let Some(refusal) = command.refusal().or_else(|| transaction_refusal(command)) {
                return Err(refusal.into());
            }
        }
        let slot = one_slot(&self.commands[1..])?;
        self.commands.push(Command::new("EXEC"));
        let core = &self.cluster.core;
        let limits = self.commands.iter().filter_map(Command::limit);
        let deadline = limits.max().or(core.config.node.command_timeout).and_then(Deadline::after);
        let repeatable = self.commands[1..self.commands.len() - 1].iter().all(Command::is_idempotent);
        let mut tries = Tries::new(core, Target::Slot(slot, Access::Write), deadline, "MULTI".to_owned());
        loop {
            let place = tries.next().await?;
            let encoded: EncodedPipeline = self.commands.iter().collect();
            let replies = Replies::Kept(Vec::with_capacity(self.commands.len()));
            let error = match place.client.run_until(encoded, replies, deadline).await {
                Ok(replies) => match redirection(&replies) {
                    Some(error) => error,
                    None => return results(replies),
                },
                Err(error) => error,
            };
            tries.failed(&place, error, repeatable).await?;
        }
    }

    /// Executes as [`execute`](Self::execute) does, and converts all replies together: to a tuple with a type for each, to a vector,
    /// or to `()` to check them only.
    ///
    /// # Errors
    /// Same errors as [`execute`](Self::execute). [`Error::InPipeline`] is the first error reply, or the first reply that does not
    /// convert, with the index and the name of its command; the other commands ran all the same. [`Error::Unexpected`] if the number
    /// of replies does not fit the type.
    ///
    /// # Cancel safety
    /// As [`execute`](Self::execute).
    pub async fn query<T: FromValue>(self) -> Result<T, Error> {
        // Behind MULTI.
        let names: Vec<_> = self.commands[1..].iter().map(Command::kept_name).collect();
        convert_replies(&names, self.execute().await?)
    }
}

/// The error with which a node sends the transaction elsewhere, if it did: then nothing of it has run.
fn redirection(replies: &[Reply]) -> Option<Error> {
    let Some(Err(exec)) = replies.last() else { return None };
    let refused = replies.iter().find_map(|reply| reply.as_ref().err()).unwrap_or(exec);
    match refused.kind() {
        ServerErrorKind::Ask
        | ServerErrorKind::Moved
        | ServerErrorKind::TryAgain
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::Loading
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly => {}
        _ => return None,
    }
    // If MULTI itself was refused, the commands behind it ran alone.
    let alone = replies.first().is_some_and(Result::is_err) && replies[1..].iter().any(Result::is_ok);
    (!alone).then(|| waited_out(refused.clone()).into())
}

/// ASK is waited out as TRYAGAIN is: behind ASKING the other node runs one command, and a transaction needs several.
fn waited_out(mut error: ServerError) -> ServerError {
    if error.kind() == ServerErrorKind::Ask {
        error.code = "TRYAGAIN".to_owned();
    }
    error
}

/// The slot of all keys of all commands; any slot if there are no keys.
fn one_slot<'a>(commands: impl IntoIterator<Item = &'a Command>) -> Result<u16, Error> {
    let mut slot = None;
    for command in commands {
        let Some(description) = find(command) else {
            let reason = "its keys are unknown, so its slot is";
            return Err(ClusterError::NoRoute { command: command.name(), reason }.into());
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
    Ok(slot.unwrap_or_else(|| fastrand::u16(..16_384)))
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
        assert!(one_slot(&commands(&["SET {a}1 x", "PING", "GET {a}2"])).is_ok());
        let error = one_slot(&commands(&["SET a x", "GET b"])).expect_err("two slots");
        assert!(matches!(error, Error::Cluster(ClusterError::CrossSlot { .. })), "{error:?}");
        let text = "GET was not sent: it needs keys of slots 15495 and 3300 together; give keys that are used together the same \
                    hash tag, as {user1}:name and {user1}:mail have";
        assert_eq!(error.to_string(), text);
        assert!(one_slot(&commands(&["JSON.GET a"])).is_err());
    }
}
