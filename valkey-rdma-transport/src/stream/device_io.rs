//! One connection's calls into its device, counted, with its regions and the work that waits to be posted.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Weak;
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{
    Completion, Outcome, ReceiveRequest, Region, RegionId, SendRequest, Slice, WrKind,
};
use valkey_rdma_proto::{Resources, Work, control_region_len, wire};

use super::direct_io::{DirectIo, STAGING};
use crate::config::Config;
use crate::device::{Access, CmEvent, DeviceConnection};
use crate::direct::DirectMemory;
use crate::error::TransportError;
use crate::limiter::ConnectionPermit;
use crate::send_memory::{Lendable, PinnedSlice};
use crate::stats::DeviceCounters;

/// The device with its regions and what waits to be posted. Without a device, after the end, every call does nothing.
pub(super) struct DeviceIo {
    /// The device's objects and the pinned memory. Before the slices: what is being sent is held until it is gone.
    device: Option<Box<dyn DeviceConnection>>,
    /// Given back together with the device.
    permit: Option<ConnectionPermit>,
    /// Memory of the application's that is being sent, each with the position after it: given back when that is
    /// delivered, or after the device is gone.
    pub(super) slices: VecDeque<(u64, PinnedSlice)>,
    /// Memory of the application that was to be registered, and under which name it is, unless that was refused.
    send_memory: Vec<(Weak<Lendable>, Option<RegionId>)>,
    /// After the device, as the slices.
    pub(super) direct: DirectIo,
    control: RegionId,
    /// The part of the send buffer that is in use: the short one, or the long one.
    send_buffer: RegionId,
    short_part: Region,
    /// 0: there is none, or it could not be registered.
    long_part_len: u32,
    pinned_bytes: u64,
    /// An event was asked for and has not come.
    pub(super) armed: bool,
    receives: Vec<ReceiveRequest>,
    sends: Vec<SendRequest>,
    /// Empty; kept for its memory.
    completions: Vec<Completion>,
    pub(super) counters: DeviceCounters,
}

/// What an ended connection leaves to be freed. The device goes first; then nothing is sent any more, and its place is
/// free.
pub(super) struct Teardown {
    _device: Box<dyn DeviceConnection>,
    _slices: VecDeque<(u64, PinnedSlice)>,
    _direct: DirectIo,
    _permit: Option<ConnectionPermit>,
}

impl DeviceIo {
    /// Registers all memory of a connection. `windows` keeps the regions that the peer may write.
    pub(super) fn open<'w>(
        mut device: Box<dyn DeviceConnection>,
        config: &Config,
        permit: Option<ConnectionPermit>,
        windows: &'w mut Vec<Region>,
    ) -> Result<(Self, Resources<'w>), TransportError> {
        let limits = device.limits();
        let receives = limits.receive_depth.min(config.receive_depth);
        let control = device.register(control_region_len(receives), Access::Local)?;
        let first = config.first_send_buffer();
        let send_buffer = device.register(first, Access::Local)?;
        for _ in 0..config.rx_buffers {
            windows.push(device.register(config.rx_size, Access::RemoteWrite)?);
        }
        let regions = [&control, &send_buffer].into_iter().chain(&*windows);
        let io = Self {
            pinned_bytes: regions.map(|region| u64::from(region.len)).sum(),
            device: Some(device),
            permit,
            slices: VecDeque::new(),
            send_memory: Vec::new(),
            direct: DirectIo::default(),
            control: control.id,
            send_buffer: send_buffer.id,
            short_part: send_buffer,
            long_part_len: config.send_buffer - first,
            armed: false,
            receives: Vec::with_capacity(receives as usize),
            sends: Vec::new(),
            completions: Vec::with_capacity(COMPLETION_BATCH),
            counters: DeviceCounters::default(),
        };
        let resources = Resources {
            control: control.id,
            send_buffer: send_buffer.id,
            send_buffer_len: send_buffer.len,
            rx: windows,
            receives,
            send_depth: limits.send_depth,
            max_message: limits.max_message,
        };
        Ok((io, resources))
    }

    /// Connects or accepts.
    pub(super) fn establish(&mut self) -> Result<(), TransportError> {
        self.device.as_mut().map_or(Ok(()), |device| device.establish())
    }

    /// Asks the device whether the connection still works.
    pub(super) fn check(&mut self) -> Result<(), TransportError> {
        self.device.as_mut().map_or(Ok(()), |device| device.check())
    }

    /// Takes a completion event. `false`: there is none, and the waker is kept.
    pub(super) fn take_completion_event(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let Some(device) = &mut self.device else { return Ok(false) };
        let Poll::Ready(event) = device.poll_completion_event(cx) else { return Ok(false) };
        event?;
        self.counters.events += 1;
        self.armed = false;
        Ok(true)
    }

    /// Takes an event of the connection manager. `None`: there is none, and the waker is kept.
    pub(super) fn take_cm_event(&mut self, cx: &mut Context<'_>) -> Result<Option<CmEvent>, TransportError> {
        let Some(device) = &mut self.device else { return Ok(None) };
        match device.poll_cm_event(cx) {
            Poll::Ready(event) => event.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Arms the queue. Completions that came before raise no event.
    pub(super) fn arm(&mut self) -> Result<(), TransportError> {
        let Some(device) = &mut self.device else { return Ok(()) };
        self.counters.arms += 1;
        device.arm()?;
        self.armed = true;
        Ok(())
    }

    /// Takes up to [`COMPLETION_BATCH`] completions; fewer mean that none are left. Those taken count even if the
    /// poll fails. Hand the vector [back](Self::recycle).
    pub(super) fn poll_cq(&mut self) -> (Vec<Completion>, Result<(), TransportError>) {
        let mut completions = std::mem::take(&mut self.completions);
        let Some(device) = &mut self.device else { return (completions, Ok(())) };
        self.counters.polls += 1;
        let outcome = device.poll(&mut completions, COMPLETION_BATCH);
        (completions, outcome)
    }

    /// Keeps the vector of the last poll for the next one.
    pub(super) fn recycle(&mut self, mut completions: Vec<Completion>) {
        completions.clear();
        self.completions = completions;
    }

    /// Copies the message of a completed receive out of its slot, before the slot is posted again. Returns its
    /// length, 0 if the completion brought none.
    pub(super) fn read_message(
        &self,
        completion: &Completion,
        message: &mut [u8; wire::MESSAGE_LEN],
    ) -> usize {
        let (WrKind::Receive(slot), Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. }) =
            (completion.wr_id.kind(), completion.outcome)
        else {
            return 0;
        };
        let Some(device) = &self.device else { return 0 };
        let len = (len as usize).min(wire::MESSAGE_LEN);
        let start = slot as usize * wire::MESSAGE_LEN;
        device.read_local(self.control, start..start + len, &mut &mut message[..]);
        len
    }

    /// Puts work in place for the next [`post_queued`](Self::post_queued). `false`: it is to disconnect.
    pub(super) fn queue(&mut self, work: Work) -> bool {
        match work {
            Work::Receive(request) => self.receives.push(request),
            Work::Message(request, bytes) => {
                let start = request.local.offset as usize;
                let slot = start..start + bytes.len();
                if let Some(device) = &mut self.device {
                    device.write_local(self.control, slot, &mut |room| room.copy_from_slice(&bytes));
                }
                self.sends.push(request);
            }
            Work::Data(request) => self.sends.push(request),
            Work::Disconnect => return false,
        }
        true
    }

    /// Posts what was prepared: receives in one batch, sends under one doorbell.
    pub(super) fn post_queued(&mut self) -> Result<(), TransportError> {
        let mut posted = Ok(());
        if let Some(device) = &mut self.device {
            if !self.receives.is_empty() {
                self.counters.receive_posts += 1;
                posted = device.post_receives(&self.receives);
            }
            if posted.is_ok() && !self.sends.is_empty() {
                self.counters.doorbells += 1;
                posted = device.post_sends(&self.sends);
            }
        }
        self.receives.clear();
        self.sends.clear();
        posted
    }

    /// Lends bytes of the send buffer for writing.
    pub(super) fn write_send_buffer(&mut self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        if let Some(device) = &mut self.device {
            device.write_local(self.send_buffer, range, fill);
        }
    }

    /// Registers the long part of the send buffer, to be used instead of the short one. `None`: it cannot be registered, and then
    /// the connection keeps the short one.
    pub(super) fn grow_send_buffer(&mut self) -> Option<Region> {
        if !self.can_grow() {
            return None;
        }
        match self.device.as_mut()?.register(self.long_part_len, Access::Local) {
            Ok(region) => {
                self.send_buffer = region.id;
                self.pinned_bytes += u64::from(region.len);
                Some(region)
            }
            Err(error) => {
                self.long_part_len = 0;
                tracing::warn!(%error, "the send buffer of this connection stays short: large values take longer");
                None
            }
        }
    }

    /// Whether the send buffer can grow.
    pub(super) fn can_grow(&self) -> bool {
        self.long_part_len > 0 && self.send_buffer == self.short_part.id
    }

    /// Deregisters the long part of the send buffer, which no work request uses. Returns the short one, to be used instead.
    pub(super) fn shrink_send_buffer(&mut self) -> Option<Region> {
        let device = self.device.as_mut().filter(|_| self.send_buffer != self.short_part.id)?;
        // It was the device's own memory.
        let _nothing = device.deregister(self.send_buffer);
        self.send_buffer = self.short_part.id;
        self.pinned_bytes -= u64::from(self.long_part_len);
        Some(self.short_part)
    }

    /// Where the device finds these bytes. `None`: it cannot have them registered.
    pub(super) fn locate(&mut self, slice: &PinnedSlice) -> Option<Slice> {
        let region = self.region_of(slice)?;
        let Range { start, end } = slice.range();
        Some(Slice { region, offset: start, len: end - start })
    }

    /// The name of their memory, which is registered the first time.
    fn region_of(&mut self, slice: &PinnedSlice) -> Option<RegionId> {
        let memory = slice.memory();
        if let Some((_, region)) = self.send_memory.iter().find(|(known, _)| memory.is(known)) {
            return *region;
        }
        let device = self.device.as_mut()?;
        let registered = device.register_send_memory(memory);
        if let Err(error) = &registered {
            tracing::warn!(%error, "this connection copies values, because their memory cannot be registered");
        }
        let region = registered.ok();
        self.pinned_bytes += region.map_or(0, |region| u64::from(region.len));
        let region = region.map(|region| region.id);
        self.send_memory.push((memory.downgrade(), region));
        region
    }

    /// Where the device and the peer find direct memory, which is registered the first time.
    pub(super) fn region_of_direct(
        &mut self,
        memory: &DirectMemory,
        access: Access,
    ) -> Result<Region, TransportError> {
        let device = self.device.as_mut().ok_or(TransportError::Closed)?;
        for unused in self.direct.take_unused() {
            self.direct.deregistered.extend(device.deregister(unused.id));
            self.pinned_bytes -= u64::from(unused.len);
            self.send_memory.retain(|(_, region)| *region != Some(unused.id));
        }
        if let Some(region) = self.direct.registered(memory, access) {
            return Ok(region);
        }
        let region = device.register_direct(memory, access)?;
        self.pinned_bytes += u64::from(region.len);
        self.direct.add(memory, access, region);
        // What is frozen is sent from here, too.
        if !self.send_memory.iter().any(|(known, _)| memory.sent().is(known)) {
            self.send_memory.push((memory.sent().downgrade(), Some(region.id)));
        }
        Ok(region)
    }

    /// How many reads can be in flight at once.
    pub(super) fn read_depth(&self) -> u8 {
        self.device.as_ref().map_or(0, |device| device.read_depth())
    }

    /// Copies bytes into the next free slot for direct writes.
    pub(super) fn stage(&mut self, bytes: &[u8]) -> Result<Slice, TransportError> {
        let device = self.device.as_mut().ok_or(TransportError::Closed)?;
        let staging = match self.direct.staging {
            Some(region) => region,
            None => {
                let region = device.register(STAGING, Access::Local)?;
                self.pinned_bytes += u64::from(STAGING);
                *self.direct.staging.insert(region.id)
            }
        };
        let slice = self.direct.next_slot(staging, bytes.len());
        let start = slice.offset as usize;
        device.write_local(staging, start..start + bytes.len(), &mut |room| room.copy_from_slice(bytes));
        self.counters.copied_in += bytes.len() as u64;
        Ok(slice)
    }

    /// Holds these bytes until everything before `position` is delivered.
    pub(super) fn hold(&mut self, slice: PinnedSlice, position: u64) {
        self.counters.lent += slice.bytes().len() as u64;
        self.slices.push_back((position, slice));
    }

    /// Takes the slices that are not sent any more, once the first `delivered` bytes have been delivered.
    pub(super) fn take_delivered(&mut self, delivered: u64) -> Vec<PinnedSlice> {
        let count = self.slices.partition_point(|(position, _)| *position <= delivered);
        self.slices.drain(..count).map(|(_, slice)| slice).collect()
    }

    /// Copies bytes of a window out.
    pub(super) fn read_window(&mut self, slice: Slice, out: &mut dyn BufMut) {
        let Some(device) = &self.device else { return };
        let start = slice.offset as usize;
        device.read_local(slice.region, start..start + slice.len as usize, out);
        self.counters.copied_out += u64::from(slice.len);
    }

    pub(super) fn disconnect(&mut self) {
        if let Some(device) = &mut self.device {
            device.disconnect();
        }
    }

    /// Bytes registered with the device.
    pub(super) fn pinned_bytes(&self) -> u64 {
        if self.device.is_some() { self.pinned_bytes } else { 0 }
    }

    /// Gives the device up, to be dropped without holding any lock.
    pub(super) fn take_teardown(&mut self) -> Option<Teardown> {
        let device = self.device.take()?;
        let slices = std::mem::take(&mut self.slices);
        let direct = std::mem::take(&mut self.direct);
        Some(Teardown { _device: device, _slices: slices, _direct: direct, _permit: self.permit.take() })
    }
}

/// Completions taken from the queue at once.
pub(super) const COMPLETION_BATCH: usize = 64;
