//! [`Queue`]: commands on their way to the server, and the clients that wait for their replies.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use valkey_rdma_transport::sync::keep_waker;

use super::repeat::repeatable;
use crate::session::inbox::Inbox;

/// Commands of one client that were queued together.
pub(super) struct Slot {
    pub(super) inbox: Arc<Inbox>,
    /// Replies that have not arrived.
    pub(super) replies: u32,
    /// Where its bytes begin, counted from the first byte ever queued.
    begin: u64,
    len: usize,
    pub(super) queued: Instant,
    /// Since when it waits for a connection, if there is none.
    waits_since: Instant,
    /// It was sent on a connection that was lost, and only reads.
    pub(super) is_repeated: bool,
    /// It is sent when all before it is answered, and nothing is sent behind it until it is answered.
    is_alone: bool,
}

impl Slot {
    /// Commands of a client.
    pub(super) fn counted(&self) -> u32 {
        if self.inbox.is_of_gateway() { 0 } else { self.replies }
    }

    /// Its bytes, of those that begin at `begin`.
    fn of<'a>(&self, bytes: &'a [u8], begin: u64) -> &'a [u8] {
        let from = usize::try_from(self.begin - begin).unwrap_or(usize::MAX);
        bytes.get(from..from.saturating_add(self.len)).unwrap_or_default()
    }
}

/// Slots in the order of their bytes: first those of `sent`, then the driver's batch, which ends at `taken`, then `bytes`.
#[derive(Default)]
pub(super) struct Queue {
    slots: VecDeque<Slot>,
    bytes: Vec<u8>,
    /// Batches that were written, and have commands without a reply.
    sent: VecDeque<Vec<u8>>,
    /// Where `sent` begins.
    sent_begin: u64,
    /// Memory for the next batches.
    spare: Vec<Vec<u8>>,
    taken: u64,
    /// Bytes that the connection has accepted.
    written: u64,
    /// How many bytes of the reply to the first slot were passed on, if it has begun and not ended.
    begun: Option<usize>,
    task: Option<Waker>,
    closed: bool,
    /// Bytes of the slots of all queues.
    total: Arc<AtomicUsize>,
}

/// What the loss of a connection leaves without an answer, and how many commands.
#[derive(Default)]
pub(super) struct Lost {
    /// One of them may be here several times.
    pub(super) clients: Vec<Arc<Inbox>>,
    pub(super) may_have_run: u64,
    pub(super) not_sent: u64,
    pub(super) sent_again: u64,
}

impl Queue {
    /// An empty queue, whose bytes are counted in `total` until their commands are answered.
    pub(super) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { total, ..Self::default() }
    }

    /// Appends commands, which if `is_alone` have no others in flight beside them. Returns the task to wake.
    pub(super) fn push(
        &mut self,
        inbox: &Arc<Inbox>,
        bytes: &[u8],
        replies: u32,
        queued: Instant,
        is_alone: bool,
    ) -> Option<Waker> {
        let begin = self.taken + self.bytes.len() as u64;
        let (inbox, len) = (inbox.clone(), bytes.len());
        let waits_since = queued;
        let slot = Slot { inbox, replies, begin, len, queued, waits_since, is_repeated: false, is_alone };
        self.slots.push_back(slot);
        self.total.fetch_add(bytes.len(), Ordering::Relaxed);
        self.bytes.extend_from_slice(bytes);
        self.task.take()
    }

    /// Exchanges `batch`, which was written, for all that may be sent now. Returns when its first command was queued, and how many of clients it has.
    pub(super) fn take(&mut self, batch: &mut Vec<u8>, cx: &Context<'_>) -> Option<(Instant, usize)> {
        if !batch.is_empty() {
            self.sent.push_back(std::mem::replace(batch, self.spare.pop().unwrap_or_default()));
            self.free_answered();
        }
        if self.bytes.is_empty() {
            keep_waker(&mut self.task, cx);
            return None;
        }
        let begin = self.slots.partition_point(|slot| slot.begin < self.taken);
        let Some(end) = self.sendable(begin) else {
            keep_waker(&mut self.task, cx);
            return None;
        };
        let commands = self.slots.range(begin..end).map(|slot| slot.counted() as usize).sum();
        let queued = self.slots.get(begin).map_or_else(Instant::now, |slot| slot.queued);
        let len = self.slots.get(end).map_or(self.bytes.len() as u64, |slot| slot.begin - self.taken);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        // The empty batch has memory that is used again.
        std::mem::swap(&mut self.bytes, batch);
        self.bytes.extend(batch.drain(len..));
        self.taken += batch.len() as u64;
        Some((queued, commands))
    }

    /// Up to which slot those from `begin` on may be sent, behind those before it, which are not answered. `None` if none may.
    fn sendable(&self, begin: usize) -> Option<usize> {
        let is_alone = |at: usize| self.slots.get(at).is_some_and(|slot| slot.is_alone);
        match begin.checked_sub(1) {
            Some(last) if is_alone(last) || is_alone(begin) => None,
            None if is_alone(begin) => Some(1),
            _ => Some((begin..self.slots.len()).find(|at| is_alone(*at)).unwrap_or(self.slots.len())),
        }
    }

    /// Whether commands wait. If not, has the task woken for the next.
    pub(super) fn has_commands(&mut self, cx: &Context<'_>) -> bool {
        keep_waker(&mut self.task, cx);
        !self.slots.is_empty()
    }

    /// Counts bytes that the connection has accepted.
    pub(super) fn wrote(&mut self, len: usize) {
        self.written += len as u64;
    }

    /// The client that the next reply is for, if its command was sent.
    pub(super) fn first(&self) -> Option<&Slot> {
        self.slots.front().filter(|slot| slot.begin < self.written)
    }

    /// Whether others should not wait behind the first reply: the server owes it since longer than [`STALL`], or it is [`LARGE`] and
    /// arrives at present.
    pub(super) fn is_stalled(&self, now: Instant) -> bool {
        self.owed_for(now) > STALL || self.begun.is_some_and(|bytes| bytes >= LARGE)
    }

    /// For how long the server has owed the first reply. Zero if it owes none.
    pub(super) fn owed_for(&self, now: Instant) -> Duration {
        self.first().map_or(Duration::ZERO, |slot| now.saturating_duration_since(slot.queued))
    }

    /// Counts complete replies of the first slot, and the bytes of the next one if a part of it was passed on.
    pub(super) fn answered(&mut self, replies: u32, begun: Option<usize>) {
        let before = self.begun.filter(|_| replies == 0).unwrap_or(0);
        self.begun = begun.map(|bytes| before + bytes);
        let Some(first) = self.slots.front_mut() else { return };
        first.replies -= replies;
        if first.replies == 0 {
            self.total.fetch_sub(first.len, Ordering::Relaxed);
            self.slots.pop_front();
            self.free_answered();
        }
    }

    /// Frees batches whose commands are all answered.
    fn free_answered(&mut self) {
        let begin = self.slots.front().map_or(self.taken, |slot| slot.begin);
        while let Some(oldest) = self.sent.front()
            && self.sent_begin + oldest.len() as u64 <= begin
        {
            self.sent_begin += oldest.len() as u64;
            let mut free = self.sent.pop_front().unwrap_or_default();
            if self.spare.len() < SPARE {
                free.clear();
                free.shrink_to(KEPT);
                self.spare.push(free);
            }
        }
    }

    /// After a loss: takes out the clients that are not answered. They have commands of which something was written, and which do more
    /// than read, or were written for the second time, or are half answered. The commands of other clients are put back, in order.
    /// `batch` is the one that was being written.
    pub(super) fn lose(&mut self, batch: &[u8]) -> Lost {
        let mut bytes = self.sent.drain(..).collect::<Vec<_>>().concat();
        bytes.extend_from_slice(batch);
        bytes.append(&mut self.bytes);
        let begin = self.sent_begin;
        let sent = self.slots.partition_point(|slot| slot.begin < self.written);
        let mut lost = Lost::default();
        let mut closed = HashSet::new();
        let mut half_answered = self.begun.take().is_some();
        for slot in self.slots.range_mut(..sent) {
            let is_half_answered = std::mem::take(&mut half_answered);
            let again = repeatable(slot.of(&bytes, begin), slot.replies);
            let again = again.filter(|_| !slot.is_repeated && !is_half_answered);
            let Some(len) = again else {
                closed.insert(Arc::as_ptr(&slot.inbox));
                continue;
            };
            self.total.fetch_sub(slot.len - len, Ordering::Relaxed);
            slot.begin += (slot.len - len) as u64;
            (slot.len, slot.is_repeated) = (len, true);
        }
        // Until now they waited for replies to others, not for a connection.
        let now = Instant::now();
        let mut kept = VecDeque::new();
        for (at, mut slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let was_sent = at < sent;
            if closed.contains(&Arc::as_ptr(&slot.inbox)) {
                self.total.fetch_sub(slot.len, Ordering::Relaxed);
                let counter = if was_sent { &mut lost.may_have_run } else { &mut lost.not_sent };
                *counter += u64::from(slot.counted());
                lost.clients.push(slot.inbox);
                continue;
            }
            if was_sent {
                lost.sent_again += u64::from(slot.counted());
            }
            slot.waits_since = now;
            kept.push_back(slot);
        }
        self.put_back(&mut kept, &bytes, begin);
        lost
    }

    /// Queues slots again, whose bytes are in `bytes`, which begin at `begin`.
    fn put_back(&mut self, slots: &mut VecDeque<Slot>, bytes: &[u8], begin: u64) {
        for slot in slots.iter_mut() {
            let queued = self.bytes.len() as u64;
            self.bytes.extend_from_slice(slot.of(bytes, begin));
            slot.begin = self.taken + queued;
        }
        self.slots.append(slots);
        (self.sent_begin, self.written) = (self.taken, self.taken);
    }

    /// Takes slots that have waited since `limit`, or longer. Call it while there is no connection.
    pub(super) fn take_older(&mut self, limit: Instant) -> Vec<Slot> {
        let old = self.slots.partition_point(|slot| slot.waits_since <= limit);
        let slots = self.take_out(old);
        let end = self.slots.front().map_or(self.taken + self.bytes.len() as u64, |slot| slot.begin);
        let gone = usize::try_from(end - self.taken).unwrap_or(0);
        self.bytes.drain(..gone);
        (self.sent_begin, self.taken, self.written) = (end, end, end);
        slots
    }

    /// Takes slots of clients that have ended or, if `after_outage`, have closed their side. Call it while there is no connection.
    pub(super) fn take_left(&mut self, after_outage: bool) -> VecDeque<Slot> {
        let bytes = std::mem::take(&mut self.bytes);
        let begin = self.taken;
        let (left, mut kept): (VecDeque<_>, VecDeque<_>) = self
            .slots
            .drain(..)
            .partition(|slot| slot.inbox.has_ended() || after_outage && slot.inbox.has_left());
        self.put_back(&mut kept, &bytes, begin);
        self.total.fetch_sub(left.iter().map(|slot: &Slot| slot.len).sum(), Ordering::Relaxed);
        left
    }

    /// Since when its first command waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.slots.front().map(|slot| slot.waits_since)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.slots.iter().map(|slot| slot.replies as usize).sum()
    }

    /// Closes an empty queue. `false` if it is not empty.
    pub(super) fn close(&mut self) -> bool {
        self.closed = self.slots.is_empty();
        self.closed
    }

    /// Closes the queue and takes all that is in it.
    pub(super) fn abandon(&mut self) -> Vec<Slot> {
        self.closed = true;
        (self.bytes, self.sent) = Default::default();
        self.take_out(self.slots.len())
    }

    fn take_out(&mut self, count: usize) -> Vec<Slot> {
        let slots: Vec<_> = self.slots.drain(..count).collect();
        self.total.fetch_sub(slots.iter().map(|slot| slot.len).sum(), Ordering::Relaxed);
        slots
    }

    /// The task to wake.
    pub(super) fn take_task(&mut self) -> Option<Waker> {
        self.task.take()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// Batches whose memory is kept, and how much of it each.
const SPARE: usize = 4;
const KEPT: usize = 64 * 1024;
/// A connection without a reply for this long may run a long script, or wait for the end of CLIENT PAUSE.
const STALL: Duration = Duration::from_millis(100);
/// Bytes of a reply that take longer to arrive than another connection to be used.
const LARGE: usize = 1 << 20;

#[cfg(test)]
mod tests;
