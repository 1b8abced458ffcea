//! The state that a stream's handles and its driver share: the protocol core, the endpoint, who waits.

use std::task::{Context, Poll, Waker};

use bytes::BufMut;
use tokio::time::Instant;
use valkey_rdma_proto::work::{Completion, Outcome, ReceiveRequest, RegionId, SendRequest, WrKind};
use valkey_rdma_proto::{
    self as proto, CloseReason, Connection, Event, Fate, Resources, Role, Work, command_region_len, wire,
};

use crate::config::{Config, QUEUE_DEPTH};
use crate::device::{Access, CmEvent, Endpoint};
use crate::error::TransportError;
use crate::listener::Place;
use crate::stats::{DeviceCounters, Info, Stats};

/// Why there will be no more bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The connection manager refused or failed before the queue pair was connected.
    NeverConnected(CmEvent),
    /// The connection ended.
    Closed(CloseReason),
}

/// Core, endpoint and waiting tasks of one connection.
pub(super) struct Inner {
    core: Connection,
    /// `None` once the connection has ended and everything that arrived was read: then the device's objects and
    /// the pinned memory are freed, whoever still looks at the counts.
    endpoint: Option<Box<dyn Endpoint>>,
    /// Given back together with the endpoint.
    place: Option<Place>,
    info: Info,
    /// Nobody will read any more.
    discarded: bool,
    commands: RegionId,
    staging: RegionId,
    origin: Instant,
    armed: bool,
    end: Option<End>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    driver: Option<Waker>,
    /// The deadline that the driver waits for.
    driver_deadline: Option<proto::Instant>,
    device: DeviceCounters,
    pinned_bytes: u64,
    // Kept between turns only to keep their memory.
    completions: Vec<Completion>,
    sends: Vec<SendRequest>,
    receives: Vec<ReceiveRequest>,
}

impl Inner {
    /// Registers all memory, posts the receives, and asks the endpoint to connect or accept.
    pub(super) fn establish(
        mut endpoint: Box<dyn Endpoint>,
        role: Role,
        config: &Config,
        place: Option<Place>,
    ) -> Result<Self, TransportError> {
        let limits = endpoint.limits();
        let receives = limits.receive_depth.min(QUEUE_DEPTH);
        let commands = endpoint.register(command_region_len(receives), Access::Local)?;
        let staging = endpoint.register(config.send_buffer_len(), Access::Local)?;
        let (windows, rx_size) = config.windows();
        let rx = (0..windows)
            .map(|_| endpoint.register(rx_size, Access::RemoteWrite))
            .collect::<Result<Vec<_>, _>>()?;
        let resources = Resources {
            commands: commands.id,
            staging: staging.id,
            staging_len: staging.len,
            rx: &rx,
            receives,
            send_depth: limits.send_depth,
            max_message: limits.max_message,
        };
        let core = Connection::new(role, config.protocol(role), resources);
        let info = Info {
            device: endpoint.device(),
            local_addr: endpoint.local_addr(),
            peer_addr: endpoint.peer_addr(),
            window: core.window(),
            windows,
            peer_window: 0,
            send_buffer: core.send_buffer(),
        };
        let mut inner = Self {
            core,
            endpoint: Some(endpoint),
            place,
            info,
            discarded: false,
            commands: commands.id,
            staging: staging.id,
            origin: Instant::now(),
            armed: false,
            end: None,
            reader: None,
            writer: None,
            driver: None,
            driver_deadline: None,
            device: DeviceCounters::default(),
            pinned_bytes: u64::from(commands.len)
                + u64::from(staging.len)
                + u64::from(windows) * u64::from(rx_size),
            completions: Vec::with_capacity(COMPLETION_BATCH),
            sends: Vec::new(),
            receives: Vec::new(),
        };
        inner.pump();
        if let Some(endpoint) = &mut inner.endpoint {
            endpoint.establish()?;
        }
        if role == Role::Server {
            inner.core.handle_accepted(inner.now());
        }
        Ok(inner)
    }

    /// One turn of the driver: takes events and completions, does the work that follows, until nothing more
    /// comes or the turn has been long. Returns whether it should be called again at once.
    pub(super) fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        self.driver = Some(cx.waker().clone());
        for _ in 0..MAX_ROUNDS {
            let event = self.take_completion_event(cx);
            // Arm before looking: what comes after the look raises the next event.
            self.arm();
            let completed = self.drain(COMPLETION_BATCH);
            let cm = self.take_cm_event(cx);
            self.pump();
            if self.core.is_closed() || !(event || completed || cm) {
                return false;
            }
        }
        true
    }

    /// The deadline of [`poll_timeout`](Connection::poll_timeout), which the driver will wait for. One beyond the
    /// end of the clock never comes.
    pub(super) fn deadline(&mut self) -> Option<Instant> {
        self.driver_deadline = self.core.poll_timeout();
        self.driver_deadline.and_then(|deadline| self.origin.checked_add(deadline.since_origin()))
    }

    /// The deadline has passed.
    pub(super) fn handle_timeout(&mut self) {
        let now = self.now();
        self.core.handle_timeout(now);
        self.pump();
    }

    /// Copies announced bytes out. `Pending` keeps the waker; `Ready(false)` is the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, out: &mut dyn BufMut) -> Poll<bool> {
        if self.core.readable().is_none() {
            // Completions may lie here while the driver's wake-up is still under way.
            self.drain(COMPLETION_BATCH);
            self.pump();
        }
        let mut copied = false;
        while out.has_remaining_mut() {
            let Some(slice) = self.core.readable() else { break };
            let len = slice.len.min(u32::try_from(out.remaining_mut()).unwrap_or(u32::MAX));
            let start = slice.offset as usize;
            let Some(endpoint) = &self.endpoint else { break };
            endpoint.copy_out(slice.region, start..start + len as usize, out);
            self.device.copied_out += u64::from(len);
            self.core.consume(self.now(), len);
            copied = true;
        }
        if copied || !out.has_remaining_mut() {
            // Reading to the end of a window makes a Register due.
            self.pump();
            return Poll::Ready(true);
        }
        if self.end.is_some() {
            return Poll::Ready(false);
        }
        self.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Copies as many bytes as fit into the send buffer and sends what window and credits allow. `Pending`
    /// keeps the waker; `Ready(0)` means that the connection takes no more.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bufs: &[&[u8]]) -> Poll<usize> {
        let mut written = 0;
        for buf in bufs {
            let mut rest = *buf;
            while !rest.is_empty() {
                let free = self.core.reserve();
                let len = rest.len().min(free.len());
                let Some(endpoint) = self.endpoint.as_mut().filter(|_| len > 0) else { break };
                let (now, later) = rest.split_at(len);
                let start = free.start as usize;
                endpoint.fill(self.staging, start..start + len, &mut |room| room.copy_from_slice(now));
                self.core.commit(self.now(), len as u32);
                written += len;
                rest = later;
            }
            if !rest.is_empty() {
                break;
            }
        }
        if written > 0 {
            self.device.copied_in += written as u64;
            self.pump();
            return Poll::Ready(written);
        }
        if self.end.is_some() || self.core.is_closing() {
            return Poll::Ready(0);
        }
        // Completions that free the send buffer may lie here already.
        if self.drain(COMPLETION_BATCH) {
            self.pump();
            if !self.core.reserve().is_empty() {
                return self.poll_write(cx, bufs);
            }
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Starts an orderly close. Repeated calls do nothing.
    pub(super) fn close(&mut self) {
        self.core.close(self.now());
        self.pump();
    }

    /// Starts an orderly close, after which nobody reads.
    pub(super) fn discard(&mut self) {
        self.discarded = true;
        self.close();
    }

    /// The endpoint and its place, once it has nothing more to do. Drop it without holding the lock.
    pub(super) fn take_finished(&mut self) -> Option<(Box<dyn Endpoint>, Option<Place>)> {
        let finished = self.end.is_some() && (self.discarded || self.core.readable().is_none());
        let endpoint = self.endpoint.take_if(|_| finished)?;
        Some((endpoint, self.place.take()))
    }

    /// What became of the bytes written.
    pub(super) fn fate(&self) -> Fate {
        self.core.fate()
    }

    /// Waits until both sides know each other's memory. `Ready(false)`: it ended before.
    pub(super) fn poll_connected(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.core.is_connected() || self.end.is_some() {
            return Poll::Ready(self.end.is_none());
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Waits for the end.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match self.end {
            Some(end) => Poll::Ready(end),
            None => {
                self.writer = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Why there will be no more bytes, if that is so.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// The counts so far.
    pub(super) fn stats(&self) -> Stats {
        let pinned_bytes = self.endpoint.as_ref().map_or(0, |_| self.pinned_bytes);
        Stats { protocol: self.core.counters(), device: self.device, pinned_bytes }
    }

    /// What the connection runs on.
    pub(super) fn info(&self) -> Info {
        Info { peer_window: self.core.peer_window(), ..self.info.clone() }
    }

    /// Whoever has something to do now. Wake them without holding the lock: a waker may drop its task, and the
    /// task this connection.
    pub(super) fn take_wakers(&mut self) -> [Option<Waker>; 3] {
        let ended = self.end.is_some();
        let readable = ended || self.core.readable().is_some();
        let writable = ended || self.core.is_connected() && !self.core.reserve().is_empty();
        let driver = ended || self.driver_deadline != self.core.poll_timeout();
        [
            self.reader.take_if(|_| readable),
            self.writer.take_if(|_| writable),
            self.driver.take_if(|_| driver),
        ]
    }

    fn now(&self) -> proto::Instant {
        proto::Instant::from_origin(self.origin.elapsed())
    }

    fn take_completion_event(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        match endpoint.poll_completion_event(cx) {
            Poll::Ready(Ok(())) => {
                self.device.events += 1;
                self.armed = false;
                true
            }
            Poll::Ready(Err(error)) => self.device_failed(&error),
            Poll::Pending => false,
        }
    }

    fn arm(&mut self) {
        if self.armed || self.core.is_closed() {
            return;
        }
        let Some(endpoint) = &mut self.endpoint else { return };
        self.device.arms += 1;
        match endpoint.arm() {
            Ok(()) => self.armed = true,
            Err(error) => {
                self.device_failed(&error);
            }
        }
    }

    /// Hands up to `limit` completions to the core. Returns whether there were any.
    fn drain(&mut self, limit: usize) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        let mut completions = std::mem::take(&mut self.completions);
        self.device.polls += 1;
        if let Err(error) = endpoint.poll(&mut completions, limit) {
            self.device_failed(&error);
        }
        let any = !completions.is_empty();
        let now = self.now();
        for completion in completions.drain(..) {
            let mut message = [0; wire::MESSAGE_LEN];
            let len = self.copy_message(&completion, &mut message);
            self.core.handle_completion(now, completion, &message[..len]);
        }
        self.completions = completions;
        any
    }

    /// Copies a received message out of its slot, before the slot is posted again. Returns its length.
    fn copy_message(&self, completion: &Completion, message: &mut [u8; wire::MESSAGE_LEN]) -> usize {
        let (WrKind::Receive(slot), Outcome::Received { len }) =
            (completion.wr_id.kind(), completion.outcome)
        else {
            return 0;
        };
        let Some(endpoint) = &self.endpoint else { return 0 };
        let len = (len as usize).min(wire::MESSAGE_LEN);
        let start = slot as usize * wire::MESSAGE_LEN;
        endpoint.copy_out(self.commands, start..start + len, &mut &mut message[..]);
        len
    }

    fn take_cm_event(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(endpoint) = &mut self.endpoint else { return false };
        let event = match endpoint.poll_cm_event(cx) {
            Poll::Ready(Ok(event)) => event,
            Poll::Ready(Err(error)) => return self.device_failed(&error),
            Poll::Pending => return false,
        };
        tracing::debug!(?event, peer = %self.info.peer_addr, "connection manager");
        match event {
            CmEvent::Established => self.core.handle_established(self.now()),
            CmEvent::Disconnected => {
                // The last replies may lie in the queue: they come first.
                while self.drain(COMPLETION_BATCH) {}
                self.core.handle_disconnected(self.now());
            }
            CmEvent::DeviceRemoved => self.core.handle_device_failure(self.now()),
            // Logged above. The device repeats for a while what is not acknowledged; then it ends the connection.
            CmEvent::PortDown | CmEvent::PortUp => {}
            CmEvent::Rejected { .. } | CmEvent::Unreachable { .. } | CmEvent::ConnectError { .. } => {
                self.end = Some(End::NeverConnected(event));
                self.core.handle_disconnected(self.now());
            }
        }
        true
    }

    fn device_failed(&mut self, error: &TransportError) -> bool {
        if !self.core.is_closed() {
            tracing::warn!(peer = %self.info.peer_addr, %error, "device failed");
        }
        self.core.handle_device_failure(self.now());
        true
    }

    /// Does all the work the core has: consecutive sends leave under one doorbell, receives in one batch.
    fn pump(&mut self) {
        let mut disconnect = false;
        while let Some(work) = self.core.poll_work() {
            match work {
                Work::Receive(request) => self.receives.push(request),
                Work::Message(request, bytes) => {
                    let start = request.local.offset as usize;
                    let slot = start..start + bytes.len();
                    if let Some(endpoint) = &mut self.endpoint {
                        endpoint.fill(self.commands, slot, &mut |room| room.copy_from_slice(&bytes));
                    }
                    self.sends.push(request);
                }
                Work::Data(request) => self.sends.push(request),
                Work::Disconnect => disconnect = true,
            }
        }
        if let Err(error) = self.post() {
            self.device_failed(&error);
            disconnect = true;
        }
        self.receives.clear();
        self.sends.clear();
        if disconnect && let Some(endpoint) = &mut self.endpoint {
            endpoint.disconnect();
            // What had arrived before is still the application's.
            while self.drain(COMPLETION_BATCH) {}
        }
        while let Some(event) = self.core.poll_event() {
            if let Event::Closed { reason } = event {
                tracing::debug!(peer = %self.info.peer_addr, %reason, "closed");
                self.end.get_or_insert(End::Closed(reason));
            }
        }
    }

    fn post(&mut self) -> Result<(), TransportError> {
        let Some(endpoint) = &mut self.endpoint else { return Ok(()) };
        if !self.receives.is_empty() {
            self.device.receive_posts += 1;
            endpoint.post_receives(&self.receives)?;
        }
        if !self.sends.is_empty() {
            self.device.doorbells += 1;
            endpoint.post_sends(&self.sends)?;
        }
        Ok(())
    }
}

/// Completions taken from the queue at once.
const COMPLETION_BATCH: usize = 64;

/// Rounds of one turn before other tasks get theirs.
const MAX_ROUNDS: usize = 16;
