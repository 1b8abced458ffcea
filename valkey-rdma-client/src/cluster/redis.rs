//! redis-rs's [`ConnectionLike`] for [`ClusterClient`]: `cmd()`, `pipe()`, `AsyncCommands` and `Script` run on the cluster.

use redis::aio::ConnectionLike;
use redis::{Cmd, RedisFuture, Value};

use super::client::Cluster;
use crate::redis::{send, send_all};

/// Pipelines are split by node, and atomic ones are transactions, whose keys must be in one slot.
impl ConnectionLike for Cluster {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(send(self, cmd))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(send_all(self, pipeline, offset, count))
    }

    fn get_db(&self) -> i64 {
        i64::from(self.core.topology.database())
    }
}
