//! Connections beside the shared one: for the program, and for a command that blocks.

use futures_util::FutureExt;
use valkey_rdma_resp::{FromValue, Value};

use super::{Client, Deployment};
use crate::command::IntoCommand;
use crate::dedicated::Dedicated;
use crate::error::{ClusterError, Error};
use crate::spans::Call;
use crate::stats::Purpose;

impl Client {
    /// Opens a dedicated connection, to the same server and with the same login as this client. While the client reconnects, this
    /// waits for the server and its data as commands do, up to [`Config::offline_timeout`](crate::Config::offline_timeout).
    ///
    /// # Errors
    /// [`Error::Connect`], as for [`connect`](Self::connect). [`Error::Lost`] if the client was closed, or its runtime has shut down.
    /// [`Error::Cluster`] in a cluster, where [`Cluster::dedicated`](crate::cluster::Cluster::dedicated) names the node.
    ///
    /// # Cancel safety
    /// As for [`connect`](Self::connect).
    pub async fn dedicated(&self) -> Result<Dedicated, Error> {
        let Deployment::Server(server) = &self.deployment else {
            let reason = "such a connection has one node; name it with Cluster::dedicated";
            return Err(ClusterError::NoRoute {
                command: "a request for a dedicated connection".to_owned(),
                reason,
            }
            .into());
        };
        let mut connection = server.checkout(Purpose::Dedicated).await?;
        connection.set_reusable(false);
        Ok(connection)
    }

    /// Sends a blocking command (BLPOP, BLMOVE, BZPOPMIN, XREAD BLOCK) on a dedicated connection and waits for its reply.
    /// The connection is kept for later calls: see the [rule](Client#connections-beside-the-shared-one).
    ///
    /// The only time limit is the command's own: an argument, as of BLPOP, or [`Command::timeout`](crate::Command::timeout). The argument loses nothing. A server that is frozen ends the call:
    /// [`Config::keepalive_timeout`](crate::Config::keepalive_timeout).
    ///
    /// In a cluster, the command goes to the node of its keys, and to their next node if the slot moves while it blocks. A timeout among its arguments begins
    /// again there; [`Command::timeout`](crate::Command::timeout) is for all tries together. XREAD with the id `$` blocks once: if its slot moves
    /// (MOVED, or TRYAGAIN with several streams) or its connection is lost, it fails, because entries may have come meanwhile. Go on from the last id
    /// that you have.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), valkey_rdma_client::Error> {
    /// use valkey_rdma_client::cmd;
    ///
    /// let job: Option<(String, String)> = client.blocking_query(cmd!["BLPOP", "jobs", 0]).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Connect`] if no connection could be made, [`Error::Server`] and [`Error::Lost`] as for any command,
    /// [`Error::Refused`] for a command that would leave the connection changed, and for WAIT and WAITAOF, which count the
    /// writes of their own connection only: use [`dedicated`](Self::dedicated). In a cluster, [`Error::Cluster`] if its keys are in
    /// different slots, or it has none.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, which ends the wait on the server too. An element that the server
    /// had already popped is lost, also after [`Command::timeout`](crate::Command::timeout); use BLMOVE where that matters.
    pub async fn blocking_command(&self, command: impl IntoCommand) -> Result<Value, Error> {
        let command = command.into_command();
        let call = Call::command(self.endpoint(), &command);
        match &self.deployment {
            Deployment::Server(server) => call.run(server.block(command)).await,
            Deployment::Cluster(cluster) => call.run(cluster.block(command).boxed()).await,
        }
    }

    /// Sends a blocking command as [`blocking_command`](Self::blocking_command) does, and converts its reply.
    ///
    /// # Errors
    /// Same errors as [`blocking_command`](Self::blocking_command), and [`Error::Unexpected`] if the reply does not convert.
    ///
    /// # Cancel safety
    /// As [`blocking_command`](Self::blocking_command).
    pub async fn blocking_query<T: FromValue>(&self, command: impl IntoCommand) -> Result<T, Error> {
        let command = command.into_command();
        let name = command.kept_name();
        Ok(name.convert(self.blocking_command(command).await?)?)
    }
}
