//! [`Execute`] for [`ClusterClient`].

use bytes::Bytes;
use valkey_rdma_resp::Value;

use super::client::Cluster;
use super::route::Route;
use crate::command::Command;
use crate::error::Error;
use crate::execute::Execute;
use crate::transaction::Transaction;

impl Execute for Cluster {
    async fn execute(&self, command: Command) -> Result<Value, Error> {
        self.execute(command).await
    }

    async fn execute_beside(&self, key: &[u8], command: Command) -> Result<Value, Error> {
        self.execute_on(Route::Key(Bytes::copy_from_slice(key)), command).await
    }

    async fn execute_all(&self, commands: Vec<Command>) -> Result<Vec<Result<Value, Error>>, Error> {
        let mut pipeline = self.pipeline();
        for command in commands {
            pipeline.push(command);
        }
        pipeline.send().await
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
