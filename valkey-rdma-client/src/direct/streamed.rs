//! The same calls over the stream: GET and SET on a connection of their own.

use std::future::Future;
use std::time::Duration;

use tokio::time::timeout_at;
use valkey_rdma_resp::UnexpectedReply;

use crate::bulk::{Direction, NotDirect, Placed, Transfer, Way};
use crate::command::Command;
use crate::dedicated::Dedicated;
use crate::error::Error;
use crate::link::Deadline;
use crate::server::Server;

impl Transfer {
    /// Carries it out on a connection that `checkout` provides, until the deadline. Then its time limit applies to each piece, as for any
    /// streamed value: a large one may take longer, as long as it goes on. No device knows the slices, so they come back with every error.
    ///
    /// If the caller has a way of its own, this neither connects nor moves anything.
    pub(crate) async fn over_stream(
        mut self,
        server: &Server,
        checkout: impl Future<Output = Result<Dedicated, Error>>,
        deadline: Option<Deadline>,
        reason: NotDirect,
    ) -> Result<Placed, (Error, Self)> {
        if !self.may_stream {
            return Ok(self.placed(None, Way::Stream(reason), None));
        }
        let connection = match deadline {
            None => checkout.await,
            Some(deadline) => {
                let checkout = server.runtime().timed(|| timeout_at(deadline.at, checkout));
                checkout.await.unwrap_or_else(|_| Err(server.late(deadline)))
            }
        };
        let limit = deadline.map(|deadline| deadline.limit);
        let moved = match (connection, self.direction) {
            (Err(error), _) => Err(error),
            (Ok(connection), Direction::Get) => self.read_from(connection, limit).await,
            (Ok(connection), Direction::Set) => self.write_to(connection, limit).await,
        };
        match moved {
            Ok(len) => Ok(self.placed(len, Way::Stream(reason), None)),
            Err(error) => Err((error, self)),
        }
    }

    async fn read_from(
        &mut self,
        connection: Dedicated,
        limit: Option<Duration>,
    ) -> Result<Option<usize>, Error> {
        let command = Command::new("GET").arg(&self.key);
        let Some(mut reader) = connection.stream_reply(command, limit).await? else { return Ok(None) };
        let len = reader.len();
        if len > self.room() {
            let got = format!("a string of {len} bytes for slices of {}", self.room());
            return Err(UnexpectedReply::new("a value that fits", got).in_reply_to("GET").into());
        }
        for slice in &mut self.slices {
            let mut filled = 0;
            while filled < slice.len() && reader.remaining() > 0 {
                filled += reader.read(&mut slice[filled..]).await?;
            }
        }
        reader.finish().await?;
        Ok(Some(len))
    }

    async fn write_to(&self, connection: Dedicated, limit: Option<Duration>) -> Result<Option<usize>, Error> {
        let len = self.room();
        let command = Command::new("SET").arg(&self.key);
        let mut writer = connection.stream_argument(command, len, limit).await?;
        for piece in self.slices.iter().flat_map(|slice| slice.chunks(PIECE)) {
            writer.write(piece).await?;
        }
        let reply = writer.finish().await?;
        if !reply.is_ok() {
            return Err(UnexpectedReply::new("OK", reply.describe()).in_reply_to("SET").into());
        }
        Ok(Some(len))
    }
}

/// What the server has to take within the time limit.
const PIECE: usize = 1 << 20;
