//! [`Transaction`]: MULTI to EXEC, and [`Watch`] before it.

use futures_util::FutureExt;
use valkey_rdma_resp::{FromValue, Value};

use crate::client::{Client, Deployment};
use crate::cluster::Cluster;
use crate::command::{Command, CommandClass, IntoCommand, RefusedCommand, Reply, ToArg};
use crate::dedicated::Dedicated;
use crate::error::{AbortedTransaction, Error};
use crate::link::Deadline;
use crate::pipeline::convert_replies;
use crate::server::Server;
use crate::spans::{Batch, Call};
use crate::stats::{ConnectionInfo, Purpose};

/// Commands that the server runs all or none, with no command of another client in between: [`Client::transaction`],
/// [`Watch::transaction`]. In a cluster, their keys must be in one slot.
///
/// Within it, a blocking command such as BLPOP returns at once. A transaction with one, or with WAIT, has a connection to itself all the
/// same: if the server refuses MULTI, that command blocks the connection.
///
/// ```no_run
/// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
/// use valkey_rdma_client::cmd;
///
/// let transfer = client
///     .transaction()
///     .command(cmd!["DECRBY", "account:1", 10])
///     .command(cmd!["INCRBY", "account:2", 10]);
/// let (first, second): (i64, i64) = transfer.query().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a transaction does nothing until executed"]
pub struct Transaction {
    place: Place,
    commands: Vec<Command>,
}

/// Where a transaction runs.
#[derive(Debug)]
enum Place {
    /// On the shared connection, in one piece. With a command that may block: on a connection to itself.
    Server(Server),
    /// On the node of the keys.
    Cluster(Cluster),
    /// On the connection of the WATCH.
    Watching(Server, Box<Dedicated>),
}

impl Client {
    /// Begins a transaction. It is sent in one piece, so it may share the connection, unless [one of its commands may block](Transaction). In a
    /// cluster, its keys must be in one slot. If one of these keys is on the move to another node, the transaction waits until the slot has
    /// arrived: ASK cannot be followed within MULTI.
    pub fn transaction(&self) -> Transaction {
        Transaction::new(match &self.deployment {
            Deployment::Server(server) => Place::Server(server.clone()),
            Deployment::Cluster(cluster) => Place::Cluster(cluster.clone()),
        })
    }

    /// Watches keys on a dedicated connection. A transaction begun from the [`Watch`] is not executed if one of the
    /// keys changes before. After the transaction, or [`Watch::unwatch`], the connection is kept for later calls: see the
    /// [rule](Client#connections-beside-the-shared-one).
    ///
    /// In a cluster, the keys must be in one slot. If that moves before the transaction, the transaction fails with MOVED, and its commands
    /// have not run. If a key is on the move already, this waits until its slot has arrived.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::{AbortedTransaction, Error, cmd};
    ///
    /// loop {
    ///     let mut watch = client.watch(["stock"]).await?;
    ///     let stock: i64 = watch.query(["GET", "stock"]).await?;
    ///     match watch.transaction().command(cmd!["SET", "stock", stock / 2]).query().await {
    ///         Err(Error::Aborted(AbortedTransaction::Watched)) => {} // another client was faster
    ///         other => break other,
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`] if no connection could be made, and as for any command.
    ///
    /// # Cancel safety
    /// Dropping the future closes the dedicated connection.
    pub async fn watch(&self, keys: impl IntoIterator<Item = impl ToArg>) -> Result<Watch, Error> {
        let command = keys.into_iter().fold(Command::new("WATCH"), Command::arg);
        match &self.deployment {
            Deployment::Server(server) => server.watch(command).await,
            Deployment::Cluster(cluster) => cluster.watch(command).boxed().await,
        }
    }
}

impl Server {
    /// Sends WATCH on a dedicated connection.
    async fn watch(&self, command: Command) -> Result<Watch, Error> {
        let deadline = self.config().limit(&command).and_then(Deadline::after);
        let (connection, deadline) = self.checkout_until(Purpose::Call, deadline).await?;
        Watch::begin(self, connection, command, deadline).await
    }

    /// Sends a transaction, from MULTI to EXEC: on a connection of its own if one of its commands may block. Returns the replies to all of it.
    async fn run_transaction(&self, commands: &[Command]) -> Result<Vec<Reply>, Error> {
        if !commands.iter().any(Command::blocks) {
            return self.run_pipeline(commands.iter().collect()).await;
        }
        let deadline = self.config().limit_together(commands).and_then(Deadline::after);
        let (mut connection, deadline) = self.checkout_until(Purpose::Call, deadline).await?;
        connection.exchange_all(commands, deadline).await
    }
}

/// A connection that watches keys: [`Client::watch`]. Dropping it ends the watch, and closes the connection; after
/// [`unwatch`](Self::unwatch) or a transaction it is used again.
#[derive(Debug)]
pub struct Watch {
    client: Server,
    connection: Dedicated,
}

impl Watch {
    /// Sends WATCH on a connection of the client.
    pub(crate) async fn begin(
        client: &Server,
        mut connection: Dedicated,
        watch: Command,
        deadline: Option<Deadline>,
    ) -> Result<Self, Error> {
        connection.set_reusable(false);
        let call = Call::command(client.endpoint(), &watch);
        call.run(connection.exchange_until(watch, deadline)).await?;
        Ok(Self { client: client.clone(), connection })
    }

    /// Runs a command at once, outside the transaction: reads what the transaction will depend on.
    ///
    /// # Errors
    /// As for any command; [`Error::Refused`] for MULTI, which is what [`transaction`](Self::transaction) is for.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, and the watch is over.
    pub async fn command(&mut self, command: impl IntoCommand) -> Result<Value, Error> {
        let command = command.into_command();
        check(&command)?;
        self.connection.execute(self.client.limited(command)).await
    }

    /// Runs a command as [`command`](Self::command) does, and converts its reply.
    ///
    /// # Errors
    /// Same errors as [`command`](Self::command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// As [`command`](Self::command).
    pub async fn query<T: FromValue>(&mut self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.command(command).await?)?)
    }

    /// Watches more keys. In a cluster they must be in the slot of the first ones.
    ///
    /// # Errors
    /// As for any command.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, and the watch is over.
    pub async fn watch(&mut self, keys: impl IntoIterator<Item = impl ToArg>) -> Result<(), Error> {
        let command = keys.into_iter().fold(Command::new("WATCH"), Command::arg);
        self.connection.execute(self.client.limited(command)).await.map(drop)
    }

    /// Ends the watch without a transaction (UNWATCH). The connection stays, for the next one; dropping the watch closes it.
    ///
    /// # Errors
    /// As for any command.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, and the watch is over.
    pub async fn unwatch(mut self) -> Result<(), Error> {
        self.connection.execute(self.client.limited(Command::new("UNWATCH"))).await?;
        self.connection.set_reusable(true);
        Ok(())
    }

    /// Describes the connection.
    #[must_use]
    pub fn info(&self) -> &ConnectionInfo {
        self.connection.info()
    }

    /// Begins the transaction that depends on the watched keys.
    pub fn transaction(self) -> Transaction {
        Transaction::new(Place::Watching(self.client, Box::new(self.connection)))
    }
}

impl Transaction {
    fn new(place: Place) -> Self {
        Self { place, commands: vec![Command::new("MULTI")] }
    }

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

    /// Executes the commands and returns their replies, in order. An error reply is an element of the result: the
    /// other commands ran.
    ///
    /// # Errors
    /// [`Error::Aborted`] if nothing was executed because a watched key changed or the server refused a command
    /// beforehand. It also reports, with a text of its own, that MULTI was refused and the commands ran without it.
    /// [`Error::Lost`] and [`Error::TimedOut`] if no reply came. [`Error::Refused`] for commands that are not valid in
    /// a transaction, and [`ClusterError::CrossSlot`](crate::ClusterError::CrossSlot) for keys in different slots of a cluster;
    /// then nothing was sent.
    ///
    /// # Cancel safety
    /// Dropping the future discards the replies. The transaction runs as a whole or not at all.
    pub async fn execute(mut self) -> Result<Vec<Reply>, Error> {
        for command in &self.commands[1..] {
            check(command)?;
        }
        let endpoint = match &self.place {
            Place::Server(client) | Place::Watching(client, _) => client.endpoint(),
            Place::Cluster(cluster) => cluster.endpoint(),
        };
        let call = Call::batch(endpoint, Batch::Transaction, &self.commands[1..]);
        self.commands.push(Command::new("EXEC"));
        let execute = async {
            let replies = match self.place {
                Place::Server(client) => client.run_transaction(&self.commands).await?,
                Place::Cluster(cluster) => cluster.run_transaction(&self.commands).boxed().await?,
                Place::Watching(client, mut connection) => {
                    let deadline = client.config().limit_together(&self.commands).and_then(Deadline::after);
                    let replies = connection.exchange_all(&self.commands, deadline).await?;
                    // EXEC ends every watch, executed or not.
                    connection.set_reusable(true);
                    replies
                }
            };
            results(replies)
        };
        call.run_all(execute).await
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

/// The result of EXEC, given all replies from MULTI on.
fn results(mut replies: Vec<Reply>) -> Result<Vec<Reply>, Error> {
    match replies.pop() {
        Some(Ok(Value::Array(items))) => Ok(items
            .into_iter()
            .map(|item| match item {
                Value::Error(error) => Err(error),
                value => Ok(value),
            })
            .collect()),
        Some(Ok(Value::Nil)) => Err(AbortedTransaction::Watched.into()),
        Some(Ok(other)) => Ok(other.convert::<Vec<Value>>()?.into_iter().map(Ok).collect()),
        Some(Err(error)) => {
            // The first is MULTI's own.
            let alone = replies.iter().skip(1).any(Result::is_ok);
            let refused = replies.into_iter().enumerate().find_map(|(at, reply)| Some((at, reply.err()?)));
            Err(match refused {
                Some((0, error)) if alone => AbortedTransaction::NotBegun { error }.into(),
                Some((at, error)) if at > 0 => AbortedTransaction::Refused { index: at - 1, error }.into(),
                Some((_, error)) => error.into(),
                None => error.into(),
            })
        }
        None => Ok(Vec::new()),
    }
}

fn check(command: &Command) -> Result<(), RefusedCommand> {
    if let Some(refusal) = command.refusal_among_others() {
        return Err(refusal);
    }
    match command.class() {
        CommandClass::Multi | CommandClass::EndMulti => {
            Err(RefusedCommand { command: command.name(), reason: NESTED })
        }
        _ => Ok(()),
    }
}

const NESTED: &str = "Transaction sends MULTI and EXEC itself; to discard one, drop it";

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use valkey_rdma_resp::ServerError;

    fn refusal(text: &str) -> Reply {
        Err(ServerError::from_reply(text.as_bytes()))
    }

    fn status(text: &'static str) -> Reply {
        Ok(Value::Simple(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn a_refused_multi_tells_that_the_commands_ran_by_themselves() {
        let no = || refusal("NOPERM no permissions to run the 'multi' command");
        let without = || refusal("ERR EXEC without MULTI");
        let error = results(vec![no(), status("OK"), without()]).expect_err("not begun");
        assert!(matches!(error, Error::Aborted(AbortedTransaction::NotBegun { .. })), "{error:?}");
        assert!(error.may_have_run());
        assert!(error.to_string().contains("ran without a transaction: NOPERM"), "{error}");

        let error = results(vec![no(), refusal("LOADING wait"), without()]).expect_err("all refused");
        assert!(error.server().is_some_and(|error| error.code == "NOPERM"), "{error:?}");
    }

    #[test]
    fn an_aborted_transaction_has_not_run() {
        let aborted = vec![status("OK"), refusal("ERR no such command"), refusal("EXECABORT discarded")];
        for replies in [aborted, vec![status("OK"), status("QUEUED"), Ok(Value::Nil)]] {
            let error = results(replies).expect_err("aborted");
            assert!(matches!(error, Error::Aborted(_)) && !error.may_have_run(), "{error:?}");
        }
    }
}
