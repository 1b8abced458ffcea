//! Two connections on a simulated reliable link: every step of it is a method, so that a test, a random list or
//! a model checker decides what happens next. Order is kept in each direction; nothing is lost; delays are
//! whatever the caller makes them. Bytes are really moved and really checked.

mod side;

use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, XferMemory};
use valkey_rdma_proto::work::{Completion, FailureStatus, Outcome, SendOp};
use valkey_rdma_proto::{CloseReason, Direction, Event, Instant, Role};

pub use self::side::{Executed, Setup, Side};

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Client,
    Server,
}

impl End {
    pub const BOTH: [End; 2] = [End::Client, End::Server];

    pub fn other(self) -> End {
        match self {
            End::Client => End::Server,
            End::Server => End::Client,
        }
    }
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A client's message found no receive at the server, which kills its queue pair (clause C-1).
    ReceiverNotReady,
    /// A write outside of the peer's windows (clause W-1).
    RemoteAccess,
    /// More receives posted than there are.
    ReceiveQueueOverflow,
    /// More sends posted than the queue takes (clause L-1).
    SendQueueOverflow,
    /// A control message was overwritten on its way.
    SlotInUse,
    /// Data was overwritten before the peer's device had acknowledged it.
    StagingOverwritten,
    /// A reply was read, or a transfer was complete, before the bytes were in place (clause D-3).
    TransferNotThere,
    /// The reader got another byte than the writer wrote.
    WrongByte { position: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    sides: [Side; 2],
    now: Instant,
    /// Poll the cores for work only on request: late polling must cost nothing but time.
    pub lazy: bool,
    /// Break clause W-4: every sender sees a window one byte shorter than it is.
    pub skip_tail: bool,
}

impl std::ops::Index<End> for Pair {
    type Output = Side;

    fn index(&self, end: End) -> &Side {
        &self.sides[end as usize]
    }
}

impl std::ops::IndexMut<End> for Pair {
    fn index_mut(&mut self, end: End) -> &mut Side {
        &mut self.sides[end as usize]
    }
}

/// More steps than any test takes: what needs more does not come to rest.
const STEPS: usize = 20_000;

impl Pair {
    /// Two sides with their receives posted, not established.
    pub fn new(client: &Setup, server: &Setup) -> Self {
        let sides = [Side::new(Role::Client, client), Side::new(Role::Server, server)];
        let mut pair = Self { sides, now: Instant::default(), lazy: false, skip_tail: false };
        End::BOTH.iter().for_each(|&end| pair.pump(end));
        pair
    }

    /// Two sides that know each other's memory.
    pub fn connected(client: &Setup, server: &Setup) -> Self {
        let mut pair = Self::new(client, server);
        End::BOTH.iter().for_each(|&end| pair.establish(end));
        pair.settle();
        for side in &pair.sides {
            let rest: Vec<_> =
                side.events.iter().filter(|event| !matches!(event, Event::Agreed { .. })).collect();
            assert_eq!(rest, [&Event::Connected]);
        }
        pair
    }

    /// Two sides with default setups that know each other's memory.
    pub fn usual() -> Self {
        Self::connected(&Setup::new(Role::Client), &Setup::new(Role::Server))
    }

    pub fn now(&self) -> Instant {
        self.now
    }

    /// `end` sees that it is established.
    pub fn establish(&mut self, end: End) {
        let now = self.now;
        self[end].established = true;
        self[end].core.handle_established(now);
        self.after(end);
    }

    pub fn write(&mut self, end: End, len: u64) -> u64 {
        let written = self[end].write(len);
        self.after(end);
        written
    }

    pub fn lend(&mut self, end: End, len: u64) -> u64 {
        let lent = self[end].lend(len);
        self.after(end);
        lent
    }

    /// Transfers, if the sides have agreed on that.
    pub fn direct(&mut self, direction: Direction, len: u32) {
        if self[End::Server].core.may_transfer() {
            self[End::Server].transfer(direction, len);
            self.after(End::Server);
        }
    }

    pub fn read(&mut self, end: End, len: u64) -> u64 {
        let read = self[end].read(len);
        let there = self[end].has_written(&self[end.other()].transfers, self[end].read);
        if !there {
            self[end].faults.push(Fault::TransferNotThere);
        }
        self.after(end);
        read
    }

    pub fn close(&mut self, end: End) {
        let now = self.now;
        self[end].core.close(now);
        self.after(end);
    }

    /// The oldest send of `end` arrives. Returns whether anything happened.
    pub fn deliver(&mut self, end: End) -> bool {
        let Some(send) = self[end].sends.front().cloned() else { return false };
        if !self[end.other()].up {
            self[end].fail(send.request.wr_id, FailureStatus::RetryExceeded);
            self.cut(end);
            return true;
        }
        let op = send.request.op;
        let bytes = self[end].bytes(&send);
        let mut arriving = bytes.clone();
        if self.skip_tail {
            shorten(op, &mut arriving);
        }
        match self[end.other()].arrive(op, &arriving) {
            // A server's queue pair retries for ever, a client's not once (clause H-5).
            None if end == End::Server => return false,
            None => return self.fault(end, Fault::ReceiverNotReady),
            Some(Err(fault)) => return self.fault(end, fault),
            Some(Ok(())) => {}
        }
        self[end].sends.pop_front();
        self[end].messages_out += u64::from(op.consumes_receive());
        self[end].executed.push_back(Executed { sent: send, bytes });
        true
    }

    /// `end` learns that its sends arrived, up to the next one that is signalled.
    pub fn acknowledge(&mut self, end: End) -> bool {
        let mut any = false;
        while let Some(Executed { sent, bytes }) = self[end].executed.pop_front() {
            any = true;
            let request = sent.request;
            if matches!(request.op, SendOp::Read { .. }) {
                self[end].fill_read(request.local);
            } else if self[end].bytes(&sent) != bytes {
                // The device might have had to send it again until now.
                self[end].faults.push(Fault::StagingOverwritten);
            } else if sent.message.is_none() {
                self[end].clear(request.local);
            }
            if request.signalled {
                let completion = Completion { wr_id: request.wr_id, outcome: Outcome::Sent };
                self[end].completions.push_back((completion, Vec::new()));
                break;
            }
        }
        any
    }

    /// `end` takes one completion.
    pub fn poll(&mut self, end: End) -> bool {
        let now = self.now;
        let polled = self[end].poll(now);
        self.after(end);
        polled
    }

    /// `end` learns that its peer disconnected, after every completion (clause X-2).
    pub fn hang_up(&mut self, end: End) -> bool {
        if !self[end].hung_up {
            return false;
        }
        while self.poll(end) {}
        let now = self.now;
        self[end].hung_up = false;
        self[end].core.handle_disconnected(now);
        self.pump(end);
        true
    }

    /// Everything that can happen on the link happens, until nothing does.
    pub fn settle(&mut self) {
        for _ in 0..STEPS {
            let mut any = false;
            for end in End::BOTH {
                // A disconnect is known long before the retries of a device are exhausted.
                any |= self.hang_up(end) | self.deliver(end) | self.acknowledge(end) | self.poll(end);
            }
            if !any {
                return self.check();
            }
        }
        panic!("does not come to rest");
    }

    /// Writes `len` bytes at `end` and reads them all at the other end.
    pub fn transfer(&mut self, end: End, len: u64) {
        let mut left = len;
        let target = self[end].written + len;
        for _ in 0..STEPS {
            left -= self.write(end, left);
            self.settle();
            self.read(end.other(), u64::MAX);
            self.settle();
            if self[end.other()].read == target {
                return;
            }
        }
        panic!("{left} bytes are never taken");
    }

    /// When something is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.sides.iter().filter_map(|side| side.core.poll_timeout()).min()
    }

    /// Time passes; deadlines are met when they come, and the link settles in between.
    pub fn elapse(&mut self, time: Duration) {
        let until = self.now + time;
        self.settle();
        while let Some(deadline) = self.next_deadline().filter(|&next| next <= until) {
            self.now = self.now.max(deadline);
            for end in End::BOTH {
                let now = self.now;
                self[end].core.handle_timeout(now);
                self.pump(end);
            }
            self.settle();
        }
        self.now = until;
    }

    /// Time passes; deadlines that have passed are handled at the end.
    pub fn expire(&mut self, time: Duration) {
        self.now = self.now + time;
        for end in End::BOTH {
            let now = self.now;
            self[end].core.handle_timeout(now);
            self.after(end);
        }
    }

    /// Neither side saw what must never happen.
    pub fn check(&self) {
        assert_eq!(self.faults(), []);
    }

    pub fn faults(&self) -> Vec<Fault> {
        self.sides.iter().flat_map(|side| side.faults.iter().copied()).collect()
    }

    /// How the connection ended at `end`. Told once or not at all.
    pub fn close_reason(&self, end: End) -> Option<CloseReason> {
        let reasons: Vec<_> = self[end]
            .events
            .iter()
            .filter_map(|event| match event {
                Event::Closed { reason } => Some(*reason),
                _ => None,
            })
            .collect();
        assert!(reasons.len() <= 1, "closed once: {reasons:?}");
        reasons.first().copied()
    }

    fn fault(&mut self, end: End, fault: Fault) -> bool {
        self[end].faults.push(fault);
        self.cut(end);
        true
    }

    fn after(&mut self, end: End) {
        if !self.lazy {
            self.pump(end);
        }
    }

    /// Does the work the core of `end` has.
    pub fn pump(&mut self, end: End) {
        let now = self.now;
        if self[end].pump(now) {
            self.cut(end);
            // What had arrived before is still the application's.
            while self.poll(end) {}
        }
    }

    /// The queue pair of `end` fails: nothing leaves it or arrives at it, and the peer sees a disconnect.
    pub fn cut(&mut self, end: End) {
        if !self[end].up {
            return;
        }
        let side = &mut self[end];
        side.up = false;
        side.executed.clear();
        let sends: Vec<_> = side.sends.drain(..).map(|send| send.request.wr_id).collect();
        let receives: Vec<_> = side.posted.drain(..).map(|receive| receive.wr_id).collect();
        for wr_id in sends.into_iter().chain(receives) {
            side.fail(wr_id, FailureStatus::Flushed);
        }
        let other = end.other();
        self[other].hung_up |= self[other].up;
    }
}

/// Takes one byte off the window that a Register offers.
fn shorten(op: SendOp, bytes: &mut [u8]) {
    if op != SendOp::Send {
        return;
    }
    if let Ok(ControlMessage::RegisterXferMemory(memory)) = ControlMessage::decode(bytes) {
        let shorter = XferMemory { len: memory.len - 1, ..memory };
        bytes.copy_from_slice(&ControlMessage::RegisterXferMemory(shorter).encode());
    }
}
