//! The state of one connection, shared by its stream and its driver: protocol core, device, wakers.
//!
//! [`drive`](super::drive) moves it along, [`transfer`](super::transfer) has the application's sides of it.

use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;
use valkey_rdma_proto::{self as proto, CloseReason, Connection, DeliveryReport, FeatureSet, Role};

use super::device_io::{DeviceIo, Teardown};
use super::direct_io::Held;
use super::poll_policy::PollPolicy;
use crate::config::Config;
use crate::device::DeviceConnection;
use crate::direct::Cut;
use crate::error::TransportError;
use crate::limiter::ConnectionPermit;
use crate::polling::{self, Polling};
use crate::send_memory::{PinnedSlice, SendMemory};
use crate::stats::{Info, Stats};
use crate::sync::{Mutex, lock};

/// A connection behind its lock.
#[derive(Clone)]
pub(super) struct SharedConnection(Arc<Mutex<ConnectionState>>);

impl SharedConnection {
    pub(super) fn new(connection: ConnectionState) -> Self {
        Self(Arc::new(Mutex::new(connection)))
    }

    /// Runs `step` under the lock, then wakes the tasks that can go on and frees what is finished. The lock is never
    /// held across a wait, only for copies, for an application's encoding, and for calls into the device.
    pub(super) fn with<R>(&self, step: impl FnOnce(&mut ConnectionState) -> R) -> R {
        let (result, wake_set, _to_free) = {
            // After a panic elsewhere the connection can still be closed.
            let mut connection = lock(&self.0);
            let result = step(&mut connection);
            // Tasks are woken without holding the lock: a waker may drop its task, and the task this connection.
            let ended = connection.close_error.is_some();
            let ConnectionState { wakers, core, look, is_held_back, .. } = &mut *connection;
            (result, wakers.take_ready(core, *look, ended, *is_held_back), connection.take_to_free())
        };
        wake_set.wake();
        result
    }

    /// Ends the connection at once when it is called. Does not keep it.
    pub(super) fn cut_later(&self) -> Cut {
        let connection = Arc::downgrade(&self.0);
        Arc::new(move || {
            if let Some(connection) = connection.upgrade() {
                Self(connection).with(|connection| connection.cut(TransportError::Lost(CloseReason::Local)));
            }
        })
    }
}

/// One connection.
pub(super) struct ConnectionState {
    pub(super) core: Connection,
    pub(super) device: DeviceIo,
    pub(super) poll_policy: PollPolicy,
    /// A transfer has started, and was not handed to the device: that leaves with what comes next.
    pub(super) is_held_back: bool,
    pub(super) wakers: Wakers,
    /// The id of the current driver.
    pub(super) driver: u64,
    /// Why the connection has ended. `None` while it has not.
    pub(super) close_error: Option<TransportError>,
    /// The application began to shut down before the connection ended.
    shutting_down: bool,
    /// The stream was dropped: nothing will be read any more.
    discarded: bool,
    /// The most bytes reserved at once. Half of what there is, once it has failed to grow.
    pub(super) max_reservation: usize,
    /// While the send buffer has its long part.
    pub(super) look: Option<Look>,
    info: Info,
    /// Time 0 of the core's clock.
    pub(super) epoch: Instant,
}

/// What a connection no longer needs. Freed without holding its lock.
pub(super) struct ToFree {
    /// Slices of pool buffers that have been delivered. Dropping them wakes tasks that wait for a buffer.
    _delivered: Vec<PinnedSlice>,
    /// What transfers have used that are complete.
    _transferred: Vec<Held>,
    /// What the connection kept of memory that nothing uses any more.
    _deregistered: Vec<SendMemory>,
    /// The device's objects, once the connection has ended and everything that arrived was read. A [`Monitor`] does not
    /// keep them.
    ///
    /// [`Monitor`]: super::Monitor
    _teardown: Option<Teardown>,
}

impl ConnectionState {
    /// Registers all memory, posts the receives, and connects or accepts.
    pub(super) fn establish(
        device: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
        permit: Option<ConnectionPermit>,
    ) -> Result<Self, TransportError> {
        let (device_info, cq_members) = (device.device(), device.limits().cq_members);
        let (local_addr, peer_addr) = (device.local_addr(), device.peer_addr());
        let mut windows = Vec::new();
        let (device, resources) = DeviceIo::open(device, config, permit, &mut windows)?;
        let core = Connection::new(role, config.protocol(role), resources);
        let adaptive_off = if config.polling == Polling::Adaptive && !config.spin_anyway {
            polling::adaptive_off(&device_info)
        } else {
            None
        };
        if let Some(reason) = adaptive_off {
            tracing::info!(reason, device = device_info.name, peer = %peer_addr, "polling by events");
        }
        let polling = if adaptive_off.is_some() { Polling::Event } else { config.polling };
        let one_thread = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let info = Info {
            device: device_info,
            local_addr,
            peer_addr,
            window: core.window(),
            windows: windows.len() as u32,
            peer_window: 0,
            send_buffer: core.send_buffer(),
            read_depth: 0,
            cq_members,
            polling,
            adaptive_off,
        };
        let mut connection = Self {
            core,
            device,
            poll_policy: PollPolicy::new(polling, config.spin_limit, one_thread),
            is_held_back: false,
            wakers: Wakers::default(),
            driver: 0,
            close_error: None,
            shutting_down: false,
            discarded: false,
            max_reservation: config.max_reservation() as usize,
            look: None,
            info,
            epoch: Instant::now(),
        };
        connection.flush_work();
        // The receives come first (clause H-1): without them there is no connection.
        if let Some(error) = connection.close_error.take() {
            return Err(error);
        }
        connection.device.establish()?;
        if role == Role::Server {
            connection.core.handle_accepted(connection.now());
        }
        Ok(connection)
    }

    /// Waits until both sides know each other's memory. `Ready(false)`: the connection ended before.
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.core.is_connected() || self.close_error.is_some() {
            return Poll::Ready(self.close_error.is_none());
        }
        self.wakers.set_writer(cx, WriteInterest::Room(0));
        Poll::Pending
    }

    /// Waits until it is known which features are used. `Ready(None)`: the connection ended before.
    pub(super) fn poll_agreed(&mut self, cx: &mut Context<'_>) -> Poll<Option<FeatureSet>> {
        match self.core.agreed() {
            None if self.close_error.is_none() => {
                self.wakers.set_writer(cx, WriteInterest::Agreement);
                Poll::Pending
            }
            agreed => Poll::Ready(agreed),
        }
    }

    /// Registers a new driver. Returns its id, and the waker of the previous one, which stops when it is woken. Wake it
    /// without holding the lock.
    pub(super) fn replace_driver(&mut self) -> (u64, Option<Waker>) {
        self.driver += 1;
        (self.driver, self.wakers.driver.take())
    }

    /// Starts an orderly close. Repeated calls do nothing.
    fn close(&mut self) {
        self.core.close(self.now());
        self.flush_work();
    }

    /// Ends the connection with this error, without an orderly close: the peer may never answer. No effect if it has ended already.
    pub(super) fn cut(&mut self, error: TransportError) {
        self.close_error.get_or_insert(error);
        self.core.handle_device_failure(self.now());
        self.flush_work();
    }

    /// Closes, then waits for the end. Returns its error with the number of bytes that are lost.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<(TransportError, u64)> {
        self.shutting_down |= self.close_error.is_none();
        self.close();
        let Some(error) = self.close_error.clone() else {
            self.wakers.set_writer(cx, WriteInterest::End);
            return Poll::Pending;
        };
        let DeliveryReport { unknown, unsent, .. } = self.core.delivery_report();
        // If the peer left before, what was in flight is not counted: readers and writers get that error.
        Poll::Ready((error, unsent + if self.shutting_down { unknown } else { 0 }))
    }

    /// Starts an orderly close of a connection that will not be read any more.
    pub(super) fn discard(&mut self) {
        self.discarded = true;
        self.close();
    }

    /// The counters so far.
    pub(super) fn stats(&self) -> Stats {
        Stats {
            protocol: self.core.counters(),
            device: self.device.counters,
            pinned_bytes: self.device.pinned_bytes(),
            spin_budget: self.poll_policy.budget(),
        }
    }

    /// The device, the addresses and the sizes of this connection.
    pub(super) fn info(&self) -> Info {
        let (peer_window, send_buffer) = (self.core.peer_window(), self.core.send_buffer());
        Info { peer_window, send_buffer, read_depth: self.device.read_depth(), ..self.info.clone() }
    }

    /// What is not needed any more. Drop it without holding the lock.
    fn take_to_free(&mut self) -> Option<ToFree> {
        // Called after every access, and mostly there is nothing.
        let direct = &mut self.device.direct;
        let deregistered = mem::take(&mut direct.deregistered);
        if self.device.slices.is_empty()
            && direct.held.is_empty()
            && deregistered.is_empty()
            && self.close_error.is_none()
        {
            return None;
        }
        let delivered = self.device.take_delivered(self.core.delivery_report().delivered);
        let transferred = self.device.direct.take_transferred(self.core.transferred());
        let finished = self.close_error.is_some() && (self.discarded || self.core.readable().is_none());
        let teardown = if finished { self.device.take_teardown() } else { None };
        Some(ToFree {
            _delivered: delivered,
            _transferred: transferred,
            _deregistered: deregistered,
            _teardown: teardown,
        })
    }

    pub(super) fn now(&self) -> proto::Instant {
        proto::Instant::from_origin(self.epoch.elapsed())
    }
}

/// When the long part of the send buffer is looked at next, to see whether it is still of use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) at: proto::Instant,
    /// Bytes written before the last look.
    pub(super) written: u64,
}

/// When the driver has something to do although nothing comes.
pub(super) fn next_due(core: &Connection, look: Option<Look>) -> Option<proto::Instant> {
    match (core.poll_timeout(), look) {
        (Some(timeout), Some(look)) => Some(timeout.min(look.at)),
        (timeout, look) => timeout.or(look.map(|look| look.at)),
    }
}

/// The wakers of the tasks that wait, and what each waits for.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    /// The reading task waits for bytes or the end.
    pub(super) reader: Option<Waker>,
    writer: Option<Writer>,
    /// Tasks that wait for transfers, each with the number that must be complete.
    transfers: Vec<(u64, Waker)>,
    /// The driver waits for events.
    pub(super) driver: Option<Waker>,
    /// The deadline for which the driver's timer is set.
    pub(super) driver_deadline: Option<proto::Instant>,
}

#[derive(Debug)]
struct Writer {
    waker: Waker,
    interest: WriteInterest,
}

/// What a task on the writing side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteInterest {
    /// This many free bytes in the send buffer of a connected connection.
    Room(u32),
    /// Which features are used.
    Agreement,
    /// The end of the connection.
    End,
}

impl Wakers {
    /// The writing task waits.
    pub(super) fn set_writer(&mut self, cx: &Context<'_>, interest: WriteInterest) {
        self.writer = Some(Writer { waker: cx.waker().clone(), interest });
    }

    /// A task waits until `count` transfers are complete.
    pub(super) fn add_transfer(&mut self, cx: &Context<'_>, count: u64) {
        if !self.transfers.iter().any(|(other, waker)| *other == count && waker.will_wake(cx.waker())) {
            self.transfers.push((count, cx.waker().clone()));
        }
    }

    /// Takes the wakers of the tasks that have something to do now.
    fn take_ready(
        &mut self,
        core: &Connection,
        look: Option<Look>,
        ended: bool,
        is_held_back: bool,
    ) -> WakeSet {
        let mut ready = WakeSet::default();
        if self.reader.is_some() && (ended || core.readable().is_some()) {
            ready.reader = self.reader.take();
        }
        if let Some(writer) = &self.writer {
            let writable = match writer.interest {
                WriteInterest::Room(len) => core.is_connected() && core.room() >= len,
                WriteInterest::Agreement => core.agreed().is_some(),
                WriteInterest::End => false,
            };
            if ended || writable {
                ready.writer = self.writer.take().map(|writer| writer.waker);
            }
        }
        if !self.transfers.is_empty() {
            let complete = core.transferred();
            let done = self.transfers.extract_if(.., |(count, _)| ended || *count <= complete);
            ready.transfers = done.map(|(_, waker)| waker).collect();
        }
        // A deadline that moves later, as with every message, needs no wake-up: the timer fires early, and is then set
        // again.
        let timer_is_late = |due| self.driver_deadline.is_none_or(|set_for| due < set_for);
        // If what is held back leaves before it runs, it finds nothing to do.
        if self.driver.is_some() && (ended || is_held_back || next_due(core, look).is_some_and(timer_is_late))
        {
            ready.driver = self.driver.take();
        }
        ready
    }
}

/// Tasks to wake once the lock is released.
#[derive(Debug, Default)]
struct WakeSet {
    reader: Option<Waker>,
    writer: Option<Waker>,
    driver: Option<Waker>,
    transfers: Vec<Waker>,
}

impl WakeSet {
    fn wake(self) {
        // One by one: this follows every access, and mostly the set is empty.
        if let Some(waker) = self.reader {
            waker.wake();
        }
        if let Some(waker) = self.writer {
            waker.wake();
        }
        if let Some(waker) = self.driver {
            waker.wake();
        }
        self.transfers.into_iter().for_each(Waker::wake);
    }
}
