//! One side of a connection: a queue pair with its completion queue, its regions and its connection-manager events.
//!
//! What the two links share. [`requester`] is the half that sends, [`responder`]
//! the half that is sent to; a link carries what the one asks to the other of the peer, and the answer back.

pub(super) mod requester;
pub(super) mod responder;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::BufMut;
use valkey_rdma_proto::work::{Completion, FailureStatus, Outcome, ReceiveRequest, Region, RegionId, WrId};

use self::requester::SendQueue;
use super::RNR_RETRY_FOREVER;
use super::device::FaultPlan;
use crate::device::{Access, CmEvent, DeviceOptions};
use crate::direct::WeakDirectMemory;
use crate::send_memory::SendMemory;
use crate::sync::{Mutex, MutexGuard, keep_waker, lock};

/// The state of a queue pair, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePairState {
    /// Receives may be posted; nothing flows.
    Init,
    /// Connected.
    Ready,
    /// Everything posted is flushed.
    Error,
}

/// The terms that a side sends when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    /// Retries that it grants to sends that find no receive posted; 7 means without end.
    pub(super) rnr_retry_count: u8,
    /// Reads that it wants to have in flight, in either direction.
    pub(super) read_depth: u8,
}

/// One side of a connection.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) state: QueuePairState,
    pub(super) memories: Vec<Memory>,
    pub(super) receives: VecDeque<ReceiveRequest>,
    pub(super) sends: SendQueue,
    /// What was asked of the device under this side.
    pub(super) plan: Arc<FaultPlan>,
    /// Reads that its program asks for, in either direction.
    read_depth: u8,
    /// The terms that the peer sent.
    pub(super) peer: Terms,
    send_depth: u32,
    receive_depth: u32,
    /// Send queue entries in use. An entry is free again once a completion at or past it was polled.
    entries: u32,
    /// Entries used since the last one that completes.
    uncompleted: u32,
    /// Completions, each with the number of send queue entries that polling it frees.
    completions: VecDeque<(Completion, u32)>,
    overrun: bool,
    armed: bool,
    completion_event: Signal,
    cm_events: VecDeque<CmEvent>,
    cm_signal: Signal,
    /// The disconnect was reported.
    disconnect_reported: bool,
}

/// Something to wake a task for.
#[derive(Debug, Default)]
struct Signal {
    raised: bool,
    waker: Option<Waker>,
}

impl Signal {
    /// Takes the signal if it is raised; keeps the waker otherwise.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::take(&mut self.raised) {
            return Poll::Ready(());
        }
        keep_waker(&mut self.waker, cx);
        Poll::Pending
    }

    fn take_waker(&mut self) -> Option<Waker> {
        if self.raised { self.waker.take() } else { None }
    }
}

impl QueuePair {
    pub(super) fn new(options: &DeviceOptions, plan: Arc<FaultPlan>) -> Self {
        Self {
            state: QueuePairState::Init,
            memories: Vec::new(),
            receives: VecDeque::new(),
            sends: SendQueue::default(),
            plan,
            read_depth: options.read_depth,
            peer: Terms { rnr_retry_count: RNR_RETRY_FOREVER, read_depth: 0 },
            send_depth: options.send_depth,
            receive_depth: options.receive_depth,
            entries: 0,
            uncompleted: 0,
            completions: VecDeque::new(),
            overrun: false,
            armed: false,
            completion_event: Signal::default(),
            cm_events: VecDeque::new(),
            cm_signal: Signal::default(),
            disconnect_reported: false,
        }
    }

    /// What this side asks for and grants.
    pub(super) fn terms(&self) -> Terms {
        Terms { rnr_retry_count: self.plan.rnr_retry_count(), read_depth: self.read_depth }
    }

    /// Puts the peer's terms into force.
    pub(super) fn agree(&mut self, peer: Terms) {
        self.peer = peer;
        self.sends.rnr_retry_count = peer.rnr_retry_count;
        self.sends.read_depth = self.read_depth.min(offered_reads(peer.read_depth));
    }

    /// How many reads the peer may have in flight here.
    pub(super) fn reads_granted(&self) -> u8 {
        self.peer.read_depth.min(offered_reads(self.read_depth))
    }

    /// Takes a send queue entry. `false`: the queue is full.
    pub(super) fn take_send_entry(&mut self) -> bool {
        let free = self.entries < self.send_depth;
        if free {
            self.entries += 1;
            self.uncompleted += 1;
        }
        free
    }

    /// Whether another receive may be posted.
    pub(super) fn has_receive_entry(&self) -> bool {
        self.receives.len() < self.receive_depth as usize
    }

    /// A send ended well.
    pub(super) fn complete_send(&mut self, wr_id: WrId, signalled: bool) {
        if signalled {
            self.push_send_completion(wr_id, Outcome::Sent);
        }
    }

    /// A send ended badly: it completes whether signalled or not.
    pub(super) fn fail_send(&mut self, wr_id: WrId, status: FailureStatus) {
        self.push_send_completion(wr_id, Outcome::Failed(status));
    }

    /// A receive ended.
    pub(super) fn complete_receive(&mut self, wr_id: WrId, outcome: Outcome) {
        self.push(Completion { wr_id, outcome }, 0);
    }

    /// Moves the queue pair to error and flushes what is posted.
    pub(super) fn fail(&mut self) {
        if self.state == QueuePairState::Error {
            return;
        }
        self.state = QueuePairState::Error;
        for wr_id in self.sends.take_all() {
            self.fail_send(wr_id, FailureStatus::Flushed);
        }
        for request in std::mem::take(&mut self.receives) {
            self.complete_receive(request.wr_id, Outcome::Failed(FailureStatus::Flushed));
        }
    }

    /// Appends up to `limit` completions to `out`. `false`: the queue was overrun, its content is worthless.
    pub(super) fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> bool {
        for (completion, freed) in self.completions.drain(..limit.min(self.completions.len())) {
            self.entries -= freed;
            out.push(completion);
        }
        !self.overrun
    }

    /// Asks for an event at the next completion.
    pub(super) fn arm(&mut self) {
        self.armed = true;
    }

    /// Takes a completion event.
    pub(super) fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.completion_event.poll(cx)
    }

    /// Reports a connection-manager event.
    pub(super) fn push_cm_event(&mut self, event: CmEvent) {
        self.cm_events.push_back(event);
        self.cm_signal.raised = true;
    }

    /// Reports that the peer is gone, once.
    pub(super) fn push_disconnected(&mut self) {
        if !std::mem::replace(&mut self.disconnect_reported, true) {
            self.push_cm_event(CmEvent::Disconnected);
        }
    }

    /// Takes a connection-manager event.
    pub(super) fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<CmEvent> {
        ready!(self.cm_signal.poll(cx));
        let event = self.cm_events.pop_front();
        self.cm_signal.raised = !self.cm_events.is_empty();
        event.map_or(Poll::Pending, Poll::Ready)
    }

    /// The region with this name.
    pub(super) fn memory(&self, id: RegionId) -> Option<&Memory> {
        self.memories.get(id.0 as usize)
    }

    /// The connection was dropped: its regions are freed, and the peer may not write them.
    pub(super) fn release(&mut self) {
        self.memories = Vec::new();
        self.receives = VecDeque::new();
        self.completions = VecDeque::new();
    }

    /// The tasks that have something to look at now. Wake them without holding the link's lock: a waker may drop its
    /// task, and the task this link.
    pub(super) fn take_wakers(&mut self) -> [Option<Waker>; 2] {
        [self.completion_event.take_waker(), self.cm_signal.take_waker()]
    }

    fn push_send_completion(&mut self, wr_id: WrId, outcome: Outcome) {
        let freed = std::mem::take(&mut self.uncompleted);
        self.push(Completion { wr_id, outcome }, freed);
    }

    fn push(&mut self, completion: Completion, freed: u32) {
        let armed = std::mem::take(&mut self.armed);
        self.completion_event.raised |= armed && !self.plan.drops_event();
        if self.completions.len() < (self.send_depth.saturating_add(self.receive_depth)) as usize {
            self.completions.push_back((completion, freed));
        } else if !self.overrun {
            // A queue that lost a completion is of no use to anyone, nor is the queue pair that feeds it.
            self.overrun = true;
            self.fail();
        }
    }
}

/// The reads that a side takes which asks for `read_depth`. The connection manager always grants one, as some adapters
/// refuse none: where reads are off, it is the memory that may not be read.
fn offered_reads(read_depth: u8) -> u8 {
    read_depth.max(1)
}

/// One registered region. Both ends of a link hold it: the owner by name, the peer by key.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) access: Access,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Own(Arc<Mutex<Box<[u8]>>>),
    /// Only read, and only what is held.
    Lent(SendMemory),
    /// Read and written, and only what the application has lent. An adapter would reach all of it; here no unsafe code may.
    Direct(WeakDirectMemory),
    /// It is deregistered.
    Gone,
}

impl Memory {
    pub(super) fn new(region: Region, access: Access) -> Self {
        let bytes = Arc::new(Mutex::new(vec![0; region.len as usize].into_boxed_slice()));
        Self { region, access, place: Place::Own(bytes) }
    }

    pub(super) fn lent(region: Region, memory: SendMemory) -> Self {
        Self { region, access: Access::Local, place: Place::Lent(memory) }
    }

    pub(super) fn direct(region: Region, access: Access, memory: WeakDirectMemory) -> Self {
        Self { region, access, place: Place::Direct(memory) }
    }

    pub(super) fn gone(id: RegionId) -> Self {
        let region = Region { id, addr: 0, rkey: 0, len: 0 };
        Self { region, access: Access::Local, place: Place::Gone }
    }

    /// The bytes, for as long as the guard lives. A panic in a caller's closure leaves bytes, not nonsense, so
    /// a poisoned lock is taken all the same.
    ///
    /// # Panics
    /// If they are lent: a local bug.
    pub(super) fn lock(&self) -> MutexGuard<'_, Box<[u8]>> {
        match &self.place {
            Place::Own(bytes) => lock(bytes),
            Place::Lent(_) | Place::Direct(_) | Place::Gone => {
                panic!("memory lent to the device is only sent")
            }
        }
    }

    /// Whether it is the device's own, which may be received into.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.place, Place::Own(_))
    }

    /// Whether the bytes of reads may come here.
    pub(super) fn takes_reads(&self) -> bool {
        !matches!(self.place, Place::Lent(_) | Place::Gone)
    }

    /// Whether the peer may use these bytes, its access aside.
    pub(super) fn is_open(&self, range: Range<usize>) -> bool {
        match &self.place {
            Place::Own(_) => true,
            Place::Lent(_) | Place::Gone => false,
            Place::Direct(memory) => memory.upgrade().is_some_and(|memory| memory.is_lent(range)),
        }
    }

    /// Copies `bytes` in. `false`: they have no place there any more.
    pub(super) fn copy_in(&self, offset: usize, bytes: &[u8]) -> bool {
        match &self.place {
            Place::Own(_) => {
                self.lock()[offset..offset + bytes.len()].copy_from_slice(bytes);
                true
            }
            Place::Lent(_) | Place::Gone => false,
            Place::Direct(memory) => memory.upgrade().is_some_and(|memory| memory.copy_in(offset, bytes)),
        }
    }

    /// Copies `range` to `offset` of another memory. `false`: some of these bytes may not be used.
    pub(super) fn copy_over(&self, range: Range<usize>, to: &Memory, offset: usize) -> bool {
        let len = range.len();
        if to.is_own() {
            return self.copy_to(range, &mut &mut to.lock()[offset..offset + len]);
        }
        // Both may be parts of one memory, which has one lock.
        let mut held = Vec::with_capacity(len);
        self.copy_to(range, &mut held) && to.copy_in(offset, &held)
    }

    /// Appends a copy of the bytes to `out`. `false`: they are lent and may change.
    pub(super) fn copy_to(&self, range: Range<usize>, out: &mut dyn BufMut) -> bool {
        match &self.place {
            Place::Own(_) => {
                out.put_slice(&self.lock()[range]);
                true
            }
            Place::Lent(memory) => memory.copy_to(range, out),
            Place::Direct(memory) => memory.upgrade().is_some_and(|memory| memory.copy_to(range, out)),
            Place::Gone => false,
        }
    }

    /// Offsets of the `len` bytes at address `addr`, if they lie inside.
    pub(super) fn locate(&self, addr: u64, len: u32) -> Option<Range<usize>> {
        let offset = addr.checked_sub(self.region.addr)?;
        self.range(offset, len)
    }

    /// `offset..offset + len`, if it lies inside.
    pub(super) fn range(&self, offset: u64, len: u32) -> Option<Range<usize>> {
        let end = offset.checked_add(u64::from(len))?;
        (end <= u64::from(self.region.len)).then_some(offset as usize..end as usize)
    }
}
