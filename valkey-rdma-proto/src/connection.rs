//! The state machine of one side of one connection.

mod agreement;
mod closing;
mod counters;
mod credits;
mod handshake;
mod output;
mod receiving;
mod send_buffer;
mod send_queue;
mod sending;
mod transfers;
mod windows;

use alloc::collections::VecDeque;
use core::ops::Range;
use core::time::Duration;

pub use counters::Counters;
pub use output::{DeliveryReport, Event, Resources, Work, control_region_len};
pub use transfers::{Direction, Transfer};

use self::credits::Credits;
use self::send_buffer::SendBuffer;
use self::send_queue::{Outbox, SendQueue};
use self::sending::CONTROL_RESERVE;
use self::transfers::Transfers;
use self::windows::{RxWindow, TxWindow};
use crate::config::{Config, Role};
use crate::error::CloseReason;
use crate::features::FeatureSet;
use crate::time::{Instant, Timer, Timers};
use crate::work::{Completion, Outcome, RegionId, Slice, WrKind};

/// One side of one connection.
///
/// Inputs: [`handle_established`](Self::handle_established), [`handle_completion`](Self::handle_completion),
/// [`handle_disconnected`](Self::handle_disconnected), [`handle_device_failure`](Self::handle_device_failure),
/// [`handle_timeout`](Self::handle_timeout). Outputs, to be polled in this order after each input:
/// [`poll_work`](Self::poll_work) until it returns `None`, [`poll_timeout`](Self::poll_timeout),
/// [`poll_event`](Self::poll_event). Late polling costs time, never correctness.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Connection {
    role: Role,
    config: Config,
    state: State,
    now: Instant,
    rx: RxWindow,
    tx: TxWindow,
    send_buffer: SendBuffer,
    transfers: Transfers,
    queue: SendQueue,
    credits: Credits,
    outbox: Outbox,
    timers: Timers,
    /// Receive slots to post.
    receives: VecDeque<u32>,
    /// Number of receive slots.
    receive_slots: u32,
    control: RegionId,
    max_piece: u32,
    /// Bytes sent by plain WRITEs, which the next immediate announces too.
    unannounced: u32,
    /// Whether the next immediate announces the last bytes of a lent slice.
    lending_ends: bool,
    /// Whether the application has requested an acknowledgement.
    fence_wanted: bool,
    events: VecDeque<Event>,
    /// The keepalive in flight: its send number, and the periods since it was sent.
    keepalive: Option<(u64, u32)>,
    /// The features that both sides use, once that is known.
    agreed: Option<FeatureSet>,
    /// When data began to wait for the peer's window.
    stalled_since: Option<Instant>,
    counters: Counters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// The queue pair is not connected yet.
    Connecting,
    /// The application closed before the queue pair was connected. The connection is completed and then closed,
    /// because a request that vanishes half way crashes a Valkey server (clause H-6).
    Abandoned,
    /// Connected; the handshake may not be complete.
    Open,
    /// The application has closed; the bytes it wrote are being delivered.
    Closing,
    /// Everything was delivered; waits so that the peer can disconnect first.
    Lingering,
    /// The next work is the disconnect.
    Disconnecting,
    /// Ended.
    Closed,
}

impl Connection {
    /// Creates a connection that is not established yet. Its first work is to post all receives; do that before
    /// you connect or accept (clause H-1).
    ///
    /// # Panics
    /// If there is no receive buffer, if the receive buffers differ in length, if the send buffer is empty, or if the
    /// send queue is too short for any data.
    pub fn new(role: Role, config: Config, resources: Resources<'_>) -> Self {
        assert!(resources.send_depth > CONTROL_RESERVE, "the send queue has room for data");
        let limit = (role == Role::Client).then_some(config.credit_limit.clamp(4, 1024));
        let agreed = config.agreed_from_the_start(role);
        let mut send_buffer = SendBuffer::new(resources.send_buffer, resources.send_buffer_len);
        if agreed.is_none() {
            send_buffer.seal();
        }
        Self {
            role,
            state: State::Connecting,
            now: Instant::default(),
            rx: RxWindow::new(resources.rx),
            tx: TxWindow::default(),
            send_buffer,
            transfers: Transfers::default(),
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
            fence_wanted: false,
            events: VecDeque::new(),
            keepalive: None,
            agreed,
            stalled_since: None,
            counters: Counters { credits_low_water: limit, ..Counters::default() },
            config,
        }
    }

    /// Input: a work request finished. `message` holds the bytes of a receive that ended as [`Outcome::Received`];
    /// it is ignored for other outcomes.
    pub fn handle_completion(&mut self, now: Instant, completion: Completion, message: &[u8]) {
        self.now = now;
        let result = match (completion.wr_id.kind(), completion.outcome) {
            (WrKind::Send(sequence), Outcome::Sent) => {
                self.handle_sent(sequence);
                Ok(())
            }
            (WrKind::Receive(_), outcome) if self.is_closed() => self.handle_late_arrival(outcome, message),
            _ if self.is_closed() => Ok(()),
            (kind, Outcome::Failed(status)) => self.handle_failure(kind, status),
            (WrKind::Receive(slot), Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. }) => {
                self.take_receive(slot);
                self.handle_message(len, message)
            }
            (WrKind::Receive(slot), Outcome::Written { byte_len, imm }) => {
                self.take_receive(slot);
                self.handle_written(byte_len, imm)
            }
            // Devices do not report these.
            (WrKind::Receive(_), Outcome::Sent) | (WrKind::Send(_), _) => Ok(()),
        };
        if let Err(error) = result {
            self.end(CloseReason::Protocol(error));
        }
    }

    /// Input: the peer disconnected. Hand over all completions first, or replies that arrived just before are lost
    /// (clause X-2).
    pub fn handle_disconnected(&mut self, now: Instant) {
        self.now = now;
        match self.state {
            State::Lingering | State::Abandoned => self.end_here(),
            _ => self.end(CloseReason::Peer),
        }
    }

    /// Input: the device rejected a work request or was removed.
    pub fn handle_device_failure(&mut self, now: Instant) {
        self.now = now;
        self.end(CloseReason::Device);
    }

    /// Input: the time that [`poll_timeout`](Self::poll_timeout) returned has come. Early and repeated calls are
    /// harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.now = now;
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Handshake => {
                    let after = self.config.handshake_timeout;
                    // A client waits for its answer too; a server has nothing else to wait for, even before it is established.
                    self.end(match (self.role, self.tx.is_registered()) {
                        (Role::Client, true) => CloseReason::NoAnswer { after },
                        _ => CloseReason::HandshakeTimeout { after },
                    });
                }
                Timer::Keepalive => self.keep_alive(),
                Timer::Idle => {
                    let after = self.config.idle_timeout.unwrap_or_default();
                    self.end(CloseReason::IdleTimeout { after });
                }
                Timer::Stall => {
                    let after = self.config.stall_timeout.unwrap_or_default();
                    self.end(CloseReason::StallTimeout { after });
                }
                Timer::Close | Timer::Linger => self.end_here(),
            }
        }
    }

    /// Returns the contiguous range of the send buffer that the application may fill next. Fill it, then
    /// [`commit`](Self::commit). Empty while the connection cannot take more: try again after a completion. Empty until
    /// it is known which features are [agreed](Self::agreed).
    pub fn reserve(&self) -> Range<u32> {
        if self.is_closing() { 0..0 } else { self.send_buffer.free() }
    }

    /// Returns how many bytes the application may fill or [lend](Self::lend) in all: those of
    /// [`reserve`](Self::reserve), and those at the front of the ring after them. Lent bytes count as if they were in
    /// the send buffer. At least three quarters of the send buffer are free once every signalled send has completed.
    pub fn room(&self) -> u32 {
        if self.is_closing() { 0 } else { self.send_buffer.room() }
    }

    /// Replaces the send buffer by another one. Bytes that wait in the former one leave from there, so its region must stay
    /// registered until [`delivery_report`](Self::delivery_report) counts them as delivered. No effect before the features are
    /// [agreed](Self::agreed), and none on a connection that is closing.
    ///
    /// # Panics
    /// If the new one is shorter than the bytes that are outstanding.
    pub fn replace_send_buffer(&mut self, region: RegionId, len: u32) {
        if !self.is_closing() && self.agreed.is_some() {
            self.send_buffer.replace(region, len);
            self.queue.set_send_buffer_len(len);
        }
    }

    /// Asks the device to acknowledge everything that was sent so far, for [`delivery_report`](Self::delivery_report). Otherwise the last
    /// bytes before a pause may stay unknown until more is sent. Costs a write of 0 bytes, which the peer does not see; nothing if an
    /// acknowledgement is due anyway. No effect on a connection that is closing.
    pub fn request_acknowledgement(&mut self) {
        self.fence_wanted |= !self.is_closing() && self.queue.has_unsignalled_tail();
    }

    /// Sends the first `len` bytes of [`reserve`](Self::reserve), which the application has filled. No effect if the
    /// connection has closed in the meantime.
    ///
    /// # Panics
    /// If `len` exceeds what [`reserve`](Self::reserve) returned.
    pub fn commit(&mut self, len: u32) {
        if !self.is_closing() {
            self.send_buffer.commit(len);
        }
    }

    /// Sends bytes of a region of the application, without copying them into the send buffer, after everything
    /// committed so far. No effect if the connection has closed in the meantime.
    ///
    /// The bytes must not change until [`delivery_report`](Self::delivery_report) counts them as delivered or the device
    /// has ended the connection, because the device may have to send them again.
    ///
    /// # Panics
    /// If the slice is longer than [`room`](Self::room).
    pub fn lend(&mut self, slice: Slice) {
        if !self.is_closing() {
            self.send_buffer.lend(slice);
        }
    }

    /// Returns the next contiguous received bytes. Copy them out, then [`consume`](Self::consume). There are none until it
    /// is known which features are [agreed](Self::agreed).
    pub fn readable(&self) -> Option<Slice> {
        if self.agreed.is_some() { self.rx.readable() } else { None }
    }

    /// Frees the first `len` bytes of [`readable`](Self::readable), which the application has copied out.
    ///
    /// # Panics
    /// If `len` exceeds what [`readable`](Self::readable) returned.
    pub fn consume(&mut self, len: u32) {
        self.rx.consume(len);
        self.offer_next_buffer();
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
        matches!(self.state, State::Open)
            && self.receives.is_empty()
            && self.outbox.is_empty()
            && self.send_buffer.waiting() == 0
            && self.transfers.is_posted()
            && !self.credits.wants_probe()
            && !self.fence_wanted
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
        self.poll_message()
            .or_else(|| self.poll_data(clock))
            .or_else(|| self.poll_transfer())
            .or_else(|| self.poll_requested_fence())
            .or_else(|| self.poll_closing(clock))
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is due, or `None` if no deadline is set.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Returns the next event for the application, or `None` if there is none for now.
    #[must_use]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns whether both sides know each other's memory, and a client knows which features are
    /// [agreed](Self::agreed).
    pub fn is_connected(&self) -> bool {
        self.tx.is_registered()
            && !matches!(self.state, State::Connecting | State::Abandoned)
            && (self.agreed.is_some() || self.role == Role::Server)
    }

    /// Returns whether the connection has ended: nothing more can be written, and nothing more will arrive.
    pub fn is_closed(&self) -> bool {
        matches!(self.state, State::Disconnecting | State::Closed)
    }

    /// Returns whether the application has closed or the connection has ended: nothing more can be written.
    pub fn is_closing(&self) -> bool {
        !matches!(self.state, State::Connecting | State::Open)
    }

    /// Returns the length of the peer's window in bytes; 0 before its first Register.
    pub fn peer_window(&self) -> u32 {
        self.tx.len()
    }

    /// Returns the length of our window in bytes.
    pub fn window(&self) -> u32 {
        self.rx.len()
    }

    /// Returns the length of the send buffer in bytes.
    pub fn send_buffer(&self) -> u32 {
        self.send_buffer.len()
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The device gave a receive back. It is posted again before other work.
    fn take_receive(&mut self, slot: u32) {
        if slot < self.receive_slots {
            self.receives.push_back(slot);
        }
        self.reset_idle_timer();
    }

    /// Something arrived from the peer: the idle deadline starts again.
    fn reset_idle_timer(&mut self) {
        if let (Some(limit), State::Open) = (self.config.idle_timeout, self.state) {
            self.timers.set(Timer::Idle, self.now, limit);
        }
    }

    /// A period of zero means no keepalives; otherwise time could not pass.
    fn keepalive_period(&self) -> Option<Duration> {
        self.config.keepalive.filter(|period| !period.is_zero())
    }
}
