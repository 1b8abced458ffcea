//! [`Direct`]: values that a handler moves between this server and memory that its client has exposed.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::debug;
use valkey_rdma_resp::Reply;
use valkey_rdma_transport::raw::FailureStatus;
use valkey_rdma_transport::{
    CloseReason, Direct as Handle, DirectMemory, DirectSlice, RemoteRange, TransportError,
};

use crate::limits::Limits;
use crate::remote_ranges::RemoteRanges;

/// Moves values between this server and the memory that a client has exposed for the command that runs: from
/// [`Peer::direct`](crate::Peer::direct). What it has written is in the client's memory when the client reads the reply.
///
/// At most [`Limits::direct_limit`] bytes of a connection are in flight, and [`Limits::direct_limit_of_all`] bytes of all connections
/// together. Transfers wait for that.
///
/// # Cancel safety
/// If one of these futures is dropped before it is complete, the client's memory may still be in use. The client takes that memory
/// back when it reads the reply. Therefore, the connection ends without a reply when the handler returns.
///
/// # What a client can do wrong
/// Its device refuses an address, a key or a length that it has not exposed, and a transfer in the wrong direction. That ends the
/// connection. Reads say so ([`DirectError::Refused`]); of a write, the handler may not hear, because nothing waits for it.
///
/// ```
/// use bytes::Bytes;
/// use valkey_rdma_server::{
///     Command, DeviceKind, Handler, Peer, RemoteRanges, Reply, Server, TransportConfig,
/// };
///
/// /// `FILL rkey addr len [rkey addr len ...]` writes the same value each time, and replies its length.
/// struct Filler(Bytes);
///
/// impl Handler for Filler {
///     type Session = ();
///
///     fn session(&self, _peer: &Peer) {}
///
///     async fn call(&self, peer: &mut Peer, _session: &mut (), command: Command) -> Result<Reply, Reply> {
///         if !command.is("FILL") {
///             return Err(command.unknown());
///         }
///         let ranges = RemoteRanges::parse(command.args())?;
///         let mut direct = peer.direct().ok_or(Reply::error("NODIRECT not on this connection"))?;
///         direct.write_to(&ranges, self.0.clone()).await?;
///         Ok(Reply::Integer(self.0.len() as i64))
///     }
/// }
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// let filler = Filler(Bytes::from(vec![7; 1 << 20]));
/// let server = Server::builder(filler)
///     .direct(true)
///     .rdma(DeviceKind::Emulated, "127.0.0.1:0".parse().unwrap(), &TransportConfig::default())
///     .start()
///     .await?;
/// # server.shutdown().await;
/// # Ok::<_, valkey_rdma_server::BindError>(())
/// # }).unwrap();
/// ```
pub struct Direct<'a> {
    handle: Handle,
    transfers: &'a mut Transfers,
}

impl<'a> Direct<'a> {
    pub(crate) fn new(handle: Handle, transfers: &'a mut Transfers) -> Self {
        Self { handle, transfers }
    }

    /// Writes a value to the client's ranges, in order. Returns when all of it has started: the reply goes out behind it, without waiting
    /// for the acknowledgement of the client's device. The last piece and the reply leave together if the handler returns at once.
    ///
    /// 8 KiB or more that lie in a [`BufferPool`](valkey_rdma_transport::BufferPool) or a [`DirectMemory`] are sent from where they
    /// are. Other bytes are copied once.
    ///
    /// # Errors
    /// [`DirectError::TooSmall`] if the value does not fit: then nothing is written. [`DirectError::Transport`] may say that
    /// memory cannot be pinned: the connection goes on. The other ones end it.
    pub async fn write_to(&mut self, to: &RemoteRanges, value: impl Into<Bytes>) -> Result<(), DirectError> {
        let mut value = value.into();
        fits(value.len(), to)?;
        for range in to.pieces(value.len(), self.transfers.longest) {
            let piece = value.split_to(range.len as usize);
            let permit = self.transfers.permit(range.len).await?;
            self.transfers.unfinished = true;
            let started = match value.is_empty() {
                true => self.handle.start_last_write(range, piece, permit).await,
                false => self.handle.start_write(range, piece, permit).await,
            };
            self.transfers.unfinished = false;
            started?;
        }
        Ok(())
    }

    /// Reads a value of `len` bytes from the client's ranges. It passes through 1 MiB of registered memory of the connection, and is copied
    /// out of there.
    ///
    /// # Errors
    /// [`DirectError::TooSmall`] if the ranges are shorter, and [`DirectError::TooLong`] beyond
    /// [`Limits::max_argument_len`]: then nothing is read. [`DirectError::Transport`] may say that memory cannot
    /// be pinned, or that the two sides have agreed on no READs: the connection goes on. The other ones end it.
    pub async fn read_from(&mut self, from: &RemoteRanges, len: usize) -> Result<Bytes, DirectError> {
        fits(len, from)?;
        let limit = self.transfers.longest_value;
        if len > limit {
            return Err(DirectError::TooLong { len, limit });
        }
        let staging = self.transfers.staging();
        let mut value = Vec::new();
        let mut arrived: Option<DirectSlice> = None;
        for (index, range) in from.pieces(len, self.transfers.longest.min(HALF)).enumerate() {
            let start = index % 2 * HALF as usize;
            let copied = async {
                if let Some(slice) = arrived.take() {
                    append(&mut value, &slice, len);
                }
            };
            // The half before is copied while the next one arrives.
            let read = async {
                let half = staging.take(start..start + range.len as usize);
                self.read(range, half.map_err(|_| DirectError::Abandoned)?).await
            };
            let (read, ()) = tokio::join!(read, copied);
            arrived = Some(read?);
        }
        append(&mut value, arrived.as_deref().unwrap_or_default(), len);
        Ok(value.into())
    }

    /// Fills `into` from the client's ranges, without a copy on this machine.
    ///
    /// The whole [`DirectMemory`] is registered with each connection that reads into it. So use few of them, as large as needed.
    ///
    /// # Errors
    /// [`DirectError::TooSmall`] if the ranges are shorter than `into`: then nothing is read. [`DirectError::Transport`] may
    /// say that memory cannot be pinned, or that the two sides have agreed on no READs: the connection goes on. The other ones end it. With an
    /// error, `into` goes back to its memory when the device cannot write it any more.
    pub async fn read_into(
        &mut self,
        from: &RemoteRanges,
        into: DirectSlice,
    ) -> Result<DirectSlice, DirectError> {
        fits(into.len(), from)?;
        let mut rest = into;
        let mut filled: Option<DirectSlice> = None;
        for range in from.pieces(rest.len(), self.transfers.longest) {
            let later = rest.split_off(range.len as usize);
            let piece = self.read(range, rest).await?;
            match &mut filled {
                Some(filled) => filled.unsplit(piece),
                None => filled = Some(piece),
            }
            rest = later;
        }
        Ok(filled.unwrap_or(rest))
    }

    async fn read(&mut self, from: RemoteRange, into: DirectSlice) -> Result<DirectSlice, DirectError> {
        let _permit = self.transfers.permit(from.len).await?;
        self.transfers.unfinished = true;
        let read = self.handle.read(from, into).await;
        self.transfers.unfinished = false;
        Ok(read?)
    }
}

impl fmt::Debug for Direct<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

/// What the direct transfers of one connection need, from command to command.
pub(crate) struct Transfers {
    /// Bytes that all connections together may have in flight.
    free_of_all: Arc<Semaphore>,
    /// Bytes that this connection may have in flight.
    free: Arc<Semaphore>,
    /// Most bytes of one piece: while one is in flight, the next one starts.
    longest: u32,
    longest_value: usize,
    /// Where values arrive that are copied, once there were any.
    staging: Option<DirectMemory>,
    /// A transfer has begun. If the handler returns meanwhile, it has dropped it.
    pub(crate) unfinished: bool,
}

impl Transfers {
    /// `free_of_all`: see [`permits`].
    pub(crate) fn new(limits: &Limits, free_of_all: Arc<Semaphore>) -> Self {
        let most = limits.direct_limit.min(of_all(limits));
        Self {
            free_of_all,
            free: Arc::new(Semaphore::new(most)),
            // Ranges are not longer than that.
            longest: u32::try_from(most.div_ceil(2)).unwrap_or(u32::MAX),
            longest_value: limits.max_argument_len,
            staging: None,
            unfinished: false,
        }
    }

    fn staging(&mut self) -> DirectMemory {
        let allocate = || DirectMemory::allocate(2 * HALF as usize).expect("a length that is allowed");
        self.staging.get_or_insert_with(allocate).clone()
    }

    /// Waits until the next transfer may begin. Held while it is in flight.
    ///
    /// A client may name many short ranges: what is kept for each of them counts, too.
    async fn permit(&self, len: u32) -> Result<[OwnedSemaphorePermit; 2], DirectError> {
        if self.unfinished {
            return Err(DirectError::Abandoned);
        }
        let len = len.max(LEAST.min(self.longest));
        let acquire = async |free: &Arc<Semaphore>| {
            free.clone().acquire_many_owned(len).await.expect("it is never closed")
        };
        Ok([acquire(&self.free).await, acquire(&self.free_of_all).await])
    }
}

/// A transfer counts as this many bytes at least.
const LEAST: u32 = 1024;

/// Bytes that may be in flight on all connections of a server.
pub(crate) fn permits(limits: &Limits) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(of_all(limits)))
}

fn of_all(limits: &Limits) -> usize {
    limits.direct_limit_of_all.min(Semaphore::MAX_PERMITS)
}

/// A direct transfer that was not carried out. As a reply, it is an error with this text: with the code `NODIRECT` if the client should
/// repeat the command over the stream (spec clause D-7), otherwise with `ERR`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectError {
    /// The client has named too little memory.
    #[error("the value has {len} bytes, and the ranges have {room}")]
    TooSmall {
        /// Length of the value.
        len: usize,
        /// Length of all ranges.
        room: u64,
    },
    /// The client wants to store a value that is too long.
    #[error("a value of {len} bytes is longer than {limit}: see Limits::max_argument_len")]
    TooLong {
        /// Length of the value.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A transfer of the same command was dropped before it was complete.
    #[error("an earlier direct transfer of this command was dropped before it was complete")]
    Abandoned,
    /// The client's device has refused the access. The connection has ended.
    #[error(
        "the client's device has refused a direct transfer: the client has not exposed this memory for it, or has named a wrong key, \
         address or length"
    )]
    Refused,
    /// The connection has ended, or its memory cannot be registered.
    #[error("direct transfer failed: {0}")]
    Transport(#[source] TransportError),
}

impl From<TransportError> for DirectError {
    fn from(error: TransportError) -> Self {
        let error = match error {
            TransportError::Lost(CloseReason::Failed(FailureStatus::RemoteAccess)) => Self::Refused,
            error => Self::Transport(error),
        };
        // The client may never read the reply.
        debug!(%error, "a direct transfer has failed");
        error
    }
}

impl From<DirectError> for Reply {
    fn from(error: DirectError) -> Self {
        let code = if error.is_for_the_stream() { "NODIRECT" } else { "ERR" };
        Reply::error(format!("{code} {error}"))
    }
}

impl DirectError {
    /// Whether the command is right and the connection goes on: the stream has no need of what is missing here.
    fn is_for_the_stream(&self) -> bool {
        use TransportError::{DirectOff, Memory, ReadsOff};
        matches!(self, Self::Transport(DirectOff | Memory { .. } | ReadsOff))
    }
}

fn fits(len: usize, ranges: &RemoteRanges) -> Result<(), DirectError> {
    let room = ranges.room();
    if len as u64 > room { Err(DirectError::TooSmall { len, room }) } else { Ok(()) }
}

/// Appends what has arrived of a value of `len` bytes: at most [`HALF`]. Beyond that, memory is at most twice what has arrived, because
/// the announced length may be a lie. The last step is exact, so that a stored value wastes nothing.
fn append(value: &mut Vec<u8>, arrived: &[u8], len: usize) {
    if value.capacity() - value.len() < arrived.len() {
        value.reserve_exact((len - value.len()).min(value.len().max(HALF as usize)));
    }
    value.extend_from_slice(arrived);
}

/// Half of the memory that values arrive in which are copied.
const HALF: u32 = 512 << 10;

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[tokio::test]
    async fn a_transfer_waits_for_those_of_other_connections() {
        let limits = Limits::default().direct_limit(80).direct_limit_of_all(100);
        let free = permits(&limits);
        let connections = [0; 2].map(|_| Transfers::new(&limits, free.clone()));
        assert_eq!(connections[0].longest, 40);
        let first = connections[0].permit(80).await.expect("free");
        let mut second = pin!(connections[1].permit(21));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut cx).is_pending());
        drop(first);
        assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Ok(_))));
    }

    /// Of what is kept for each transfer, there may be far more than of its bytes.
    #[tokio::test]
    async fn short_ranges_count_for_what_is_kept_for_them() {
        let limits = Limits::default().direct_limit(10 * LEAST as usize);
        let transfers = Transfers::new(&limits, permits(&limits));
        let mut held = Vec::new();
        for _ in 0..10 {
            held.push(transfers.permit(1).await.expect("free"));
        }
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(transfers.permit(1)).poll(&mut cx).is_pending());
    }

    #[test]
    fn memory_for_a_value_grows_with_what_has_arrived() {
        let half = HALF as usize;
        let bytes = vec![1; 5 * half + 7];
        let mut value = Vec::new();
        for piece in bytes.chunks(half) {
            append(&mut value, piece, bytes.len());
            assert!(value.capacity() <= 2 * value.len());
        }
        assert!(value == bytes);
        assert_eq!(value.capacity(), bytes.len(), "nothing is wasted");
    }

    #[test]
    fn no_piece_is_longer_than_what_all_connections_may_have() {
        let limits = Limits::default().direct_limit_of_all(7);
        assert_eq!(Transfers::new(&limits, permits(&limits)).longest, 4);
    }
}
