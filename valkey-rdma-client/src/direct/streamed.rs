//! The same calls over the stream: GET and SET on a connection of their own.

use std::time::Duration;

use valkey_rdma_resp::UnexpectedReply;

use crate::bulk::{Direction, NotDirect, Placed, Transfer, Way};
use crate::command::Command;
use crate::dedicated::Dedicated;
use crate::error::Error;

impl Transfer {
    /// Carries it out on this connection. `limit` applies to each piece. No device knows the slices, so they come back with every error.
    pub(crate) async fn over_stream(
        mut self,
        connection: Dedicated,
        limit: Option<Duration>,
        reason: NotDirect,
    ) -> Result<Placed, (Error, Self)> {
        let moved = match self.direction {
            Direction::Get => self.read_from(connection, limit).await,
            Direction::Set => self.write_to(connection, limit).await,
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
        for slice in &self.slices {
            writer.write(slice).await?;
        }
        writer.finish().await?;
        Ok(Some(len))
    }
}
