//! One connection.

use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use valkey_rdma_proto::work::{self, ReceiveRequest, SendRequest, WrId};

use super::waiting::Waiting;
use super::{Access, Completion, DeviceOptions, LocalSlice, Region, RemoteRegion, Request};
use crate::device::{self, DeviceConnection, DeviceInfo, DeviceKind, Limits};
use crate::error::TransportError;
use crate::polling::Polling;
use crate::stats::DeviceCounters;

/// A reliable connected queue pair with its completion queue and registered memory.
///
/// Its life:
///
/// 1. [`open`](Self::open), or [`Listener::incoming`](super::Listener::incoming) at the other end.
/// 2. [`register`](Self::register) memory and [`post_recv`](Self::post_recv), so that nothing the peer sends finds it unprepared.
/// 3. [`establish`](Self::establish).
/// 4. Post work, and [`wait`](Self::wait) for completions.
/// 5. Drop, or [`disconnect`](Self::disconnect). The end that leaves first should know that all is said: what the peer has not
///    acknowledged by then is lost.
///
/// Ids are the program's, and come back in completions. Both queues have a depth ([`DeviceOptions`]); posting to a full one is an
/// error. A request that fails ends the connection: everything posted behind it, and all receives, complete as
/// [`Flushed`](super::FailureStatus::Flushed).
pub struct QueuePair {
    number: u64,
    pub(super) device: Box<dyn DeviceConnection>,
    /// Taken from the device, and not handed out.
    pub(super) found: VecDeque<Completion>,
    /// This and the next two are filled anew in each call, and kept for their memory.
    pub(super) scratch: Vec<work::Completion>,
    sends: Vec<SendRequest>,
    receives: Vec<ReceiveRequest>,
    pub(super) waiting: Waiting,
    pub(super) counters: DeviceCounters,
    /// The device works in this process's threads, and needs their CPU.
    pub(super) polite: bool,
}

impl QueuePair {
    /// Makes a queue pair that will connect to `peer`: finds the device and the path there. Needs a tokio runtime with I/O and
    /// time around it.
    ///
    /// # Errors
    /// [`TransportError::NotBuilt`] if this build lacks the device, [`TransportError::Resolve`] if no device leads
    /// to the peer, [`TransportError::EmulatedOption`] if the emulated device is asked for what only a real one has,
    /// [`TransportError::UnknownLink`] if it has no link of that name, [`TransportError::Unreachable`] if its socket finds no
    /// way to the peer, [`TransportError::Socket`] if it cannot be connected to, [`TransportError::Descriptors`] if the process
    /// may open no more, [`TransportError::QueueDepth`] if a queue is beyond the device, [`TransportError::Device`] and
    /// [`TransportError::Memory`] if an object cannot be made.
    pub async fn open(
        kind: DeviceKind,
        peer: SocketAddr,
        options: &DeviceOptions,
    ) -> Result<Self, TransportError> {
        Ok(Self::over(device::open(kind, peer, options).await?))
    }

    pub(super) fn over(device: Box<dyn DeviceConnection>) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        Self {
            polite: device.device().kind == DeviceKind::Emulated,
            number: MADE.fetch_add(1, Ordering::Relaxed),
            device,
            found: VecDeque::new(),
            scratch: Vec::new(),
            sends: Vec::new(),
            receives: Vec::new(),
            waiting: Waiting::default(),
            counters: DeviceCounters::default(),
        }
    }

    /// Distinguishes its regions from those of other queue pairs.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Registers `len` bytes of zeroed memory. It stays registered as long as the queue pair is there.
    ///
    /// # Errors
    /// [`TransportError::Memory`] if the memory cannot be had or pinned. [`TransportError::ReadsOff`] if the peer is to read it, and
    /// [`DeviceOptions::read_depth`] is 0.
    pub fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        let region = self.device.register(len, access)?;
        Ok(Region { owner: self.number, region })
    }

    /// Copies `bytes` into registered memory, at the start of `local`.
    ///
    /// # Panics
    /// If they are more than `local` has room for, or `local` is another queue pair's.
    pub fn copy_in(&mut self, local: impl Into<LocalSlice>, bytes: &[u8]) {
        let slice = local.into().of(self);
        assert!(bytes.len() <= slice.len as usize, "{} bytes for room of {}", bytes.len(), slice.len);
        self.device.copy_in(slice.region, slice.offset as usize, bytes);
    }

    /// A copy of registered memory, as it is now.
    ///
    /// # Panics
    /// If `local` is another queue pair's.
    pub fn copy_out(&self, local: impl Into<LocalSlice>) -> Vec<u8> {
        let slice = local.into().of(self);
        let (start, len) = (slice.offset as usize, slice.len as usize);
        let mut bytes = Vec::with_capacity(len);
        self.device.read_local(slice.region, start..start + len, &mut bytes);
        bytes
    }

    /// Posts a receive: the peer's next message, up to the length of `local`, goes there.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the receive queue is full, or the device refuses.
    ///
    /// # Panics
    /// If `local` is another queue pair's, here and in the other methods.
    pub fn post_recv(&mut self, id: u64, local: impl Into<LocalSlice>) -> Result<(), TransportError> {
        self.post_recvs([(id, local.into())])
    }

    /// Posts receives in one batch.
    ///
    /// # Errors
    /// As for [`post_recv`](Self::post_recv). Those before the one that was refused are posted.
    pub fn post_recvs(
        &mut self,
        receives: impl IntoIterator<Item = (u64, LocalSlice)>,
    ) -> Result<(), TransportError> {
        let mut batch = mem::take(&mut self.receives);
        batch.clear();
        batch.extend(
            receives.into_iter().map(|(id, local)| ReceiveRequest { wr_id: WrId(id), local: local.of(self) }),
        );
        let posted = self.device.post_receives(&batch);
        let count = batch.len();
        self.receives = batch;
        posted?;
        self.counters.receive_posts += 1;
        self.waiting.outstanding += count;
        Ok(())
    }

    /// SEND: posts a message into the peer's next posted receive. It completes when the peer's device has it. The bytes must
    /// stay as they are until then.
    ///
    /// # Errors
    /// [`TransportError::Device`] if the send queue is full, or the device refuses.
    pub fn post_send(&mut self, id: u64, local: impl Into<LocalSlice>) -> Result<(), TransportError> {
        self.post_chain([Request::send(id, local)])
    }

    /// RDMA WRITE: posts bytes into the peer's memory. The peer's program is not notified.
    ///
    /// # Errors
    /// As for [`post_send`](Self::post_send). That the peer's device refuses shows in the completion.
    pub fn post_write(
        &mut self,
        id: u64,
        local: impl Into<LocalSlice>,
        remote: RemoteRegion,
    ) -> Result<(), TransportError> {
        self.post_chain([Request::write(id, local, remote)])
    }

    /// RDMA READ: copies the peer's memory into `local`, all of it. The peer's program is not notified. It completes when the
    /// bytes are there. More than [`read_depth`](Self::read_depth) wait for each other.
    ///
    /// # Errors
    /// As for [`post_write`](Self::post_write). [`TransportError::ReadsOff`] if the [depth](Self::read_depth) is 0.
    pub fn post_read(
        &mut self,
        id: u64,
        local: impl Into<LocalSlice>,
        remote: RemoteRegion,
    ) -> Result<(), TransportError> {
        self.post_chain([Request::read(id, local, remote)])
    }

    /// Posts requests with one doorbell, in order.
    ///
    /// # Errors
    /// As for the methods that post one. Those before the one that was refused are in flight.
    pub fn post_chain(&mut self, chain: impl IntoIterator<Item = Request>) -> Result<(), TransportError> {
        let mut sends = mem::take(&mut self.sends);
        let describe = |request: Request| {
            let Request { id, local, op, signalled } = request;
            SendRequest { wr_id: WrId(id), local: local.of(self), op, signalled }
        };
        sends.clear();
        sends.extend(chain.into_iter().map(describe));
        let posted = self.device.post_sends(&sends);
        let signalled = sends.iter().filter(|request| request.signalled).count();
        self.sends = sends;
        posted?;
        self.counters.doorbells += 1;
        self.waiting.outstanding += signalled;
        Ok(())
    }

    /// How [`wait`](Self::wait) waits. [`Polling::Adaptive`] looks for up to `spin_limit` before it sleeps, unless it is
    /// [off](Self::adaptive_off). Default: [`Polling::Event`].
    pub fn set_polling(&mut self, polling: Polling, spin_limit: Duration) {
        let spin_limit = if self.adaptive_off().is_some() { Duration::ZERO } else { spin_limit };
        self.waiting.set(polling, spin_limit);
    }

    /// Ends the connection: the peer gets a disconnect, and everything posted completes as flushed. Repeated calls do nothing.
    pub fn disconnect(&mut self) {
        self.device.disconnect();
    }

    /// How many READs of this side can be in flight at once: what both sides agreed upon while connecting, 0 before that.
    pub fn read_depth(&self) -> u8 {
        self.device.read_depth()
    }

    /// What the device granted.
    pub fn limits(&self) -> Limits {
        self.device.limits()
    }

    /// The device's name and link.
    pub fn device(&self) -> DeviceInfo {
        self.device.device()
    }

    /// This side's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.device.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.device.peer_addr()
    }

    /// What was asked of the device so far: doorbells, polls, events, and how often [`wait`](Self::wait) slept.
    pub fn counters(&self) -> DeviceCounters {
        self.counters
    }
}
