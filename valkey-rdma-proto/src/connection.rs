//! The connection: told what happened, asked what to do.

mod closing;
mod counters;
mod credits;
mod outbox;
mod output;
mod receiving;
mod rx;
mod send_buffer;
mod send_queue;
mod sending;
mod timers;
mod tx;

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

pub use counters::Counters;
pub use output::{DeliveryReport, Event, Resources, Work, control_region_len};

use self::credits::Credits;
use self::outbox::Outbox;
use self::rx::RxWindow;
use self::send_buffer::SendBuffer;
use self::send_queue::SendQueue;
use self::sending::CONTROL_RESERVE;
use self::timers::{Timer, Timers};
use self::tx::TxWindow;
use crate::config::{Config, Role};
use crate::error::CloseReason;
use crate::time::Instant;
use crate::work::{Completion, Outcome, RegionId, Slice, WrKind};

/// One side of one connection.
///
/// Told: [`handle_established`](Self::handle_established), [`handle_completion`](Self::handle_completion),
/// [`handle_disconnected`](Self::handle_disconnected), [`handle_device_failure`](Self::handle_device_failure),
/// [`handle_timeout`](Self::handle_timeout). Asked after each of these, in this order: [`poll_work`](Self::poll_work) until it has none,
/// [`poll_timeout`](Self::poll_timeout), [`poll_event`](Self::poll_event). Asking late costs time, never correctness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    role: Role,
    config: Config,
    state: State,
    now: Instant,
    rx: RxWindow,
    tx: TxWindow,
    send_buffer: SendBuffer,
    queue: SendQueue,
    credits: Credits,
    outbox: Outbox,
    timers: Timers,
    /// Receive slots to post.
    receives: VecDeque<u32>,
    /// How many there are.
    receive_slots: u32,
    control: RegionId,
    max_piece: u32,
    /// Bytes written plainly, which the next immediate announces too.
    unannounced: u32,
    /// Whether the next immediate announces the last ones of some that were lent.
    lending_ends: bool,
    events: VecDeque<Event>,
    /// The send number of the keepalive under way, and the periods it has been under way.
    keepalive: Option<(u64, u32)>,
    /// Since when data waits for the peer's window.
    stalled_since: Option<Instant>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The queue pair is not connected yet.
    Connecting,
    /// The application closed before that. The connection is completed all the same, then closed: a request that
    /// vanishes half way crashes a reference server (hazard H11).
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
    /// If the resources make no sense: no receive buffer, unequal ones, an empty send buffer, a send queue too
    /// short for any data.
    pub fn new(role: Role, config: Config, resources: Resources<'_>) -> Self {
        assert!(resources.send_depth > CONTROL_RESERVE, "the send queue has room for data");
        let limit = (role == Role::Client).then_some(config.credit_limit.clamp(4, 1024));
        Self {
            role,
            state: State::Connecting,
            now: Instant::default(),
            rx: RxWindow::new(resources.rx),
            tx: TxWindow::default(),
            send_buffer: SendBuffer::new(resources.send_buffer, resources.send_buffer_len),
            queue: SendQueue::new(resources.send_depth, resources.send_buffer_len),
            credits: Credits::new(limit),
            outbox: Outbox::new(resources.control, resources.receives),
            timers: Timers::default(),
            receives: (0..resources.receives).collect(),
            receive_slots: resources.receives,
            control: resources.control,
            max_piece: config.max_piece.min(resources.max_message).max(1),
            unannounced: 0,
            lending_ends: false,
            events: VecDeque::new(),
            keepalive: None,
            stalled_since: None,
            counters: Counters { credits_low_water: limit, ..Counters::default() },
            config,
        }
    }

    /// The peer's connect request was accepted. From here on the peer has the handshake deadline to get as far
    /// as its first Register: a client that is gone by now may never be reported (clause H-4).
    ///
    /// A client has no such deadline, because giving up half way harms a server (clause H-6).
    pub fn handle_accepted(&mut self, now: Instant) {
        self.now = now;
        if (self.role, self.state) == (Role::Server, State::Connecting) {
            self.timers.set(Timer::Handshake, now, self.config.handshake_timeout);
        }
    }

    /// The queue pair is connected: offers our memory to the peer (clause H-2).
    pub fn handle_established(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Connecting => self.state = State::Open,
            State::Abandoned => return self.handle_late_established(),
            _ => return,
        }
        let memory = self.rx.register_first();
        self.send_register(memory);
        // The peer's Register may have been faster than the news that we are established.
        if self.is_connected() {
            self.timers.stop(Timer::Handshake);
            self.events.push_back(Event::Connected);
        } else {
            self.timers.set(Timer::Handshake, now, self.config.handshake_timeout);
        }
        if let Some(period) = self.keepalive_period() {
            self.timers.set(Timer::Keepalive, now, period);
        }
        self.reset_idle_timer();
    }

    /// The application has closed by now: what it wrote before is delivered all the same.
    fn handle_late_established(&mut self) {
        self.start_closing();
        if !self.is_closed() {
            let memory = self.rx.register_first();
            self.send_register(memory);
        }
    }

    /// A work request finished. `message` holds the bytes of a receive that ended as [`Outcome::Received`];
    /// it is not looked at otherwise.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion, message: &[u8]) {
        self.now = now;
        let result = match (completion.wr_id.kind(), completion.outcome) {
            // What had arrived when the connection ended is still the application's, and so is the knowledge
            // of what arrived at the peer. Nothing else matters any more.
            (WrKind::Receive(_), Outcome::Written { byte_len, imm }) if self.is_closed() => {
                self.handle_written(byte_len, imm)
            }
            (WrKind::Send(sequence), Outcome::Sent) => {
                self.handle_sent(sequence);
                Ok(())
            }
            _ if self.is_closed() => Ok(()),
            (_, Outcome::Failed(status)) => {
                self.handle_failure(status);
                Ok(())
            }
            (WrKind::Receive(slot), Outcome::Received { len }) => {
                self.take_receive(slot);
                self.handle_message(len, message)
            }
            (WrKind::Receive(slot), Outcome::Written { byte_len, imm }) => {
                self.take_receive(slot);
                self.handle_written(byte_len, imm)
            }
            // No device reports these.
            (WrKind::Receive(_), Outcome::Sent) | (WrKind::Send(_), _) => Ok(()),
        };
        if let Err(error) = result {
            self.end(CloseReason::Protocol(error));
        }
    }

    /// The peer disconnected. Hand over every completion there is before telling this, or replies that
    /// arrived just before are lost (hazard H17).
    pub fn handle_disconnected(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Lingering | State::Abandoned => self.end_here(),
            _ => self.end(CloseReason::Peer),
        }
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
                Timer::Idle => self.end(CloseReason::IdleTimeout),
                Timer::Stall => {
                    let after = self.config.stall_timeout.unwrap_or_default();
                    self.end(CloseReason::StallTimeout { after });
                }
                Timer::Close | Timer::Linger => self.end_here(),
            }
        }
    }

    /// Offsets of the send_buffer region that the application may fill next, in one piece. Empty while the
    /// connection cannot take more: try again after a completion. Fill, then [`commit`](Self::commit).
    pub fn reserve(&self) -> Range<u32> {
        if self.is_closing() { 0..0 } else { self.send_buffer.free() }
    }

    /// How many bytes the application may fill or [lend](Self::lend) in all: those of [`reserve`](Self::reserve), and
    /// those at the front of the ring after them. Bytes lent count as if they were in the send buffer. At least three
    /// quarters of the send buffer once every signalled send has completed.
    pub fn room(&self) -> u32 {
        if self.is_closing() { 0 } else { self.send_buffer.room() }
    }

    /// The first `len` bytes of [`reserve`](Self::reserve) are filled and shall be sent. Without effect if the
    /// connection has closed in between: nothing is taken after that.
    ///
    /// # Panics
    /// If they are more than were offered.
    pub fn commit(&mut self, len: u32) {
        if !self.is_closing() {
            self.send_buffer.commit(len);
        }
    }

    /// These bytes shall be sent after everything committed so far, from where they lie: a region of the application's
    /// own, not the send buffer. Without effect if the connection has closed in between.
    ///
    /// They must not change until so many bytes are [delivered](Self::delivery_report) that they are among them, or the device
    /// has given up the connection: it may have to send them again until then (hazard H20).
    ///
    /// # Panics
    /// If they are more than there is [`room`](Self::room) for.
    pub fn lend(&mut self, slice: Slice) {
        if !self.is_closing() {
            self.send_buffer.lend(slice);
        }
    }

    /// The next received bytes that lie in one piece. Copy them out, then [`consume`](Self::consume).
    pub fn readable(&self) -> Option<Slice> {
        self.rx.readable()
    }

    /// The application has copied out the first `len` bytes of [`readable`](Self::readable).
    ///
    /// # Panics
    /// If they are more than were offered.
    pub fn consume(&mut self, len: u32) {
        self.rx.consume(len);
        self.rotate();
    }

    /// Returns the next work for the device, or `None` if there is none for now. Post consecutive sends with one
    /// doorbell.
    ///
    /// `clock` returns the current time. It is called only when a wait begins, because reading a clock for every message
    /// would cost more than the rest of this call.
    #[must_use]
    #[inline]
    pub fn poll_work(&mut self, clock: impl Fn() -> Instant) -> Option<Work> {
        // Called after every read and write; usually there is nothing to do.
        if self.is_settled() { None } else { self.next_work(&clock) }
    }

    /// Whether there is certainly no work. A connection with data that waits for window or credits is not settled.
    fn is_settled(&self) -> bool {
        self.state == State::Open
            && self.receives.is_empty()
            && self.outbox.is_empty()
            && self.send_buffer.waiting() == 0
            && !self.credits.wants_probe()
    }

    fn next_work(&mut self, clock: &dyn Fn() -> Instant) -> Option<Work> {
        match self.state {
            State::Closed => return None,
            State::Disconnecting => {
                self.state = State::Closed;
                return Some(Work::Disconnect);
            }
            _ => {}
        }
        if let Some(work) = self.poll_receive() {
            return Some(work);
        }
        if matches!(self.state, State::Connecting | State::Abandoned) {
            return None;
        }
        self.poll_message().or_else(|| self.poll_data(clock)).or_else(|| self.poll_closing(clock))
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
        self.send_buffer.len()
    }

    /// The counts so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The device gives a receive back. It is posted again before anything else is done.
    fn take_receive(&mut self, slot: u32) {
        if slot < self.receive_slots {
            self.receives.push_back(slot);
        }
        self.reset_idle_timer();
    }

    /// Something was heard from the peer: the idle deadline starts again.
    fn reset_idle_timer(&mut self) {
        if let (Some(limit), State::Open) = (self.config.idle_timeout, self.state) {
            self.timers.set(Timer::Idle, self.now, limit);
        }
    }

    /// A period of zero means none, or time would never pass.
    fn keepalive_period(&self) -> Option<Duration> {
        self.config.keepalive.filter(|period| !period.is_zero())
    }
}
