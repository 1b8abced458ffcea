//! Direct transfers (spec, area D): values pass between the server and [`DirectMemory`](crate::DirectMemory) of the caller, without a copy at
//! the client. Where the two sides have not agreed on them, the same calls go over the stream.
//!
//! [`attempt`] carries a call out on the server's [bulk connection](crate::bulk), which [`opening`] makes; [`streamed`] by GET and SET.

mod attempt;
mod opening;
mod streamed;

use futures_util::FutureExt;
use valkey_rdma_transport::DirectSlice;

use crate::bulk::{Direction, NotDirect, Placed, Transfer, Way};
use crate::client::{Client, Deployment};
use crate::error::Error;
use crate::spans::Call;

impl Client {
    /// Reads a value into registered memory: where the server offers direct transfers, its adapter writes the bytes into the slices, one after
    /// the other. Elsewhere the value comes over the stream, and is copied once. [`Placed::way`] says which.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use valkey_rdma_client::DirectMemory;
    ///
    /// let memory = DirectMemory::allocate(64 << 20)?;
    /// let placed = client.get_direct("kv:17", [memory.take(0..32 << 20)?]).await?;
    /// match placed.len {
    ///     Some(len) => println!("{len} bytes, {}: {:?}...", placed.way, &placed.slices[0][..4.min(len)]),
    ///     None => println!("no such key"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The commands are BLOB.GET, with another prefix if the endpoint has one (`direct_prefix=`), and GET over the
    /// stream. All direct calls to a server share one connection of their own, made when the first call needs it: its
    /// [purpose](crate::Purpose::Bulk) is `bulk`. It registers the whole memory of a slice once for each kind of call, and keeps it
    /// registered for the next one: see [`DirectMemory`](crate::DirectMemory) for what that costs, and what the server is trusted with. In a cluster, each
    /// node has such a connection.
    ///
    /// Over TCP and over TLS, nothing is asked for. A
    /// server that does not offer direct transfers is asked again after the shared connection was lost.
    ///
    /// # Errors
    /// [`Error::Server`] if the value does not fit, and nothing is written then; over the stream that is [`Error::Unexpected`].
    /// [`Error::Connect`], [`Error::Server`], [`Error::Lost`] and [`Error::TimedOut`] as for any command; over the stream, the time
    /// limit holds for the connect, and then for each piece, as for [`stream_reply`](Client::stream_reply). [`Error::Unexpected`] if the reply makes no sense, which
    /// ends the connection.
    ///
    /// With an error, the slices go back to their memory when the server can no longer reach them: at once after an error reply. Without a
    /// reply, that is when the connection has ended, so
    /// [`take_when_free`](crate::DirectMemory::take_when_free) is the way to take them again. Therefore a call whose
    /// [time](crate::Config::command_timeout) is up ends the connection, and with it the other direct calls in flight. The server carries calls
    /// out in order: the time of one begins again when the reply to the one before it has come.
    ///
    /// # Cancel safety
    /// Dropping the future keeps the connection. The slices go back to their memory when the reply has come, or at the call's time limit, by
    /// the end of the connection. Over the stream, they go back at once, and the connection closes.
    pub async fn get_direct(
        &self,
        key: impl AsRef<[u8]>,
        slices: impl IntoIterator<Item = DirectSlice>,
    ) -> Result<Placed, Error> {
        self.transfer(Transfer::new(Direction::Get, key.as_ref(), slices)).await
    }

    /// Stores the bytes of the slices, one after the other, as the value of a key: where the server offers direct transfers, its adapter reads
    /// them where they lie. Elsewhere they go over the stream, and are copied once. [`Placed::way`] says which.
    ///
    /// ```no_run
    /// # async fn example(client: valkey_rdma_client::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use valkey_rdma_client::DirectMemory;
    ///
    /// let memory = DirectMemory::allocate(64 << 20)?;
    /// let mut slice = memory.take(0..32 << 20)?;
    /// slice.fill(7);
    /// let placed = client.set_direct("kv:17", [slice]).await?;
    /// println!("stored, {}", placed.way);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The commands are BLOB.SET and SET over the stream. Everything else is as for
    /// [`get_direct`](Self::get_direct).
    ///
    /// # Errors
    /// Same errors as [`get_direct`](Self::get_direct). After [`Error::Lost`] and [`Error::TimedOut`], [`Error::fate`] says whether the
    /// value may have been stored.
    ///
    /// # Cancel safety
    /// As [`get_direct`](Self::get_direct). The value may or may not be stored.
    pub async fn set_direct(
        &self,
        key: impl AsRef<[u8]>,
        slices: impl IntoIterator<Item = DirectSlice>,
    ) -> Result<Placed, Error> {
        self.transfer(Transfer::new(Direction::Set, key.as_ref(), slices)).await
    }

    /// Same as [`get_direct`](Self::get_direct), but nothing goes over the stream: it makes no other connection for that. Where the value
    /// cannot be placed directly, the reason and the slices are returned, for a caller with a way of its own.
    ///
    /// # Errors
    /// Same errors as [`get_direct`](Self::get_direct).
    ///
    /// # Cancel safety
    /// As [`get_direct`](Self::get_direct).
    pub async fn try_get_direct(
        &self,
        key: impl AsRef<[u8]>,
        slices: impl IntoIterator<Item = DirectSlice>,
    ) -> Result<Result<Placed, (NotDirect, Vec<DirectSlice>)>, Error> {
        self.transfer_directly(Transfer::new(Direction::Get, key.as_ref(), slices)).await
    }

    /// Same as [`set_direct`](Self::set_direct), but nothing goes over the stream, as with [`try_get_direct`](Self::try_get_direct).
    ///
    /// # Errors
    /// Same errors as [`set_direct`](Self::set_direct).
    ///
    /// # Cancel safety
    /// As [`set_direct`](Self::set_direct).
    pub async fn try_set_direct(
        &self,
        key: impl AsRef<[u8]>,
        slices: impl IntoIterator<Item = DirectSlice>,
    ) -> Result<Result<Placed, (NotDirect, Vec<DirectSlice>)>, Error> {
        self.transfer_directly(Transfer::new(Direction::Set, key.as_ref(), slices)).await
    }

    async fn transfer_directly(
        &self,
        transfer: Transfer,
    ) -> Result<Result<Placed, (NotDirect, Vec<DirectSlice>)>, Error> {
        let placed = self.transfer(Transfer { may_stream: false, ..transfer }).await?;
        Ok(match placed.way {
            Way::Stream(reason) => Err((reason, placed.slices)),
            Way::Direct => Ok(placed),
        })
    }

    async fn transfer(&self, transfer: Transfer) -> Result<Placed, Error> {
        let call = Call::times(self.endpoint(), transfer.direction.verb(), 1);
        let transfer = match &self.deployment {
            Deployment::Server(server) => server.transfer(transfer).boxed(),
            Deployment::Cluster(cluster) => cluster.transfer(transfer).boxed(),
        };
        call.run(transfer).await.inspect(|placed| call.moved(placed.way.name()))
    }
}
