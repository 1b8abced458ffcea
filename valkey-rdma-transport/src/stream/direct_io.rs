//! What the direct transfers of one connection use: registered memory, slots for bytes that are copied, and what is held until a
//! transfer is complete.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use valkey_rdma_proto::work::{Region, RegionId, Slice};

use crate::device::Access;
use crate::direct::{Cut, DirectMemory, LeftBehind, LentSlice, WeakDirectMemory};
use crate::send_memory::{PinnedSlice, SendMemory};
use crate::sync::{Mutex, lock};

/// Drop it after the device.
#[derive(Default)]
pub(super) struct DirectIo {
    registered: Vec<(WeakDirectMemory, Access, Region)>,
    /// What regions kept that are deregistered. To be dropped without holding the connection's lock: its owner may wait for other threads.
    pub(super) deregistered: Vec<SendMemory>,
    /// Ends this connection, once something was exposed.
    pub(super) cut: Option<Cut>,
    /// Ranges that were exposed, and dropped while the peer could use them.
    pub(super) left_behind: LeftBehind,
    /// What transfers use, each with its number: given back when that is complete, or after the device is gone.
    pub(super) held: VecDeque<(u64, Held)>,
    /// Memory for bytes that the device cannot reach where they lie, once there were any.
    pub(super) staging: Option<RegionId>,
    /// The last transfer of each slot of it.
    slots: [u64; STAGING_SLOTS],
    /// The slot that is used next. All transfers complete in order, so it is free before the others.
    next: usize,
}

/// What a transfer uses.
pub(super) enum Held {
    /// Bytes to be written.
    Source { _bytes: PinnedSlice },
    /// Where bytes go that are read.
    Target { _slice: ReadTarget },
    /// What the caller wants to be dropped then.
    Guard { _guard: Guard },
}

pub(super) type Guard = Box<dyn Any + Send>;

/// The place for bytes that are being read. The connection and the caller hold it: so it comes back although the caller does not
/// wait, and not before the device has finished.
#[derive(Clone)]
pub(super) struct ReadTarget(Arc<Mutex<Option<LentSlice>>>);

impl ReadTarget {
    pub(super) fn new(slice: LentSlice) -> Self {
        Self(Arc::new(Mutex::new(Some(slice))))
    }

    /// Takes it, when the bytes have arrived.
    pub(super) fn take(&self) -> Option<LentSlice> {
        lock(&self.0).take()
    }
}

impl DirectIo {
    /// Where this memory is registered with exactly this access: the peer gets no more than was asked for.
    pub(super) fn registered(&self, memory: &DirectMemory, access: Access) -> Option<Region> {
        let same =
            |(known, given, _): &&(WeakDirectMemory, Access, Region)| *given == access && known.is(memory);
        self.registered.iter().find(same).map(|(_, _, region)| *region)
    }

    /// Whether these bytes lie in memory that is registered already: to copy them would pin more.
    pub(super) fn knows(&self, bytes: &PinnedSlice) -> bool {
        self.registered.iter().any(|(known, ..)| known.contains(bytes.memory()))
    }

    /// Takes the regions whose memory nothing uses any more.
    pub(super) fn take_unused(&mut self) -> Vec<Region> {
        let is_unused = |(memory, _, _): &mut (WeakDirectMemory, Access, Region)| memory.is_unused();
        self.registered.extract_if(.., is_unused).map(|(_, _, region)| region).collect()
    }

    pub(super) fn add(&mut self, memory: &DirectMemory, access: Access, region: Region) {
        self.registered.push((memory.downgrade(), access, region));
    }

    /// The transfer that must be complete before the next slot can be used.
    pub(super) fn slot_free_after(&self) -> u64 {
        self.slots[self.next]
    }

    /// Where the next slot is.
    pub(super) fn next_slot(&self, staging: RegionId, len: usize) -> Slice {
        Slice { region: staging, offset: self.next as u32 * STAGED_PIECE as u32, len: len as u32 }
    }

    /// The slot is in use until this transfer is complete.
    pub(super) fn slot_used(&mut self, transfer: u64) {
        self.slots[self.next] = transfer;
        self.next = (self.next + 1) % STAGING_SLOTS;
    }

    /// Keeps this until the transfer is complete.
    pub(super) fn hold(&mut self, transfer: u64, held: Held) {
        // Another may have started meanwhile: all are in the order of their transfers.
        let at = self.held.partition_point(|(number, _)| *number <= transfer);
        self.held.insert(at, (transfer, held));
    }

    /// Takes what the first `complete` transfers used.
    pub(super) fn take_transferred(&mut self, complete: u64) -> Vec<Held> {
        let count = self.held.partition_point(|(transfer, _)| *transfer <= complete);
        self.held.drain(..count).map(|(_, held)| held).collect()
    }
}

/// Most bytes of one slot.
pub(super) const STAGED_PIECE: usize = 256 << 10;

const STAGING_SLOTS: usize = 4;

/// Length of all slots.
pub(super) const STAGING: u32 = (STAGING_SLOTS * STAGED_PIECE) as u32;
