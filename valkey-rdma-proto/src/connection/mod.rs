//! The connection: told what happened, asked what to do.

mod counters;
mod credits;
mod outbox;
mod rx;
mod send_queue;
mod staging;
mod timers;
mod tx;

use alloc::collections::VecDeque;
use core::ops::Range;

pub use counters::Counters;

use self::credits::{Credits, Kind};
use self::outbox::{Outbox, SEND_SLOTS};
use self::rx::RxWindow;
use self::send_queue::SendQueue;
use self::staging::Staging;
use self::timers::{Timer, Timers};
use self::tx::TxWindow;
use crate::config::{Config, Role};
use crate::error::{CloseReason, ProtocolError};
use crate::time::Instant;
use crate::wire::{ControlMessage, Features, MESSAGE_LEN, XferMemory};
use crate::work::{
    Completion, FailureStatus, Outcome, ReceiveRequest, Region, RegionId, SendOp, SendRequest, Slice, WrId,
    WrKind,
};

/// Send queue entries kept free of data, so that a Register or an answer can always leave.
const CONTROL_RESERVE: u32 = 4;

/// The memory and the queue depths that a connection works with. The transport registers the regions.
#[derive(Clone, Debug)]
pub struct Resources<'a> {
    /// Region for control messages, of [`command_region_len`] bytes.
    pub commands: RegionId,
    /// Region for data to send.
    pub staging: RegionId,
    /// Length of the staging region in bytes.
    pub staging_len: u32,
    /// Regions that the peer may write, one or more of equal length.
    pub rx: &'a [Region],
    /// How many receives to keep posted.
    pub receives: u32,
    /// Depth of the send queue, in work requests.
    pub send_depth: u32,
    /// Largest message of one work request, in bytes.
    pub max_message: u32,
}

/// Length in bytes of the command region for a number of posted receives.
pub fn command_region_len(receives: u32) -> u32 {
    (receives + SEND_SLOTS) * MESSAGE_LEN as u32
}

/// What the connection wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Post this receive.
    Receive(ReceiveRequest),
    /// Put these bytes at the request's local slice, then post it.
    Message(SendRequest, [u8; MESSAGE_LEN]),
    /// Post this send; its bytes are in place.
    Data(SendRequest),
    /// Disconnect: nothing follows.
    Disconnect,
}

/// What the application should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Both sides know each other's memory; data can flow.
    Connected,
    /// The connection is over. Bytes announced before remain readable.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}

/// One side of one connection.
///
/// Told: [`handle_established`](Self::handle_established), [`handle_completion`](Self::handle_completion),
/// [`handle_disconnected`](Self::handle_disconnected), [`handle_device_failure`](Self::handle_device_failure),
/// [`handle_timeout`](Self::handle_timeout). Asked after each of these, in this order: [`poll_work`](Self::poll_work) until it has none,
/// [`poll_timeout`](Self::poll_timeout), [`poll_event`](Self::poll_event). Asking late costs time, never correctness.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Config,
    state: State,
    now: Instant,
    rx: RxWindow,
    tx: TxWindow,
    staging: Staging,
    queue: SendQueue,
    credits: Credits,
    outbox: Outbox,
    timers: Timers,
    /// Receive slots to post.
    receives: VecDeque<u32>,
    commands: RegionId,
    max_piece: u32,
    events: VecDeque<Event>,
    /// The send number of the keepalive under way, and the periods it has been under way.
    keepalive: Option<(u64, u32)>,
    /// Since when data waits for the peer's window.
    stalled_since: Option<Instant>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The queue pair is not connected yet.
    Connecting,
    /// The application closed before that. The connection is completed all the same, then disconnected: a
    /// request that vanishes half way crashes a reference server (hazard H11).
    Abandoned,
    /// Connected; the handshake may still be under way.
    Open,
    /// The application has closed; what it wrote is being delivered.
    Closing,
    /// Everything was delivered; the peer may disconnect first.
    Lingering,
    /// A disconnect is to be done.
    Disconnecting,
    /// Over.
    Closed,
}

impl Connection {
    /// A connection that is not established yet. Its first work is to post all receives: do that before
    /// connecting or accepting (clause H-1).
    ///
    /// # Panics
    /// If the resources make no sense: no receive buffer, unequal ones, an empty send buffer.
    pub fn new(role: Role, config: Config, resources: Resources<'_>) -> Self {
        let limit = (role == Role::Client).then_some(config.credit_limit.clamp(8, 1023));
        Self {
            role,
            state: State::Connecting,
            now: Instant::default(),
            rx: RxWindow::new(resources.rx),
            tx: TxWindow::default(),
            staging: Staging::new(resources.staging, resources.staging_len),
            queue: SendQueue::new(resources.send_depth, resources.staging_len),
            credits: Credits::new(limit),
            outbox: Outbox::new(resources.commands, resources.receives),
            timers: Timers::default(),
            receives: (0..resources.receives).collect(),
            commands: resources.commands,
            max_piece: config.max_piece.min(resources.max_message).max(1),
            events: VecDeque::new(),
            keepalive: None,
            stalled_since: None,
            counters: Counters::default(),
            config,
        }
    }

    /// The queue pair is connected: offers our memory to the peer (clause H-2).
    pub fn handle_established(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Connecting => self.state = State::Open,
            State::Abandoned => return self.end(CloseReason::Local),
            _ => return,
        }
        let memory = self.rx.register_first();
        self.send_register(memory);
        if !self.tx.is_registered() {
            self.timers.set(Timer::Handshake, now, self.config.handshake_timeout);
        }
        if let Some(period) = self.config.keepalive {
            self.timers.set(Timer::Keepalive, now, period);
        }
    }

    /// A work request finished. `message` holds the bytes of a receive that ended as [`Outcome::Received`];
    /// it is not looked at otherwise.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion, message: &[u8]) {
        self.now = now;
        // What had arrived when the connection ended is still the application's.
        if self.state == State::Closed && !matches!(completion.outcome, Outcome::Written { .. }) {
            return;
        }
        let result = match (completion.wr_id.kind(), completion.outcome) {
            (_, Outcome::Failed(status)) => {
                self.handle_failure(status);
                Ok(())
            }
            (WrKind::Send(sequence), _) => {
                self.handle_sent(sequence);
                Ok(())
            }
            (WrKind::Receive(slot), Outcome::Received { .. }) => {
                self.receives.push_back(slot);
                self.handle_message(message)
            }
            (WrKind::Receive(slot), Outcome::Written { byte_len, imm }) => {
                self.receives.push_back(slot);
                self.handle_written(byte_len, imm)
            }
            (WrKind::Receive(_), Outcome::Sent) => Ok(()),
        };
        if let Err(error) = result {
            self.end(CloseReason::Protocol(error));
        }
    }

    /// The peer disconnected. Hand over every completion there is before telling this, or replies that
    /// arrived just before are lost (hazard H17).
    pub fn handle_disconnected(&mut self, now: Instant) {
        self.now = now;
        let reason = match self.state {
            State::Lingering | State::Abandoned => CloseReason::Local,
            _ => CloseReason::Peer,
        };
        self.end(reason);
    }

    /// The device refused a work request, or is gone.
    pub fn handle_device_failure(&mut self, now: Instant) {
        self.now = now;
        self.end(CloseReason::Device);
    }

    /// The moment told by [`poll_timeout`](Self::poll_timeout) has come. Early and repeated calls are
    /// harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Handshake => self.end(CloseReason::HandshakeTimeout),
                Timer::Keepalive => self.keep_alive(),
                Timer::Close => {
                    self.end(CloseReason::LocalUnfinished { bytes: self.staging.unacknowledged() });
                }
                Timer::Linger => self.end(CloseReason::Local),
            }
        }
    }

    /// Offsets of the staging region that the application may fill next, in one piece. Empty while the
    /// connection cannot take more: try again after a completion. Fill, then [`commit`](Self::commit).
    pub fn reserve(&self) -> Range<u32> {
        match self.state {
            State::Connecting | State::Open => self.staging.free(),
            _ => 0..0,
        }
    }

    /// The first `len` bytes of [`reserve`](Self::reserve) are filled and shall be sent.
    ///
    /// # Panics
    /// If they are more than were offered.
    pub fn commit(&mut self, now: Instant, len: u32) {
        self.now = now;
        self.staging.commit(len);
    }

    /// The next received bytes that lie in one piece. Copy them out, then [`consume`](Self::consume).
    pub fn readable(&self) -> Option<Slice> {
        self.rx.readable()
    }

    /// The application has copied out the first `len` bytes of [`readable`](Self::readable).
    ///
    /// # Panics
    /// If they are more than were offered.
    pub fn consume(&mut self, now: Instant, len: u32) {
        self.now = now;
        self.rx.consume(len);
        self.rotate();
    }

    /// Closes in order: delivers what was committed, waits for its acknowledgement, then disconnects (clause
    /// Repeated calls do nothing.
    pub fn close(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Open if self.tx.is_registered() => {
                self.state = State::Closing;
                self.timers.set(Timer::Close, now, self.config.close_timeout);
            }
            State::Connecting => self.state = State::Abandoned,
            State::Open => {
                let reason = match self.staging.unacknowledged() {
                    0 => CloseReason::Local,
                    bytes => CloseReason::LocalUnfinished { bytes },
                };
                self.end(reason);
            }
            State::Abandoned | State::Closing | State::Lingering | State::Disconnecting | State::Closed => {}
        }
    }

    /// The next thing to do, until there is none. Chain consecutive sends under one doorbell.
    #[must_use]
    pub fn poll_work(&mut self) -> Option<Work> {
        match self.state {
            State::Closed => return None,
            State::Disconnecting => {
                self.state = State::Closed;
                return Some(Work::Disconnect);
            }
            _ => {}
        }
        if let Some(slot) = self.receives.pop_front() {
            return Some(Work::Receive(self.receive(slot)));
        }
        if matches!(self.state, State::Connecting | State::Abandoned) {
            return None;
        }
        if self.credits.wants_probe() && self.queue.room() > CONTROL_RESERVE && self.outbox.is_empty() {
            self.send_probe();
        }
        self.poll_message().or_else(|| self.poll_data()).or_else(|| self.poll_closing())
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due. `None`: never, as things stand.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// The next event, until there is none.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether both sides know each other's memory.
    pub fn is_connected(&self) -> bool {
        self.tx.is_registered() && !matches!(self.state, State::Connecting | State::Abandoned)
    }

    /// Whether the connection is over: nothing more can be written, and nothing more will arrive.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Disconnecting | State::Closed)
    }

    /// Whether the application has closed, or the connection is over: nothing more can be written.
    pub fn is_closing(&self) -> bool {
        !matches!(self.state, State::Connecting | State::Open)
    }

    /// Length of the peer's window in bytes; 0 before its first Register.
    pub fn peer_window(&self) -> u32 {
        self.tx.len()
    }

    /// Length of our window in bytes.
    pub fn window(&self) -> u32 {
        self.rx.len()
    }

    /// Length of the send buffer in bytes.
    pub fn send_buffer(&self) -> u32 {
        self.staging.len()
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        Counters { credits_low_water: self.credits.low_water(), ..self.counters }
    }

    fn handle_message(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        self.counters.messages_received += 1;
        let message = ControlMessage::decode(bytes)?;
        match (message, self.role) {
            (ControlMessage::RegisterXferMemory(memory), _) => self.handle_register(memory),
            (ControlMessage::Keepalive, _) | (ControlMessage::SetClientFeature(_), Role::Server) => Ok(()),
            (ControlMessage::GetServerFeature(Features { select, .. }), Role::Server) => {
                // No feature is defined, so none is offered; the selector is opaque to us (clause F-1).
                let answer = ControlMessage::GetServerFeature(Features { select, bits: 0 });
                self.outbox.push(answer, Kind::Other)
            }
            (ControlMessage::GetServerFeature(_), Role::Client) if self.credits.handle_answer() => Ok(()),
            (ControlMessage::GetServerFeature(_) | ControlMessage::SetClientFeature(_), Role::Client) => {
                Err(ProtocolError::Opcode { opcode: message.opcode() })
            }
        }
    }

    fn handle_register(&mut self, memory: XferMemory) -> Result<(), ProtocolError> {
        let was_full = self.tx.is_registered() && self.tx.room() == 0;
        let first = self.tx.handle_register(memory, self.config.max_peer_window)?;
        self.counters.registers_received += 1;
        if was_full {
            self.credits.handle_window_renewed();
        }
        if let Some(since) = self.stalled_since.take() {
            self.counters.window_stall_time += self.now - since;
        }
        if first {
            self.timers.stop(Timer::Handshake);
            self.events.push_back(Event::Connected);
        }
        Ok(())
    }

    fn handle_written(&mut self, byte_len: u32, imm: u32) -> Result<(), ProtocolError> {
        if self.rx.handle_immediate(byte_len, imm)? {
            self.credits.handle_first_bytes();
        }
        self.counters.immediates_received += 1;
        self.counters.bytes_received += u64::from(imm);
        self.rotate();
        Ok(())
    }

    fn handle_sent(&mut self, sequence: u64) {
        let Some(position) = self.queue.complete(sequence) else { return };
        self.staging.acknowledge(position);
        self.outbox.acknowledge(self.queue.acknowledged());
        if self.keepalive.is_some_and(|(number, _)| number < self.queue.acknowledged()) {
            self.keepalive = None;
        }
    }

    fn handle_failure(&mut self, status: FailureStatus) {
        let reason = match self.state {
            // The peer's disconnect can overtake its event: everything was acknowledged already.
            State::Lingering => CloseReason::Local,
            _ => CloseReason::Failed(status),
        };
        self.end(reason);
    }

    /// Offers the next receive buffer if the peer has filled the current one.
    fn rotate(&mut self) {
        if let Some(memory) = self.rx.rotate() {
            self.send_register(memory);
        }
    }

    fn send_register(&mut self, memory: XferMemory) {
        self.counters.registers_sent += 1;
        self.send_control(ControlMessage::RegisterXferMemory(memory), Kind::Register);
    }

    fn send_probe(&mut self) {
        self.counters.probes += 1;
        self.send_control(ControlMessage::GetServerFeature(Features { select: 0, bits: 0 }), Kind::Probe);
    }

    /// Our own messages are few; a full outbox means that the peer takes nothing at all.
    fn send_control(&mut self, message: ControlMessage, kind: Kind) {
        if let Err(error) = self.outbox.push(message, kind) {
            self.end(CloseReason::Protocol(error));
        }
    }

    fn keep_alive(&mut self) {
        let Some(period) = self.config.keepalive else { return };
        if !matches!(self.state, State::Open) {
            return;
        }
        self.timers.set(Timer::Keepalive, self.now, period);
        match &mut self.keepalive {
            // One outstanding, so that a peer that takes none is not buried in them (hazard H9).
            Some((_, missed)) => {
                *missed += 1;
                let missed = *missed;
                if missed >= self.config.keepalive_misses {
                    self.end(CloseReason::KeepaliveTimeout { missed });
                }
            }
            None => {
                self.keepalive = Some((u64::MAX, 0));
                self.send_control(ControlMessage::Keepalive, Kind::Other);
            }
        }
    }

    fn receive(&mut self, slot: u32) -> ReceiveRequest {
        self.counters.receives_posted += 1;
        let offset = slot * MESSAGE_LEN as u32;
        let local = Slice { region: self.commands, offset, len: MESSAGE_LEN as u32 };
        ReceiveRequest { wr_id: WrId::receive(slot), local }
    }

    fn poll_message(&mut self) -> Option<Work> {
        if self.queue.room() == 0 {
            return None;
        }
        let (message, kind, local) = self.outbox.pop()?;
        let (wr_id, signalled) = self.queue.push(self.staging.posted(), true);
        if let WrKind::Send(sequence) = wr_id.kind() {
            self.outbox.sent(sequence);
            if let (ControlMessage::Keepalive, Some((number, _))) = (message, &mut self.keepalive) {
                *number = sequence;
            }
        }
        self.credits.spend(kind);
        self.counters.messages_sent += 1;
        self.counters.work_requests += 1;
        self.counters.signalled += 1;
        Some(Work::Message(SendRequest { wr_id, local, op: SendOp::Send, signalled }, message.encode()))
    }

    fn poll_data(&mut self) -> Option<Work> {
        let mut local = self.staging.unposted();
        if local.len == 0 || !self.tx.is_registered() {
            return None;
        }
        if self.tx.room() == 0 {
            if self.stalled_since.is_none() {
                self.stalled_since = Some(self.now);
                self.counters.window_stalls += 1;
            }
            return None;
        }
        if self.queue.room() <= CONTROL_RESERVE || self.credits.left() == 0 {
            return None;
        }
        local.len = local.len.min(self.tx.room()).min(self.max_piece);
        let (addr, rkey) = self.tx.take(local.len);
        let position = self.staging.post(local.len);
        let (wr_id, signalled) = self.queue.push(position, false);
        self.credits.spend(Kind::Data);
        self.counters.work_requests += 1;
        self.counters.signalled += u64::from(signalled);
        self.counters.bytes_sent += u64::from(local.len);
        let op = SendOp::WriteWithImm { addr, rkey, imm: local.len };
        Some(Work::Data(SendRequest { wr_id, local, op, signalled }))
    }

    /// Once everything is posted: makes sure of a last completion, waits for it, lingers, disconnects.
    fn poll_closing(&mut self) -> Option<Work> {
        if self.state != State::Closing || self.staging.unposted().len > 0 || !self.outbox.is_empty() {
            return None;
        }
        if self.queue.has_unsignalled_tail() {
            return self.poll_fence();
        }
        if !self.queue.is_idle() {
            return None;
        }
        self.timers.stop(Timer::Close);
        if self.config.linger.is_zero() {
            self.end(CloseReason::Local);
            return self.poll_work();
        }
        self.state = State::Lingering;
        self.timers.set(Timer::Linger, self.now, self.config.linger);
        None
    }

    /// A write of nothing: unseen by the peer, but its completion follows those of all sends before it.
    fn poll_fence(&mut self) -> Option<Work> {
        if self.queue.room() == 0 {
            return None;
        }
        let (wr_id, signalled) = self.queue.push(self.staging.posted(), true);
        self.counters.work_requests += 1;
        self.counters.signalled += 1;
        let local = Slice { len: 0, ..self.staging.unposted() };
        let (addr, rkey) = self.tx.take(0);
        let op = SendOp::Write { addr, rkey };
        Some(Work::Data(SendRequest { wr_id, local, op, signalled }))
    }

    fn end(&mut self, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        self.state = State::Disconnecting;
        self.timers.stop_all();
        self.events.push_back(Event::Closed { reason });
    }
}
