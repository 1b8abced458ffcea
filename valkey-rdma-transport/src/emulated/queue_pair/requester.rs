//! The half of a queue pair that sends: keeps what was posted until the peer's device has answered, in order.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;

use tokio::time::Instant;
use valkey_rdma_proto::work::{FailureStatus, SendOp, SendRequest, WrId};

use super::responder::Span;
use super::{Memory, QueuePair, QueuePairState};
use crate::emulated::{MAX_MESSAGE, RNR_RETRY_FOREVER, earlier, refused};
use crate::error::TransportError;

/// Sends that the peer's device has not acknowledged, oldest first.
///
/// Each has a sequence number, counted over the connection from 0. The first `asked` of them are on their way.
#[derive(Debug)]
pub(in crate::emulated) struct SendQueue {
    waiting: VecDeque<Waiting>,
    /// Sequence number of the oldest.
    first: u64,
    asked: usize,
    /// The peer had no receive posted and will say when it has.
    on_hold: bool,
    /// When the retries are used up that a receiver who is not ready is granted. Counts only while on hold.
    not_ready_deadline: Option<Instant>,
    /// Since when the peer's device has left a request without an answer.
    unanswered_since: Option<Instant>,
    /// When the next request falls due, if it was asked for too early.
    next_due: Option<Instant>,
    /// No request arrives before one that was posted earlier, whatever their delays.
    last_due: Option<Instant>,
    /// Retries granted to a peer that has no receive posted; 7 means without end. The peer's choice.
    pub(in crate::emulated) rnr_retry_count: u8,
    /// Reads that may be on their way at once, as agreed upon while connecting.
    pub(in crate::emulated) read_depth: u8,
    /// Reads among those asked.
    reads: u8,
}

impl Default for SendQueue {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            first: 0,
            asked: 0,
            on_hold: false,
            not_ready_deadline: None,
            unanswered_since: None,
            next_due: None,
            last_due: None,
            rnr_retry_count: RNR_RETRY_FOREVER,
            read_depth: 0,
            reads: 0,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    request: SendRequest,
    /// Not before that.
    due: Option<Instant>,
    /// How it is to fail, if a test asked for that.
    fault: Option<FailureStatus>,
}

impl Waiting {
    fn is_read(&self) -> bool {
        matches!(self.request.op, SendOp::Read { .. })
    }
}

/// A request on its way to the peer's responder.
#[derive(Debug)]
pub(in crate::emulated) struct InFlightSend {
    pub(in crate::emulated) sequence: u64,
    pub(in crate::emulated) request: SendRequest,
    /// This side's memory: the source of the bytes, or of a read where they go.
    pub(in crate::emulated) local: Memory,
    pub(in crate::emulated) range: Range<usize>,
}

/// An answer that matches no request.
#[derive(Debug)]
pub(in crate::emulated) struct UnexpectedAnswer;

impl SendQueue {
    /// The identities of everything that waits, which then waits no more.
    pub(in crate::emulated) fn take_all(&mut self) -> impl Iterator<Item = WrId> + use<> {
        self.forget_asked();
        self.on_hold = false;
        self.not_ready_deadline = None;
        self.unanswered_since = None;
        self.next_due = None;
        std::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.request.wr_id)
    }

    /// When [`QueuePair::expire`] has something to do, or a delayed request may go. This is reported once: whether it
    /// does is up to the link.
    pub(in crate::emulated) fn deadline(&self, retry_timeout: std::time::Duration) -> Option<Instant> {
        let unanswered = self.unanswered_since.map(|since| since + retry_timeout);
        earlier(earlier(self.next_due, self.not_ready_deadline()), unanswered)
    }

    fn not_ready_deadline(&self) -> Option<Instant> {
        self.not_ready_deadline.filter(|_| self.on_hold)
    }

    pub(in crate::emulated) fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered_since
    }

    /// Something was heard of the peer's device, so what it has not answered is being worked on.
    pub(in crate::emulated) fn heard(&mut self) {
        if let Some(since) = &mut self.unanswered_since {
            *since = Instant::now();
        }
    }

    /// Nothing is heard of the peer's device from now on.
    pub(in crate::emulated) fn unanswered(&mut self) {
        if !self.waiting.is_empty() {
            self.unanswered_since.get_or_insert_with(Instant::now);
        }
    }

    fn pop(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.first += 1;
        if self.asked > 0 {
            self.asked -= 1;
            self.reads -= u8::from(waiting.is_read());
        }
        self.not_ready_deadline = None;
        if self.waiting.is_empty() {
            self.unanswered_since = None;
        }
        Some(waiting)
    }

    /// What was asked has to be asked again.
    fn forget_asked(&mut self) {
        self.asked = 0;
        self.reads = 0;
    }

    /// How many requests an answer to `sequence` answers, itself included.
    fn answered(&self, sequence: u64) -> Result<usize, UnexpectedAnswer> {
        let before = sequence.checked_sub(self.first).ok_or(UnexpectedAnswer)?;
        let before = usize::try_from(before).map_err(|_| UnexpectedAnswer)?;
        if before < self.asked { Ok(before + 1) } else { Err(UnexpectedAnswer) }
    }
}

impl QueuePair {
    /// Posts a send.
    pub(in crate::emulated) fn post_send(&mut self, request: SendRequest) -> Result<(), TransportError> {
        if self.state == QueuePairState::Init {
            return Err(refused("ibv_post_send", io::ErrorKind::InvalidInput));
        }
        if !self.take_send_entry() {
            return Err(refused("ibv_post_send", io::ErrorKind::OutOfMemory));
        }
        let fault = self.plan.fails_send();
        if self.state == QueuePairState::Error {
            self.fail_send(request.wr_id, FailureStatus::Flushed);
            return Ok(());
        }
        let due = self.plan.delays().map(|delay| {
            let due = Instant::now() + delay;
            self.sends.last_due.map_or(due, |last| due.max(last))
        });
        self.sends.last_due = due.or(self.sends.last_due);
        // A request without a delay still goes after those that have one.
        let due = due.or(self.sends.last_due);
        self.sends.waiting.push_back(Waiting { request, due, fault });
        Ok(())
    }

    /// The next request to carry to the peer, if one may go now.
    pub(in crate::emulated) fn ask(&mut self) -> Option<InFlightSend> {
        if self.state != QueuePairState::Ready || self.sends.on_hold {
            return None;
        }
        let next = self.sends.waiting.get_mut(self.sends.asked)?;
        self.sends.next_due = next.due.filter(|due| *due > Instant::now());
        if self.sends.next_due.is_some() {
            return None;
        }
        next.due = None;
        let is_read = next.is_read();
        if is_read && self.sends.reads >= self.sends.read_depth {
            return None;
        }
        let (request, fault) = (next.request, next.fault);
        let slice = request.local;
        // What is lent, the device may not write.
        let local = self.memory(slice.region).filter(|memory| memory.takes_reads() || !is_read).cloned();
        let local = local
            .and_then(|memory| memory.range(slice.offset.into(), slice.len).map(|range| (memory, range)));
        let (local, range) = match (fault, local) {
            (Some(status), _) => return self.fail_unsent(status),
            (None, None) => return self.fail_unsent(FailureStatus::LocalProtection),
            (None, Some(_)) if slice.len > MAX_MESSAGE => {
                return self.fail_unsent(FailureStatus::LocalLength);
            }
            (None, Some(local)) => local,
        };
        let sequence = self.sends.first + self.sends.asked as u64;
        self.sends.asked += 1;
        self.sends.reads += u8::from(is_read);
        Some(InFlightSend { sequence, request, local, range })
    }

    /// A request that cannot go fails once those before it have been answered.
    fn fail_unsent(&mut self, status: FailureStatus) -> Option<InFlightSend> {
        if self.sends.asked == 0 {
            self.fail_oldest(status);
        }
        None
    }

    /// The peer's device has carried out every request up to `sequence`.
    pub(in crate::emulated) fn acknowledged(&mut self, sequence: u64) -> Result<(), UnexpectedAnswer> {
        for _ in 0..self.sends.answered(sequence)? {
            // A read is answered by its bytes only.
            if self.sends.waiting.front().is_some_and(Waiting::is_read) {
                return Err(UnexpectedAnswer);
            }
            self.complete_oldest();
        }
        Ok(())
    }

    fn acknowledged_before(&mut self, sequence: u64) -> Result<(), UnexpectedAnswer> {
        match self.sends.answered(sequence)? - 1 {
            0 => Ok(()),
            before => self.acknowledged(self.sends.first + before as u64 - 1),
        }
    }

    /// The `len` bytes that read `sequence` asked for are about to come. Returns where they go, unless the queue pair has
    /// failed; then they go nowhere.
    pub(in crate::emulated) fn read_place(
        &mut self,
        sequence: u64,
        len: u32,
    ) -> Result<Span, UnexpectedAnswer> {
        self.acknowledged_before(sequence)?;
        // The last completion may have been one too many.
        if self.state != QueuePairState::Ready {
            return Ok(None);
        }
        let oldest = self.sends.waiting.front().filter(|oldest| oldest.is_read());
        let slice = oldest.map(|oldest| oldest.request.local).filter(|slice| slice.len == len);
        let slice = slice.ok_or(UnexpectedAnswer)?;
        let memory = self.memory(slice.region).ok_or(UnexpectedAnswer)?;
        Ok(memory.range(slice.offset.into(), len).map(|range| (memory.clone(), range)))
    }

    /// The bytes of the oldest request, a read, are in place. Nothing happens if the queue pair has failed.
    pub(in crate::emulated) fn read_done(&mut self) {
        if self.sends.asked > 0 {
            self.complete_oldest();
        }
    }

    fn complete_oldest(&mut self) {
        if let Some(done) = self.sends.pop() {
            self.complete_send(done.request.wr_id, done.request.signalled);
        }
    }

    /// The peer's device found no receive for request `sequence`, and has dropped those behind it. `timer` is the
    /// time between two retries; in fact there is one, as soon as the peer [has receives](Self::resume), and the
    /// timer only says how long that may take.
    pub(in crate::emulated) fn not_ready(
        &mut self,
        sequence: u64,
        timer: std::time::Duration,
    ) -> Result<(), UnexpectedAnswer> {
        self.acknowledged_before(sequence)?;
        // Its last completion may have been one too many.
        if self.state != QueuePairState::Ready {
            return Ok(());
        }
        self.sends.forget_asked();
        self.sends.on_hold = true;
        match self.sends.rnr_retry_count {
            0 => self.fail_oldest(FailureStatus::RnrRetryExceeded),
            RNR_RETRY_FOREVER.. => {}
            retries => {
                let limit = timer * u32::from(retries);
                self.sends.not_ready_deadline.get_or_insert_with(|| Instant::now() + limit);
            }
        }
        Ok(())
    }

    /// The peer's device refused request `sequence`.
    pub(in crate::emulated) fn denied(
        &mut self,
        sequence: u64,
        status: FailureStatus,
    ) -> Result<(), UnexpectedAnswer> {
        self.acknowledged_before(sequence)?;
        self.fail_oldest(status);
        Ok(())
    }

    /// The peer has receives again.
    pub(in crate::emulated) fn resume(&mut self) {
        self.sends.on_hold = false;
    }

    /// The peer's device did not take what was asked: it will be asked again.
    pub(in crate::emulated) fn rewind(&mut self) {
        self.sends.forget_asked();
        self.sends.unanswered();
    }

    /// Fails what has waited too long.
    pub(in crate::emulated) fn expire(&mut self) {
        let now = Instant::now();
        let retry_timeout = self.plan.retry_timeout();
        self.sends.next_due.take_if(|due| *due <= now);
        if self.sends.not_ready_deadline().is_some_and(|deadline| deadline <= now) {
            self.fail_oldest(FailureStatus::RnrRetryExceeded);
        } else if self.sends.unanswered_since.is_some_and(|since| since + retry_timeout <= now) {
            self.fail_oldest(FailureStatus::RetryExceeded);
        }
    }

    fn fail_oldest(&mut self, status: FailureStatus) {
        if let Some(failed) = self.sends.pop() {
            self.fail_send(failed.request.wr_id, status);
            self.fail();
        }
    }
}
