//! Direct transfers (spec, area D): a client exposes memory, a server writes into it and reads out of it.

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;
use valkey_rdma_proto::work::{Region, Slice};
use valkey_rdma_proto::{Direction, Transfer};

use super::direct_io::{Guard, Held, ReadTarget, STAGED_PIECE};
use super::state::{ConnectionState, SharedConnection};
use super::transfer::SEND_IN_PLACE_FROM;
use super::{Monitor, Stream};
use crate::device::Access;
use crate::direct::{Cut, DirectMemory, DirectSlice, Exposed, RemoteRange};
use crate::error::TransportError;
use crate::send_memory::PinnedSlice;

impl Stream {
    /// True if this is the client's side, and the two sides have agreed on [`FeatureSet::DIRECT`](crate::FeatureSet::DIRECT).
    #[must_use]
    pub fn may_expose(&self) -> bool {
        self.shared.with(|connection| connection.core.may_expose())
    }

    /// Registers memory before some of it is [exposed](Self::expose) with this access. A caller that goes another way where memory cannot
    /// be pinned learns that while it still has the slices.
    ///
    /// # Errors
    /// Same errors as [`expose`](Self::expose).
    pub fn register(&self, memory: &DirectMemory, access: Access) -> Result<(), TransportError> {
        self.shared.with(|connection| connection.register(memory, access)).map(drop)
    }

    /// Exposes memory of a client to its server, which may then use it in the way that `access` allows: to write a value into it,
    /// to read one out of it, or both. Name the [range](Exposed::remote) in a command.
    ///
    /// The whole [`DirectMemory`](crate::DirectMemory) is registered when a connection first exposes some of it with this access.
    /// That blocks the thread, for some tenths of a second for a GiB.
    ///
    /// # Errors
    /// [`TransportError::DirectOff`] if the two sides have not agreed on [`FeatureSet::DIRECT`](crate::FeatureSet::DIRECT), or this
    /// is the server's side; [`TransportError::Memory`] if the memory cannot be pinned, [`TransportError::Device`] if the device
    /// refuses; the error of the end if the connection has ended. The slice goes back to its memory.
    pub fn expose(&self, slice: DirectSlice, access: Access) -> Result<Exposed, TransportError> {
        self.shared.with(|connection| {
            let cut = connection.device.direct.cut.get_or_insert_with(|| self.shared.cut_later()).clone();
            connection.expose(slice, access, cut)
        })
    }

    /// A handle that starts direct transfers. `None` unless this is the server's side, and its client has chosen
    /// [`FeatureSet::DIRECT`](crate::FeatureSet::DIRECT). That is known once bytes of the client have been read, and when
    /// [`agreed`](Self::agreed) has returned.
    #[must_use]
    pub fn direct(&self) -> Option<Direct> {
        self.monitor().direct()
    }
}

impl Monitor {
    /// A handle that starts direct transfers: see [`Stream::direct`].
    #[must_use]
    pub fn direct(&self) -> Option<Direct> {
        let may = self.0.with(|connection| connection.core.may_transfer());
        may.then(|| Direct(self.0.clone()))
    }
}

/// Moves bytes between memory of this server and memory that its client has [exposed](Stream::expose). Cheap to clone; may outlive
/// the [`Stream`].
///
/// What is written to the stream after a transfer has started arrives after its bytes: start the transfers of a command, then write
/// its reply. A range may be used until the reply to the command that named it is written, and not later.
///
/// Transfers of one connection are carried out in the order in which they start. Those that have started when the stream shuts
/// down are completed first, within [`Config::close_timeout`](crate::Config::close_timeout).
///
/// The owner of a [driven](Stream::driven) stream keeps a read pending while it waits for a transfer, as for anything else: otherwise
/// nothing drives the connection.
///
/// If the client's device refuses an access, because of a wrong key, address, length or right, the connection ends:
/// [`CloseReason::Failed`](crate::CloseReason::Failed) with `RemoteAccess`.
///
/// ```
/// use tokio::io::{AsyncReadExt, AsyncWriteExt};
/// use valkey_rdma_transport::raw::Access;
/// use valkey_rdma_transport::{Config, DeviceKind, DirectMemory, FeatureSet, Listener, RemoteRange, Stream};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::default().offers(FeatureSet::DIRECT).wants(FeatureSet::DIRECT);
/// let mut listener = Listener::bind(DeviceKind::Emulated, "127.0.0.1:0".parse()?, &config).await?;
/// let addr = listener.local_addr();
///
/// let server = async {
///     let mut stream = listener.accept().await?;
///     // The command: where the value goes.
///     let (addr, rkey, len) = (stream.read_u64().await?, stream.read_u32().await?, stream.read_u32().await?);
///     let direct = stream.direct().ok_or("the client has not chosen it")?;
///     direct.write(RemoteRange { addr, rkey, len }, &b"a large value"[..]).await?;
///     stream.write_u8(13).await?; // the reply: its length
///     Ok::<_, Box<dyn std::error::Error>>(stream)
/// };
/// let client = async {
///     let mut stream = Stream::connect(DeviceKind::Emulated, addr, &config).await?;
///     let memory = DirectMemory::allocate(1 << 20)?;
///     let exposed = stream.expose(memory.take(0..100)?, Access::RemoteWrite)?;
///     let RemoteRange { addr, rkey, len } = exposed.remote();
///     stream.write_u64(addr).await?;
///     stream.write_u32(rkey).await?;
///     stream.write_u32(len).await?;
///     let len = stream.read_u8().await?;
///     assert_eq!(exposed.withdraw()[..len as usize], *b"a large value");
///     Ok(stream)
/// };
/// let (_server, _client) = tokio::try_join!(server, client)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Direct(SharedConnection);

impl Direct {
    /// Registers memory that values pass through on this connection, in both directions: then it is pinned once. Without this call,
    /// that happens with the first transfer, and once more if the first one writes and a later one reads.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if it cannot be pinned, and the connection goes on. Otherwise why the connection has ended.
    pub fn register(&self, memory: &DirectMemory) -> Result<(), TransportError> {
        self.0.with(|connection| connection.device.region_of_direct(memory, Access::Local)).map(drop)
    }

    /// Writes `bytes` to the start of the client's range, and waits until its device has acknowledged them all.
    ///
    /// 8 KiB or more that lie in a [`BufferPool`](crate::BufferPool), a [`SendRegion`](crate::SendRegion) or a
    /// [`DirectMemory`](crate::DirectMemory) are sent from where they are, and held until then; so are fewer bytes of memory that this
    /// connection has [registered](Self::register). Others are copied, at most 1 MiB at a time for one connection, which pins that much
    /// for them. Write the reply when this has returned: before, bytes that are copied may not have started (spec clause D-3).
    ///
    /// # Errors
    /// [`TransportError::DirectRange`] if the bytes do not fit. [`TransportError::Memory`] if the memory to copy to cannot be pinned.
    /// [`TransportError::Closed`] if the stream is shutting down. Otherwise why the connection has ended.
    ///
    /// Cancel safety: if the future is dropped, some first part of the bytes is written nevertheless. Until it is, the range is in
    /// use; what is written to the stream next arrives after it.
    pub async fn write(&self, to: RemoteRange, bytes: impl Into<Bytes>) -> Result<(), TransportError> {
        let transfer = self.start(to, bytes.into(), None, Departure::Now).await?;
        self.complete(transfer).await
    }

    /// As [`write`](Self::write), but returns as soon as all of it has started: what is written to the stream next arrives after it. So
    /// the reply need not wait for the device's acknowledgement (spec clause D-3). `guard` is dropped when that has come, or when
    /// the connection has ended. If the client's device refuses the access, only the end of the connection says so.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// Cancel safety: as [`write`](Self::write).
    pub async fn start_write(
        &self,
        to: RemoteRange,
        bytes: impl Into<Bytes>,
        guard: impl Send + 'static,
    ) -> Result<(), TransportError> {
        self.start(to, bytes.into(), Some(Box::new(guard)), Departure::Now).await.map(drop)
    }

    /// As [`start_write`](Self::start_write), for the last bytes before the reply: they leave together with what is written to the stream
    /// next, by one doorbell. If nothing is, they leave when the stream is next driven: that of a [driven](Stream::driven) stream when its
    /// owner next reads.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    ///
    /// Cancel safety: as [`write`](Self::write).
    pub async fn start_last_write(
        &self,
        to: RemoteRange,
        bytes: impl Into<Bytes>,
        guard: impl Send + 'static,
    ) -> Result<(), TransportError> {
        self.start(to, bytes.into(), Some(Box::new(guard)), Departure::WithReply).await.map(drop)
    }

    /// Starts to write. The number of the last transfer of it.
    async fn start(
        &self,
        to: RemoteRange,
        bytes: Bytes,
        mut guard: Option<Guard>,
        departure: Departure,
    ) -> Result<u64, TransportError> {
        fits(bytes.len(), to)?;
        let in_place =
            self.0.with(|connection| connection.write_in_place(to, &bytes, &mut guard, departure))?;
        if let Some(transfer) = in_place {
            return Ok(transfer);
        }
        let (mut at, mut rest) = (to, &bytes[..]);
        // One piece of nothing, if there are no bytes.
        loop {
            let (piece, later) = rest.split_at(rest.len().min(STAGED_PIECE));
            let departure = if later.is_empty() { departure } else { Departure::Now };
            let transfer =
                self.poll(|connection, cx| connection.poll_write_staged(cx, at, piece, departure)).await?;
            if later.is_empty() {
                self.0.with(|connection| connection.hold_guard(transfer, &mut guard));
                return Ok(transfer);
            }
            at.addr = at.addr.wrapping_add(piece.len() as u64);
            rest = later;
        }
    }

    /// Fills `into` with the first bytes of the client's range, and waits until they have arrived. Write no reply before.
    ///
    /// # Errors
    /// [`TransportError::DirectRange`] if the client's range is shorter than `into`. [`TransportError::Memory`] if its memory cannot be
    /// registered. [`TransportError::ReadsOff`] if the two sides have agreed on no READs. [`TransportError::Closed`] if the stream is
    /// shutting down. Otherwise why the connection has ended. With an error, the
    /// slice goes back to its memory, as soon as the device cannot write it any more.
    ///
    /// Cancel safety: if the future is dropped, the slice goes back to its memory when the bytes have arrived, or when the connection
    /// has ended and its device's objects are gone.
    pub async fn read(&self, from: RemoteRange, into: DirectSlice) -> Result<DirectSlice, TransportError> {
        fits(into.len(), from)?;
        let (transfer, target) = self.0.with(|connection| connection.start_read(from, into))?;
        self.complete(transfer).await?;
        Ok(target.take().expect("taken only here").take_back())
    }

    /// Waits until `count` transfers are complete.
    async fn complete(&self, count: u64) -> Result<(), TransportError> {
        self.poll(|connection, cx| connection.poll_transferred(cx, count)).await
    }

    async fn poll<T>(&self, mut poll: impl FnMut(&mut ConnectionState, &mut Context<'_>) -> Poll<T>) -> T {
        poll_fn(|cx| self.0.with(|connection| poll(connection, cx))).await
    }
}

/// When a transfer is handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Departure {
    Now,
    WithReply,
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direct").finish_non_exhaustive()
    }
}

fn fits(bytes: usize, range: RemoteRange) -> Result<(), TransportError> {
    if bytes > range.len as usize {
        return Err(TransportError::DirectRange { bytes, room: range.len });
    }
    Ok(())
}

impl ConnectionState {
    fn register(&mut self, memory: &DirectMemory, access: Access) -> Result<Region, TransportError> {
        if let Some(error) = &self.close_error {
            return Err(error.clone());
        }
        if !self.core.may_expose() {
            return Err(TransportError::DirectOff);
        }
        self.device.region_of_direct(memory, access)
    }

    fn expose(&mut self, slice: DirectSlice, access: Access, cut: Cut) -> Result<Exposed, TransportError> {
        let region = self.register(slice.memory(), access)?;
        let lent = slice.lend(Some(cut));
        let (offset, len) = (lent.range().start, lent.range().len() as u32);
        let remote = RemoteRange { addr: region.addr + u64::from(offset), rkey: region.rkey, len };
        Ok(Exposed::new(remote, lent, self.device.direct.left_behind.share()))
    }

    /// Starts to write bytes from where they are. `None`: the device cannot reach them there, or copying costs less.
    fn write_in_place(
        &mut self,
        to: RemoteRange,
        bytes: &[u8],
        guard: &mut Option<Guard>,
        departure: Departure,
    ) -> Result<Option<u64>, TransportError> {
        let pinned = PinnedSlice::of(bytes).filter(|pinned| {
            bytes.len() >= SEND_IN_PLACE_FROM || !bytes.is_empty() && self.device.direct.knows(pinned)
        });
        let Some(pinned) = pinned else { return Ok(None) };
        let Some(local) = self.device.locate(&pinned) else { return Ok(None) };
        let transfer = self.start(Direction::Write, local, to)?;
        self.device.counters.lent += bytes.len() as u64;
        self.device.direct.hold(transfer, Held::Source { _bytes: pinned });
        self.hold_guard(transfer, guard);
        self.depart(departure);
        Ok(Some(transfer))
    }

    /// Hands what has started to the device, or leaves that to whatever comes next.
    fn depart(&mut self, departure: Departure) {
        match departure {
            Departure::Now => self.flush_work(),
            Departure::WithReply => self.is_held_back = true,
        }
    }

    /// Keeps it until the transfer is complete, which it may be already.
    fn hold_guard(&mut self, transfer: u64, guard: &mut Option<Guard>) {
        if self.core.transferred() < transfer
            && self.close_error.is_none()
            && let Some(guard) = guard.take()
        {
            self.device.direct.hold(transfer, Held::Guard { _guard: guard });
        }
    }

    /// Starts to write a copy of `bytes`, as soon as there is memory for it.
    fn poll_write_staged(
        &mut self,
        cx: &mut Context<'_>,
        to: RemoteRange,
        bytes: &[u8],
        departure: Departure,
    ) -> Poll<Result<u64, TransportError>> {
        let free_after = self.device.direct.slot_free_after();
        if self.poll_transferred(cx, free_after)?.is_pending() {
            return Poll::Pending;
        }
        if let Some(error) = self.refusal() {
            return Poll::Ready(Err(error));
        }
        let local = self.device.stage(bytes)?;
        let transfer = self.start(Direction::Write, local, to)?;
        self.device.direct.slot_used(transfer);
        self.depart(departure);
        Poll::Ready(Ok(transfer))
    }

    fn start_read(
        &mut self,
        from: RemoteRange,
        into: DirectSlice,
    ) -> Result<(u64, ReadTarget), TransportError> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        // The device would end the connection (spec clause D-4).
        if self.device.read_depth() == 0 {
            return Err(TransportError::ReadsOff);
        }
        let region = self.device.region_of_direct(into.memory(), Access::Local)?.id;
        // The peer does not write here.
        let lent = into.lend(None);
        let local = Slice { region, offset: lent.range().start, len: lent.range().len() as u32 };
        let target = ReadTarget::new(lent);
        let transfer = self.start(Direction::Read, local, from)?;
        self.device.direct.hold(transfer, Held::Target { _slice: target.clone() });
        self.flush_work();
        Ok((transfer, target))
    }

    fn start(
        &mut self,
        direction: Direction,
        local: Slice,
        remote: RemoteRange,
    ) -> Result<u64, TransportError> {
        let RemoteRange { addr, rkey, .. } = remote;
        let transfer = self.core.transfer(Transfer { direction, local, addr, rkey });
        transfer.ok_or_else(|| self.refusal().unwrap_or(TransportError::Closed))
    }

    /// Why no transfer can start.
    fn refusal(&self) -> Option<TransportError> {
        let closing = self.core.is_closing().then_some(TransportError::Closed);
        self.close_error.clone().or(closing)
    }

    /// Waits until `count` transfers are complete.
    fn poll_transferred(&mut self, cx: &mut Context<'_>, count: u64) -> Poll<Result<(), TransportError>> {
        // The completion may be in the queue although the driver has not been woken yet.
        if self.core.transferred() < count && self.close_error.is_none() && self.poll_cq() > 0 {
            self.flush_work();
        }
        if self.core.transferred() >= count {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &self.close_error {
            return Poll::Ready(Err(error.clone()));
        }
        self.wakers.add_transfer(cx, count);
        Poll::Pending
    }
}
