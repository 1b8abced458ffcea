//! redis-rs's blocking connections. Tasks cannot share one: give each its own, with `--tasks-per-connection 1`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::{Cmd, Connection as RedisConnection, ConnectionLike};
use valkey_rdma_benchmark::{Connection, Failure, Library};
use valkey_rdma_client::{Endpoint, Value};

use crate::redis_rs::{client, converted, pipeline, value};

/// The time limit of calls, as in our blocking client.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct RedisRsBlocking;

impl Library for RedisRsBlocking {
    type Connection = Blocking;

    fn name(&self) -> &'static str {
        "redis-rs-blocking"
    }

    async fn connect(&self, server: &Endpoint) -> Result<Blocking, String> {
        let connection = client(server).and_then(|client| {
            let connection = client.get_connection()?;
            connection.set_read_timeout(Some(LIMIT))?;
            Ok(connection)
        });
        Ok(Blocking(Arc::new(Mutex::new(connection.map_err(|error| error.to_string())?))))
    }
}

#[derive(Clone)]
pub(crate) struct Blocking(Arc<Mutex<RedisConnection>>);

impl Blocking {
    fn with<T>(
        &self,
        call: impl FnOnce(&mut RedisConnection) -> redis::RedisResult<T>,
    ) -> Result<T, Failure> {
        let mut connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        call(&mut connection).map_err(|error| Failure::Lost(error.to_string()))
    }
}

impl Connection for Blocking {
    type Command = Cmd;

    const BLOCKS: bool = true;

    fn command(name: &[u8]) -> Cmd {
        let mut command = Cmd::new();
        command.arg(name);
        command
    }

    fn push(command: &mut Cmd, argument: &[u8]) {
        command.arg(argument);
    }

    async fn call(&mut self, command: Cmd) -> Result<Value, Failure> {
        self.with(|connection| value(connection.req_command(&command)))
    }

    async fn call_all(
        &mut self,
        commands: impl Iterator<Item = Cmd> + Send,
        each: impl FnMut(Result<Value, Failure>) + Send,
    ) -> Result<(), Failure> {
        let pipeline = pipeline(commands);
        let packed = pipeline.get_packed_pipeline();
        let replies = self.with(|connection| connection.req_packed_commands(&packed, 0, pipeline.len()))?;
        replies.into_iter().map(|reply| Ok(converted(reply))).for_each(each);
        Ok(())
    }

    fn is_closed(&self) -> bool {
        !self.0.lock().unwrap_or_else(PoisonError::into_inner).is_open()
    }
}
