//! redis-rs's [`ConnectionLike`] for [`ClusterClient`]: `cmd()`, `pipe()`, `AsyncCommands` and `Script` run on the cluster.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisFuture, Value as RedisValue};

use super::client::ClusterClient;
use crate::error::Error;
use crate::redis::{from_redis, result_to_redis, to_redis};
use crate::resp::{CommandClass, Reply};
use valkey_rdma_resp::Value;

/// Pipelines are split by node, and atomic ones are transactions, whose keys must be in one slot.
impl ConnectionLike for ClusterClient {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, RedisValue> {
        Box::pin(async move {
            let command = from_redis(cmd);
            let reply = match command.class() {
                CommandClass::Blocks => self.block(command).await,
                _ => self.execute(command).await,
            };
            result_to_redis(reply)
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<RedisValue>> {
        Box::pin(async move {
            if pipeline.is_transaction() {
                let mut ours = self.transaction();
                for cmd in pipeline.cmd_iter() {
                    ours.push(from_redis(cmd));
                }
                // redis-rs asks for the reply of EXEC alone: an array of all.
                let replies = match ours.execute().await {
                    Ok(replies) => replies.into_iter().map(value).collect(),
                    Err(Error::Aborted(crate::AbortedTransaction::Watched)) => {
                        return Ok(vec![RedisValue::Nil]);
                    }
                    Err(error) => return Err(error.into()),
                };
                return Ok(vec![to_redis(Value::Array(replies))?]);
            }
            let mut ours = self.pipeline();
            for cmd in pipeline.cmd_iter() {
                ours.push(from_redis(cmd));
            }
            let replies = ours.send().await?.into_iter().skip(offset).take(count);
            replies.map(result_to_redis).collect()
        })
    }

    fn get_db(&self) -> i64 {
        i64::from(self.core.topology.database())
    }
}

fn value(reply: Reply) -> Value {
    reply.unwrap_or_else(Value::Error)
}
