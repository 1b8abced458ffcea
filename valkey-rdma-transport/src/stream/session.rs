//! The state that a stream's handles and its driver share: the protocol core, the device, who waits.
//!
//! What happens to it is in three rooms: [`crank`](super::crank) turns it, [`reading`](super::reading) and
//! [`writing`](super::writing) are the application's sides of it.

use std::task::{Context, Poll, Waker};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::Instant;
use valkey_rdma_proto::{self as proto, Connection, DeliveryReport, Resources, Role};

use super::end::End;
use super::port::{Port, Remains};
use super::spin::Spin;
use super::waiters::{Ready, Waiters, Wants};
use crate::config::Config;
use crate::device::DeviceConnection;
use crate::error::TransportError;
use crate::listener::Place;
use crate::polling::{AdaptiveOff, Polling};
use crate::pool::Lease;
use crate::stats::{Info, Stats};

/// One connection.
pub(super) struct Session {
    pub(super) core: Connection,
    pub(super) port: Port,
    pub(super) spin: Spin,
    pub(super) waiters: Waiters,
    /// The number of the driver that is to turn it.
    driver: u64,
    /// Why there will be no more bytes, once that is so.
    pub(super) end: Option<End>,
    /// The application began to shut down while the connection was whole.
    shutting_down: bool,
    /// Nobody will read any more.
    discarded: bool,
    info: Info,
    pub(super) origin: Instant,
    /// Not tokio's: that one stands still in tests with a paused clock, and looking would never end.
    spin_origin: std::time::Instant,
}

/// What a session lets go of.
pub(super) struct Spent {
    /// What was lent and is not being sent any more. Whoever waits for a buffer is woken.
    _leases: Vec<Lease>,
    /// The device's objects, once the connection has ended and everything that arrived was read: they are freed
    /// then, whoever still looks at the counts.
    _remains: Option<Remains>,
}

impl Session {
    /// Registers all memory, posts the receives, and asks the endpoint to connect or accept.
    pub(super) fn establish(
        endpoint: Box<dyn DeviceConnection>,
        role: Role,
        config: &Config,
        place: Option<Place>,
    ) -> Result<Self, TransportError> {
        let device = endpoint.device();
        let (local_addr, peer_addr) = (endpoint.local_addr(), endpoint.peer_addr());
        let (port, granted) = Port::open(endpoint, config, place)?;
        let resources = Resources {
            control: granted.control,
            send_buffer: granted.send_buffer.id,
            send_buffer_len: granted.send_buffer.len,
            rx: &granted.windows,
            receives: granted.receives,
            send_depth: granted.send_depth,
            max_message: granted.max_message,
        };
        let core = Connection::new(role, config.protocol(role), resources);
        let (asked, spin_limit, always) = config.polling_mode();
        let adaptive_off =
            if asked == Polling::Adaptive && !always { AdaptiveOff::on(&device) } else { None };
        if let Some(reason) = adaptive_off {
            tracing::info!(%reason, device = device.name, peer = %peer_addr, "polling by events");
        }
        let polling = if adaptive_off.is_some() { Polling::Event } else { asked };
        let one_thread = Handle::try_current()
            .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::CurrentThread);
        let info = Info {
            device,
            local_addr,
            peer_addr,
            window: core.window(),
            windows: granted.windows.len() as u32,
            peer_window: 0,
            send_buffer: core.send_buffer(),
            polling,
            adaptive_off,
        };
        let mut session = Self {
            core,
            port,
            spin: Spin::new(polling, spin_limit, one_thread),
            waiters: Waiters::default(),
            driver: 0,
            end: None,
            shutting_down: false,
            discarded: false,
            info,
            origin: Instant::now(),
            spin_origin: std::time::Instant::now(),
        };
        session.pump();
        session.port.establish()?;
        if role == Role::Server {
            session.core.handle_accepted(session.now());
        }
        Ok(session)
    }

    /// Waits until both sides know each other's memory. `Ready(false)`: it ended before.
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.core.is_connected() || self.end.is_some() {
            return Poll::Ready(self.end.is_none());
        }
        self.waiters.writer(cx, Wants::Room(0));
        Poll::Pending
    }

    /// Numbers a new driver. The last one stops as soon as it is woken, which is to happen without holding the lock.
    pub(super) fn change_drivers(&mut self) -> (u64, Option<Waker>) {
        self.driver += 1;
        (self.driver, self.waiters.take_driver())
    }

    /// Whether this is the driver that is to turn it.
    pub(super) fn is_driver(&self, number: u64) -> bool {
        self.driver == number
    }

    /// Starts an orderly close. Repeated calls do nothing.
    pub(super) fn close(&mut self) {
        self.core.close(self.now());
        self.pump();
    }

    /// Closes, then waits for the end. Returns it with the number of bytes that are lost.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<(End, u64)> {
        self.shutting_down |= self.end.is_none();
        self.close();
        let Some(end) = self.end else {
            self.waiters.writer(cx, Wants::End);
            return Poll::Pending;
        };
        let DeliveryReport { unknown, unsent, .. } = self.core.delivery_report();
        // What was under way when the peer left before is the usual loss of a connection, told by other means.
        Poll::Ready((end, unsent + if self.shutting_down { unknown } else { 0 }))
    }

    /// Starts an orderly close, after which nobody reads.
    pub(super) fn discard(&mut self) {
        self.discarded = true;
        self.close();
    }

    /// The counts so far.
    pub(super) fn stats(&self) -> Stats {
        Stats {
            protocol: self.core.counters(),
            device: self.port.counters,
            pinned_bytes: self.port.pinned_bytes(),
            spin_budget: self.spin.budget(),
        }
    }

    /// What the connection runs on.
    pub(super) fn info(&self) -> Info {
        Info { peer_window: self.core.peer_window(), ..self.info.clone() }
    }

    /// Whoever has something to do now. Wake them without holding the lock: a waker may drop its task, and the
    /// task this connection.
    pub(super) fn take_ready(&mut self) -> Ready {
        self.waiters.take_ready(&self.core, self.end.is_some())
    }

    /// What is not needed any more. Drop it without holding the lock.
    pub(super) fn take_spent(&mut self) -> Option<Spent> {
        // Asked after every access, and mostly there is nothing.
        if !self.port.holds() && self.end.is_none() {
            return None;
        }
        let leases = self.port.give_back(self.core.delivery_report().delivered);
        let finished = self.end.is_some() && (self.discarded || self.core.readable().is_none());
        let remains = if finished { self.port.release() } else { None };
        Some(Spent { _leases: leases, _remains: remains })
    }

    pub(super) fn now(&self) -> proto::Instant {
        proto::Instant::from_origin(self.origin.elapsed())
    }

    /// The origin of a deadline of the core. One beyond the end of the clock never comes.
    pub(super) fn deadline_of(&self, deadline: proto::Instant) -> Option<Instant> {
        self.origin.checked_add(deadline.since_origin())
    }

    /// The time by which looking is measured; any time will do where it is not.
    pub(super) fn spin_time(&self) -> std::time::Duration {
        if self.spin.needs_time() { self.spin_origin.elapsed() } else { std::time::Duration::ZERO }
    }
}
