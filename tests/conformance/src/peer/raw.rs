//! The raw peer: posts what its caller asks for, and reports what it receives.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use valkey_rdma_transport::device::work::{
    Completion, FailureStatus, Outcome, ReceiveRequest, Region, SendOp, SendRequest, Slice, WrId, WrKind,
};
use valkey_rdma_transport::device::{self, Access, CmEvent, DeviceConnection};
use valkey_rdma_transport::{DeviceKind, TransportError};

use super::evidence::{describe_data, describe_message};
use super::options::{DEPTH, PeerOptions};
use super::{Finding, Transcript};

/// One side of a connection, which does what its caller asks for, right or wrong.
///
/// It posts receives again, unless [`hold_receives`](Self::hold_receives) was called. It answers nothing.
///
/// Its calls fail with [`Finding::Failed`]: if the device refuses, if what they wait for does not come within
/// [`PeerOptions::patience`], or if the connection ends before.
pub struct Peer {
    device: Box<dyn DeviceConnection>,
    slots: Region,
    staging: Region,
    staged: u32,
    /// Sends not completed yet.
    in_flight: u32,
    sequence: u64,
    held: Option<Vec<u32>>,
    inbox: VecDeque<Seen>,
    ended: bool,
    patience: Duration,
    transcript: Transcript,
    connection: u32,
    /// Keeps the bytes of writes out of the transcript.
    hides_writes: bool,
}

/// What a peer receives from the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A SEND, with its bytes.
    Message(Vec<u8>),
    /// A write with an immediate.
    Announced {
        /// The immediate, in host order.
        imm: u32,
        /// Bytes that this write carried.
        byte_len: u32,
    },
    /// One of this side's work requests failed. Nothing follows.
    Failed(FailureStatus),
    /// The connection manager reported the end of the connection.
    Closed(CmEvent),
}

impl Peer {
    /// Connects to a listener.
    pub async fn connect(
        kind: DeviceKind,
        addr: SocketAddr,
        options: &PeerOptions,
        transcript: &Transcript,
    ) -> Result<Self, Finding> {
        let mut peer = Self::unconnected(kind, addr, options, transcript).await?;
        peer.establish().await?;
        Ok(peer)
    }

    /// A peer whose receives are posted and whose connect request is not sent yet.
    pub async fn unconnected(
        kind: DeviceKind,
        addr: SocketAddr,
        options: &PeerOptions,
        transcript: &Transcript,
    ) -> Result<Self, Finding> {
        let device = device::open(kind, addr, &options.device_options()).await?;
        Ok(Self::new(device, options, transcript)?)
    }

    pub(super) fn new(
        mut device: Box<dyn DeviceConnection>,
        options: &PeerOptions,
        transcript: &Transcript,
    ) -> Result<Self, TransportError> {
        let receives = options.receives.clamp(1, DEPTH);
        let slots = device.register(receives * SLOT, Access::Local)?;
        let staging = device.register(STAGING, Access::Local)?;
        let connection = transcript.next_connection();
        let mut peer = Self {
            device,
            slots,
            staging,
            staged: 0,
            in_flight: 0,
            sequence: 0,
            held: None,
            inbox: VecDeque::new(),
            ended: false,
            patience: options.patience,
            transcript: transcript.clone(),
            connection,
            hides_writes: false,
        };
        peer.post_receives((0..receives).collect())?;
        Ok(peer)
    }

    /// Sends the connect request, or accepts the other side's, and waits until the connection stands.
    pub async fn establish(&mut self) -> Result<(), Finding> {
        self.request()?;
        let deadline = Instant::now() + self.patience;
        let event = timeout_at(deadline, poll_fn(|cx| self.device.poll_cm_event(cx)))
            .await
            .map_err(|_| Finding::failed(format!("no connection within {:?}", self.patience)))??;
        self.note(&format!("<- connection manager: {event:?}"));
        match event {
            CmEvent::Established => Ok(()),
            event => {
                let (peer, kind) = (self.device.peer_addr(), self.device.device().kind);
                Err(TransportError::never_connected(event, peer, kind).into())
            }
        }
    }

    /// Sends the connect request, or accepts the other side's, and waits for nothing.
    pub fn request(&mut self) -> Result<(), Finding> {
        self.note("-> connect");
        Ok(self.device.establish()?)
    }

    /// Registers memory that the other side may write to, `len` bytes of it.
    pub fn window(&mut self, len: u32) -> Result<Region, Finding> {
        Ok(self.device.register(len, Access::RemoteWrite)?)
    }

    /// Registers memory that has these bytes, for direct transfers of the other side.
    pub fn expose(&mut self, bytes: &[u8], access: Access) -> Result<Region, Finding> {
        let region = self.device.register(bytes.len() as u32, access)?;
        self.device.copy_in(region.id, 0, bytes);
        Ok(region)
    }

    /// Bytes of a window as they are now.
    ///
    /// # Panics
    /// If the range lies outside of the window.
    pub fn read(&self, window: &Region, offset: u32, len: u32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len as usize);
        self.device.read_local(window.id, offset as usize..(offset + len) as usize, &mut bytes);
        bytes
    }

    /// Sends a message of any length.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Finding> {
        self.note(&format!("-> {}", describe_message(bytes)));
        self.post(bytes, SendOp::Send).await
    }

    /// Writes bytes to an address of the other side, unannounced.
    pub async fn write(&mut self, addr: u64, rkey: u32, bytes: &[u8]) -> Result<(), Finding> {
        self.note(&format!(
            "-> WRITE addr={addr:#x} key={rkey:#x} len={} {}",
            bytes.len(),
            self.describe(bytes)
        ));
        self.post(bytes, SendOp::Write { addr, rkey }).await
    }

    /// Writes bytes to an address of the other side, with any immediate.
    pub async fn write_imm(&mut self, addr: u64, rkey: u32, bytes: &[u8], imm: u32) -> Result<(), Finding> {
        self.note(&format!(
            "-> WRITE_WITH_IMM addr={addr:#x} key={rkey:#x} len={} imm={imm} {}",
            bytes.len(),
            self.describe(bytes)
        ));
        self.post(bytes, SendOp::WriteWithImm { addr, rkey, imm }).await
    }

    /// From now on the transcript shows the bytes of writes, or does not.
    pub(super) fn hide_writes(&mut self, hide: bool) {
        self.hides_writes = hide;
    }

    fn describe(&self, bytes: &[u8]) -> String {
        if self.hides_writes { "(not shown)".to_owned() } else { describe_data(bytes) }
    }

    /// The next thing seen.
    pub async fn next(&mut self) -> Result<Seen, Finding> {
        self.next_before(Instant::now() + self.patience).await
    }

    pub(super) async fn next_before(&mut self, deadline: Instant) -> Result<Seen, Finding> {
        loop {
            if let Some(seen) = self.inbox.pop_front() {
                return Ok(seen);
            }
            if !self.look(deadline).await? {
                return Err(Finding::failed(format!("nothing came within {:?}", self.patience)));
            }
        }
    }

    /// What is there already, without waiting.
    pub fn glance(&mut self) -> Result<Option<Seen>, Finding> {
        self.drain()?;
        Ok(self.inbox.pop_front())
    }

    /// Waits until the connection has ended, whatever else comes before. Returns how it ended.
    pub async fn end(&mut self) -> Result<Seen, Finding> {
        let deadline = Instant::now() + self.patience;
        loop {
            while let Some(seen) = self.inbox.pop_front() {
                if matches!(seen, Seen::Failed(_) | Seen::Closed(_)) {
                    return Ok(seen);
                }
            }
            if !self.look(deadline).await? {
                return Err(Finding::failed(format!(
                    "the connection was still open after {:?}",
                    self.patience
                )));
            }
        }
    }

    /// Waits until every send was acknowledged.
    pub async fn acknowledged(&mut self) -> Result<(), Finding> {
        let deadline = Instant::now() + self.patience;
        while self.in_flight > 0 {
            if self.ended {
                return Err(Finding::failed("the connection ended before the sends were acknowledged"));
            }
            if !self.look(deadline).await? {
                return Err(Finding::failed(format!(
                    "{} sends not acknowledged after {:?}",
                    self.in_flight, self.patience
                )));
            }
        }
        Ok(())
    }

    /// Stops posting receives again, until [`release_receives`](Self::release_receives).
    pub fn hold_receives(&mut self) {
        self.note("   (holds its receives)");
        self.held.get_or_insert_default();
    }

    /// Posts the receives that were held, and goes on posting them.
    pub fn release_receives(&mut self) -> Result<(), Finding> {
        self.note("   (posts its receives again)");
        let held = self.held.take().unwrap_or_default();
        Ok(self.post_receives(held)?)
    }

    /// Disconnects.
    pub fn disconnect(&mut self) {
        self.note("-> disconnect");
        self.device.disconnect();
    }

    /// Whether the connection is known to have ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// How long it waits for what must come.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn note(&self, what: &str) {
        self.transcript.note(self.connection, what);
    }

    async fn post(&mut self, bytes: &[u8], op: SendOp) -> Result<(), Finding> {
        let len =
            u32::try_from(bytes.len()).map_err(|_| Finding::not_run("more bytes than a message has"))?;
        if len > STAGING {
            return Err(Finding::not_run(format!("more than {STAGING} bytes in one message")));
        }
        if self.in_flight + 1 >= DEPTH || self.staged + len > STAGING {
            self.acknowledged().await?;
            self.staged = 0;
        }
        let range = self.staged as usize..(self.staged + len) as usize;
        self.device.write_local(self.staging.id, range, &mut |room| room.copy_from_slice(bytes));
        let local = Slice { region: self.staging.id, offset: self.staged, len };
        self.staged += len;
        self.sequence += 1;
        let wr_id = WrId::send(self.sequence);
        self.device.post_sends(&[SendRequest { wr_id, local, op, signalled: true }])?;
        self.in_flight += 1;
        Ok(())
    }

    fn post_receives(&mut self, slots: Vec<u32>) -> Result<(), TransportError> {
        let region = self.slots.id;
        let batch: Vec<_> = slots
            .into_iter()
            .map(|slot| ReceiveRequest {
                wr_id: WrId::receive(slot),
                local: Slice { region, offset: slot * SLOT, len: SLOT },
            })
            .collect();
        if batch.is_empty() { Ok(()) } else { self.device.post_receives(&batch) }
    }

    /// Waits for something new. `false`: the deadline passed first.
    async fn look(&mut self, deadline: Instant) -> Result<bool, Finding> {
        self.device.arm()?;
        if self.drain()? {
            return Ok(true);
        }
        let device = &mut self.device;
        let event = poll_fn(|cx| {
            if let Poll::Ready(event) = device.poll_cm_event(cx) {
                return Poll::Ready(event.map(Some));
            }
            device.poll_completion_event(cx).map_ok(|()| None)
        });
        match timeout_at(deadline, event).await {
            Err(_) => Ok(false),
            Ok(event) => {
                let event = event?;
                // The last bytes may lie in the queue: they come first.
                self.drain()?;
                if let Some(event) = event {
                    self.note(&format!("<- connection manager: {event:?}"));
                    if event != CmEvent::Established {
                        self.ended = true;
                        self.inbox.push_back(Seen::Closed(event));
                    }
                }
                Ok(true)
            }
        }
    }

    /// Takes what has completed. Whether there was anything.
    fn drain(&mut self) -> Result<bool, Finding> {
        let mut completions = Vec::new();
        self.device.poll(&mut completions, usize::MAX)?;
        let mut again = Vec::new();
        for completion in &completions {
            self.take(completion, &mut again);
        }
        match &mut self.held {
            Some(held) => held.extend(again),
            None if self.ended => {}
            None => self.post_receives(again)?,
        }
        Ok(!completions.is_empty())
    }

    fn take(&mut self, completion: &Completion, again: &mut Vec<u32>) {
        match (completion.wr_id.kind(), completion.outcome) {
            (kind, Outcome::Failed(status)) => {
                if matches!(kind, WrKind::Send(_)) {
                    self.in_flight = self.in_flight.saturating_sub(1);
                }
                if !self.ended {
                    self.note(&format!("<- work request failed: {status}"));
                    self.inbox.push_back(Seen::Failed(status));
                }
                self.ended = true;
            }
            (WrKind::Send(_), _) => self.in_flight = self.in_flight.saturating_sub(1),
            (WrKind::Receive(slot), outcome) => {
                again.push(slot);
                let seen = match outcome {
                    Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. } => {
                        let start = (slot * SLOT) as usize;
                        let mut bytes = Vec::with_capacity(SLOT as usize);
                        let range = start..start + len.min(SLOT) as usize;
                        self.device.read_local(self.slots.id, range, &mut bytes);
                        self.note(&format!("<- {}", describe_message(&bytes)));
                        Seen::Message(bytes)
                    }
                    Outcome::Written { byte_len, imm } => {
                        self.note(&format!("<- WRITE_WITH_IMM len={byte_len} imm={imm}"));
                        Seen::Announced { imm, byte_len }
                    }
                    _ => return,
                };
                self.inbox.push_back(seen);
            }
        }
    }
}

/// Bytes of a receive slot: room for a message that is too long, so that its length can be reported.
const SLOT: u32 = 64;

/// Bytes that can wait to be acknowledged.
const STAGING: u32 = 4 << 20;
