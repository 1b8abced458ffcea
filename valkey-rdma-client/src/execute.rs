//! [`Execute`]: what a client of one server and a client of a cluster have in common.

use std::future::Future;

use valkey_rdma_resp::{FromValue, Value};

use crate::command::{Command, IntoCommand};
use crate::error::Error;
use crate::scan::position::ScanPosition;
use crate::server::Server;
use crate::transaction::Transaction;

/// A client of one server or of a cluster, for code that takes either.
///
/// ```no_run
/// use valkey_rdma_client::{Error, Execute};
///
/// async fn visits(client: &impl Execute) -> Result<i64, Error> {
///     client.query(["INCR", "visits"]).await
/// }
///
/// # async fn example(single: valkey_rdma_client::Client, cluster: valkey_rdma_client::ClusterClient) -> Result<(), Error> {
/// visits(&single).await?;
/// visits(&cluster).await?;
/// # Ok(())
/// # }
/// ```
///
/// The clients' own methods of the same name say more about errors and cancelling. Only the clients of this crate implement the
/// trait: later versions add methods to it.
pub trait Execute: sealed::Sealed + Clone + Send + Sync + 'static {
    /// Sends a command and returns its reply.
    fn execute(&self, command: Command) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Sends a command and converts its reply to a Rust type.
    fn query<T: FromValue>(
        &self,
        command: impl IntoCommand,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let command = command.into_command();
        let name = command.kept_name();
        async move { Ok(name.convert(self.execute(command).await?)?) }
    }

    /// Sends a command without keys to the server that has this key, such as SCRIPT LOAD before EVALSHA.
    fn execute_beside(
        &self,
        key: &[u8],
        command: Command,
    ) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Sends commands together. Each has its own result, in order.
    fn execute_all(
        &self,
        commands: Vec<Command>,
    ) -> impl Future<Output = Result<Vec<Result<Value, Error>>, Error>> + Send;

    /// Begins a transaction: commands that the server runs all or none.
    fn transaction(&self) -> Transaction;

    /// Sends a blocking command on a dedicated connection.
    fn execute_blocking(&self, command: Command) -> impl Future<Output = Result<Value, Error>> + Send;

    /// Reads a value into the caller's memory. Returns its length, or `None` if the key does not exist.
    fn read_into(
        &self,
        key: &[u8],
        buffer: &mut [u8],
    ) -> impl Future<Output = Result<Option<usize>, Error>> + Send;

    /// Closes all connections.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

pub(crate) mod sealed {
    use std::future::Future;

    use valkey_rdma_resp::Value;

    use crate::error::Error;
    use crate::scan::position::ScanPosition;

    /// Implemented by the clients of this crate.
    pub trait Sealed {
        /// Asks for the next batch of a scan within one key.
        fn scan_on(&self, position: &mut ScanPosition) -> impl Future<Output = Result<Value, Error>> + Send;
    }
}

impl sealed::Sealed for Server {
    async fn scan_on(&self, position: &mut ScanPosition) -> Result<Value, Error> {
        let (cursor, command_at) = position.split();
        self.execute(command_at(cursor.get())).await
    }
}

impl Execute for Server {
    async fn execute(&self, command: Command) -> Result<Value, Error> {
        self.execute(command).await
    }

    async fn execute_beside(&self, _key: &[u8], command: Command) -> Result<Value, Error> {
        self.execute(command).await
    }

    async fn execute_all(&self, commands: Vec<Command>) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut pipeline = self.pipeline();
        for command in &commands {
            pipeline.push(command);
        }
        let replies = pipeline.send().await?;
        Ok(replies.into_iter().map(|reply| reply.map_err(Error::from)).collect())
    }

    fn transaction(&self) -> Transaction {
        self.transaction()
    }

    async fn execute_blocking(&self, command: Command) -> Result<Value, Error> {
        self.block(command).await
    }

    async fn read_into(&self, key: &[u8], buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.get_into(key, buffer).await
    }

    async fn close(&self) {
        self.close().await;
    }
}
