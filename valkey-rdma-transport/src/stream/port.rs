//! One connection's way to its device: every call into the endpoint goes through here, and is counted.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use bytes::BufMut;
use valkey_rdma_proto::work::{
    Completion, Outcome, ReceiveRequest, Region, RegionId, SendRequest, Slice, WrKind,
};
use valkey_rdma_proto::{Work, control_region_len, wire};

use crate::config::Config;
use crate::device::{Access, CmEvent, DeviceConnection};
use crate::error::TransportError;
use crate::listener::Place;
use crate::pool::{Arena, Lease};
use crate::stats::DeviceCounters;

/// The endpoint with its regions and what waits to be posted. Without an endpoint, after the end, every call does
/// nothing.
pub(super) struct Port {
    /// The device's objects and the pinned memory. Before the leases: what is being sent is held until it is gone.
    endpoint: Option<Box<dyn DeviceConnection>>,
    /// Given back together with the endpoint.
    place: Option<Place>,
    /// Memory of the application's that is being sent, each with the position after it: given back when that is
    /// delivered, or after the endpoint is gone.
    leases: VecDeque<(u64, Lease)>,
    /// The pools that were to be registered, and under which name they are, unless that was refused.
    pools: Vec<(Weak<Arena>, Option<RegionId>)>,
    control: RegionId,
    send_buffer: RegionId,
    pinned_bytes: u64,
    /// An event was asked for and has not come.
    armed: bool,
    receives: Vec<ReceiveRequest>,
    sends: Vec<SendRequest>,
    /// Empty; kept for its memory.
    completions: Vec<Completion>,
    pub(super) counters: DeviceCounters,
}

/// What was registered and granted when a port was opened.
pub(super) struct Granted {
    pub(super) control: RegionId,
    pub(super) send_buffer: Region,
    pub(super) windows: Vec<Region>,
    pub(super) receives: u32,
    pub(super) send_depth: u32,
    pub(super) max_message: u32,
}

/// What an ended connection leaves to be freed. The endpoint goes first; then nothing is sent any more, and its place is
/// free.
pub(super) struct Remains {
    _endpoint: Box<dyn DeviceConnection>,
    _leases: VecDeque<(u64, Lease)>,
    _place: Option<Place>,
}

impl Port {
    /// Registers all memory of a connection.
    pub(super) fn open(
        mut endpoint: Box<dyn DeviceConnection>,
        config: &Config,
        place: Option<Place>,
    ) -> Result<(Self, Granted), TransportError> {
        let limits = endpoint.limits();
        let receives = limits.receive_depth.min(config.receives());
        let control = endpoint.register(control_region_len(receives), Access::Local)?;
        let send_buffer = endpoint.register(config.send_buffer_len(), Access::Local)?;
        let (count, len) = config.windows();
        let windows =
            (0..count).map(|_| endpoint.register(len, Access::RemoteWrite)).collect::<Result<Vec<_>, _>>()?;
        let regions = [&control, &send_buffer].into_iter().chain(&windows);
        let port = Self {
            pinned_bytes: regions.map(|region| u64::from(region.len)).sum(),
            endpoint: Some(endpoint),
            place,
            leases: VecDeque::new(),
            pools: Vec::new(),
            control: control.id,
            send_buffer: send_buffer.id,
            armed: false,
            receives: Vec::with_capacity(receives as usize),
            sends: Vec::new(),
            completions: Vec::with_capacity(COMPLETION_BATCH),
            counters: DeviceCounters::default(),
        };
        let (send_depth, max_message) = (limits.send_depth, limits.max_message);
        let control = control.id;
        Ok((port, Granted { control, send_buffer, windows, receives, send_depth, max_message }))
    }

    /// Connects or accepts.
    pub(super) fn establish(&mut self) -> Result<(), TransportError> {
        self.endpoint.as_mut().map_or(Ok(()), |endpoint| endpoint.establish())
    }

    /// Takes a completion event. `false`: there is none, and the waker is kept.
    pub(super) fn take_completion_event(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(false) };
        let Poll::Ready(event) = endpoint.poll_completion_event(cx) else { return Ok(false) };
        event?;
        self.counters.events += 1;
        self.armed = false;
        Ok(true)
    }

    /// Takes an event of the connection manager. `None`: there is none, and the waker is kept.
    pub(super) fn take_cm_event(&mut self, cx: &mut Context<'_>) -> Result<Option<CmEvent>, TransportError> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(None) };
        match endpoint.poll_cm_event(cx) {
            Poll::Ready(event) => event.map(Some),
            Poll::Pending => Ok(None),
        }
    }

    /// Whether an event was asked for and has not come.
    pub(super) fn is_armed(&self) -> bool {
        self.armed
    }

    /// From now on counts as not armed, whatever was asked for. To ask once more does no harm.
    pub(super) fn forget_armed(&mut self) {
        self.armed = false;
    }

    /// Asks for an event at the next completion. Those that came before raise none.
    pub(super) fn arm(&mut self) -> Result<(), TransportError> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        self.counters.arms += 1;
        endpoint.arm()?;
        self.armed = true;
        Ok(())
    }

    /// Takes up to [`COMPLETION_BATCH`] completions; fewer mean that none are left. Those taken count even if the
    /// look fails. Hand the vector [back](Self::recycle).
    pub(super) fn look(&mut self) -> (Vec<Completion>, Result<(), TransportError>) {
        let mut completions = std::mem::take(&mut self.completions);
        let Some(endpoint) = &mut self.endpoint else { return (completions, Ok(())) };
        self.counters.polls += 1;
        let outcome = endpoint.poll(&mut completions, COMPLETION_BATCH);
        (completions, outcome)
    }

    /// Keeps the vector of the last look for the next one.
    pub(super) fn recycle(&mut self, mut completions: Vec<Completion>) {
        completions.clear();
        self.completions = completions;
    }

    /// Copies the message of a completed receive out of its slot, before the slot is posted again. Returns its
    /// length, 0 if the completion brought none.
    pub(super) fn message(&self, completion: &Completion, message: &mut [u8; wire::MESSAGE_LEN]) -> usize {
        let (WrKind::Receive(slot), Outcome::Received { len }) =
            (completion.wr_id.kind(), completion.outcome)
        else {
            return 0;
        };
        let Some(endpoint) = &self.endpoint else { return 0 };
        let len = (len as usize).min(wire::MESSAGE_LEN);
        let start = slot as usize * wire::MESSAGE_LEN;
        endpoint.read_local(self.control, start..start + len, &mut &mut message[..]);
        len
    }

    /// Puts work in place for the next [`post`](Self::post). `false`: it is to disconnect.
    pub(super) fn prepare(&mut self, work: Work) -> bool {
        match work {
            Work::Receive(request) => self.receives.push(request),
            Work::Message(request, bytes) => {
                let start = request.local.offset as usize;
                let slot = start..start + bytes.len();
                if let Some(endpoint) = &mut self.endpoint {
                    endpoint.write_local(self.control, slot, &mut |room| room.copy_from_slice(&bytes));
                }
                self.sends.push(request);
            }
            Work::Data(request) => self.sends.push(request),
            Work::Disconnect => return false,
        }
        true
    }

    /// Posts what was prepared: receives in one batch, sends under one doorbell.
    pub(super) fn post(&mut self) -> Result<(), TransportError> {
        let posted = self.post_prepared();
        self.receives.clear();
        self.sends.clear();
        posted
    }

    fn post_prepared(&mut self) -> Result<(), TransportError> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        if !self.receives.is_empty() {
            self.counters.receive_posts += 1;
            endpoint.post_receives(&self.receives)?;
        }
        if !self.sends.is_empty() {
            self.counters.doorbells += 1;
            endpoint.post_sends(&self.sends)?;
        }
        Ok(())
    }

    /// Lends bytes of the send buffer for writing.
    pub(super) fn fill(&mut self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.write_local(self.send_buffer, range, fill);
        }
    }

    /// Where the device finds these bytes. `None`: it cannot have them registered.
    pub(super) fn lend(&mut self, lease: &Lease) -> Option<Slice> {
        let region = self.region_of(lease)?;
        let Range { start, end } = lease.range();
        Some(Slice { region, offset: start, len: end - start })
    }

    /// The name of a pool's memory, which is registered the first time.
    fn region_of(&mut self, lease: &Lease) -> Option<RegionId> {
        let arena = lease.arena();
        if let Some((_, region)) = self.pools.iter().find(|(known, _)| known.as_ptr() == Arc::as_ptr(arena)) {
            return *region;
        }
        let endpoint = self.endpoint.as_mut()?;
        let registered = endpoint.register_pool(&lease.pool());
        if let Err(error) = &registered {
            tracing::warn!(%error, "this connection copies values, because their pool cannot be registered");
        }
        let region = registered.ok();
        self.pinned_bytes += region.map_or(0, |region| u64::from(region.len));
        let region = region.map(|region| region.id);
        self.pools.push((Arc::downgrade(arena), region));
        region
    }

    /// Holds these bytes until everything before `position` is delivered.
    pub(super) fn hold(&mut self, lease: Lease, position: u64) {
        self.counters.lent += lease.bytes().len() as u64;
        self.leases.push_back((position, lease));
    }

    /// Whether memory of the application's is being sent.
    pub(super) fn holds(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Gives back what is not sent any more, once so many bytes are delivered.
    pub(super) fn give_back(&mut self, delivered: u64) -> Vec<Lease> {
        let count = self.leases.partition_point(|(position, _)| *position <= delivered);
        self.leases.drain(..count).map(|(_, lease)| lease).collect()
    }

    /// Copies bytes of a window out.
    pub(super) fn copy_out(&mut self, slice: Slice, out: &mut dyn BufMut) {
        let Some(endpoint) = &self.endpoint else { return };
        let start = slice.offset as usize;
        endpoint.read_local(slice.region, start..start + slice.len as usize, out);
        self.counters.copied_out += u64::from(slice.len);
    }

    pub(super) fn disconnect(&mut self) {
        if let Some(endpoint) = &mut self.endpoint {
            endpoint.disconnect();
        }
    }

    /// Bytes registered with the device.
    pub(super) fn pinned_bytes(&self) -> u64 {
        if self.endpoint.is_some() { self.pinned_bytes } else { 0 }
    }

    /// Gives the endpoint up, to be dropped without holding any lock.
    pub(super) fn release(&mut self) -> Option<Remains> {
        let endpoint = self.endpoint.take()?;
        let leases = std::mem::take(&mut self.leases);
        Some(Remains { _endpoint: endpoint, _leases: leases, _place: self.place.take() })
    }
}

/// Completions taken from the queue at once.
pub(super) const COMPLETION_BATCH: usize = 64;
