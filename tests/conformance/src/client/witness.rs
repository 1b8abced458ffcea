//! A device that checks what a client does against the specification, without the help of the server above it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::wire::{ControlMessage, MESSAGE_LEN, XferMemory};
use valkey_rdma_transport::device::work::{
    Completion, Outcome, ReceiveRequest, SendOp, SendRequest, Slice, WrKind,
};
use valkey_rdma_transport::device::{
    CmEvent, ConnectRequest, DeviceConnection, DeviceKind, DeviceLayer, DeviceListener, DeviceOptions,
};

use crate::peer::{OWN_SELECTOR, Transcript, describe_message, reserved};

/// What was seen on all connections of one server.
#[derive(Clone)]
pub(super) struct Witnesses {
    transcript: Transcript,
    seen: Arc<Mutex<SeenOfAll>>,
}

#[derive(Default)]
struct SeenOfAll {
    connections: u32,
    broken: Option<String>,
}

impl Witnesses {
    pub(super) fn new(transcript: Transcript) -> Self {
        Self { transcript, seen: Arc::default() }
    }

    pub(super) fn listener(&self, passive: Box<dyn DeviceListener>) -> Box<dyn DeviceListener> {
        Box::new(WatchedListener { passive, witnesses: self.clone() })
    }

    /// The first rule that was broken, if any was.
    pub(super) fn broken(&self) -> Option<String> {
        self.seen().broken.clone()
    }

    /// Connect requests seen.
    pub(super) fn connections(&self) -> u32 {
        self.seen().connections
    }

    fn seen(&self) -> MutexGuard<'_, SeenOfAll> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WatchedListener {
    passive: Box<dyn DeviceListener>,
    witnesses: Witnesses,
}

impl DeviceListener for WatchedListener {
    fn poll_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<dyn ConnectRequest>, TransportError>> {
        let request = ready!(self.passive.poll_request(cx))?;
        self.witnesses.seen().connections += 1;
        Poll::Ready(Ok(Box::new(WatchedRequest { request, witnesses: self.witnesses.clone() })))
    }

    fn local_addr(&self) -> SocketAddr {
        self.passive.local_addr()
    }

    fn device(&self) -> DeviceKind {
        self.passive.device()
    }
}

struct WatchedRequest {
    request: Box<dyn ConnectRequest>,
    witnesses: Witnesses,
}

impl ConnectRequest for WatchedRequest {
    fn peer_addr(&self) -> SocketAddr {
        self.request.peer_addr()
    }

    fn accept(self: Box<Self>, options: &DeviceOptions) -> Result<Box<dyn DeviceConnection>, TransportError> {
        let device = self.request.accept(options)?;
        let connection = self.witnesses.transcript.next_connection();
        Ok(Box::new(Watched {
            device,
            witnesses: self.witnesses,
            connection,
            receives: HashMap::new(),
            window: None,
            offered: 0,
            announced: 0,
            written: 0,
            unproven: 0,
            asked: false,
            agreement: Agreement::default(),
        }))
    }
}

struct Watched {
    device: Box<dyn DeviceConnection>,
    witnesses: Witnesses,
    connection: u32,
    receives: HashMap<u32, Slice>,
    /// The client's window, as it registered it last, and how much of it the server has announced.
    window: Option<XferMemory>,
    announced: u64,
    /// Length of the server's window, and how much of it the client has announced.
    offered: u64,
    written: u64,
    /// Messages of the client since the server last sent anything that proves it takes them.
    unproven: u32,
    /// The client waits for an answer to GetServerFeature.
    asked: bool,
    agreement: Agreement,
}

/// What the two sides have said about features of this project.
#[derive(Default)]
struct Agreement {
    /// The client has written.
    written: bool,
    asked: bool,
    offered: u64,
    chosen: bool,
}

impl Agreement {
    /// The client asks. Returns the rule that this breaks.
    fn question(&mut self) -> Option<&'static str> {
        let broken = match *self {
            Self { written: true, .. } => Some("a question about features after data (clause F-5)"),
            Self { asked: true, .. } => Some("a second question about features (clause F-5)"),
            _ => None,
        };
        self.asked = true;
        broken
    }

    /// The client chooses. Returns the rule that this breaks.
    fn choice(&mut self, bits: u64) -> Option<&'static str> {
        let broken = match *self {
            Self { written: true, .. } => Some("a choice of features after data (clause F-6)"),
            Self { chosen: true, .. } => Some("a second choice of features (clause F-6)"),
            Self { offered, .. } if bits & !offered != 0 => {
                Some("a choice of features that were not offered (clause F-6)")
            }
            _ => None,
        };
        self.chosen = true;
        broken
    }
}

impl Watched {
    fn note(&self, what: &str) {
        self.witnesses.transcript.note(self.connection, what);
    }

    fn breaks(&self, rule: String) {
        self.note(&format!("   breaks a rule: {rule}"));
        self.witnesses.seen().broken.get_or_insert(rule);
    }

    fn read(&self, slice: Slice) -> Vec<u8> {
        let start = slice.offset as usize;
        let mut bytes = Vec::with_capacity(slice.len as usize);
        self.device.read_local(slice.region, start..start + slice.len as usize, &mut bytes);
        bytes
    }

    fn sends(&mut self, request: &SendRequest) {
        match request.op {
            SendOp::Send => {
                let message = self.read(request.local);
                self.note(&format!("-> {}", describe_message(&message)));
                match ControlMessage::decode(&message) {
                    Ok(ControlMessage::RegisterXferMemory(memory)) => {
                        self.offered = memory.len.into();
                        self.written = 0;
                        self.unproven = 0;
                    }
                    Ok(ControlMessage::GetServerFeature(answer)) => {
                        self.unproven = 0;
                        self.asked = false;
                        if answer.select == OWN_SELECTOR {
                            self.agreement.offered = answer.bits;
                        }
                    }
                    _ => {}
                }
            }
            SendOp::WriteWithImm { imm, .. } => {
                self.note(&format!("-> WRITE_WITH_IMM len={} imm={imm}", request.local.len));
                self.announced += u64::from(imm);
                self.unproven = 0;
            }
            SendOp::Write { .. } | SendOp::SendWithImm { .. } | SendOp::Read { .. } => {}
        }
    }

    fn sees(&mut self, completion: &Completion) {
        let WrKind::Receive(slot) = completion.wr_id.kind() else { return };
        match completion.outcome {
            Outcome::Received { len } | Outcome::ReceivedWithImm { len, .. } => {
                let Some(&place) = self.receives.get(&slot) else { return };
                let message = self.read(Slice { len: len.min(place.len), ..place });
                self.note(&format!("<- {}", describe_message(&message)));
                self.sees_message(&message);
            }
            Outcome::Written { byte_len, imm } => {
                self.note(&format!("<- WRITE_WITH_IMM len={byte_len} imm={imm}"));
                self.sees_data(byte_len, imm);
            }
            _ => return,
        }
        self.unproven += 1;
        if self.unproven == RECEIVES {
            self.breaks(format!("{RECEIVES} messages without proof: no receive is left (clause C-1)"));
        }
    }

    fn sees_message(&mut self, message: &[u8]) {
        let Ok(mut bytes) = <[u8; MESSAGE_LEN]>::try_from(message) else {
            return self.breaks(format!("a control message of {} bytes (clause M-1)", message.len()));
        };
        let message = match ControlMessage::decode(&bytes) {
            Ok(message) => message,
            Err(error) => return self.breaks(format!("a control message that is none: {error}")),
        };
        if reserved(&mut bytes).iter().any(|&byte| byte != 0) {
            self.breaks("reserved bytes are not zero (clause M-2)".to_owned());
        }
        match message {
            ControlMessage::RegisterXferMemory(memory) => self.sees_register(memory),
            ControlMessage::GetServerFeature(_) if self.asked => {
                self.breaks("a question before the answer to the one before (clause C-3)".to_owned());
            }
            ControlMessage::GetServerFeature(question) => {
                self.asked = true;
                if question.select == OWN_SELECTOR
                    && let Some(rule) = self.agreement.question()
                {
                    self.breaks(rule.to_owned());
                }
            }
            ControlMessage::SetClientFeature(choice) if choice.select == OWN_SELECTOR => {
                if let Some(rule) = self.agreement.choice(choice.bits) {
                    self.breaks(rule.to_owned());
                }
            }
            _ => {}
        }
    }

    fn sees_register(&mut self, memory: XferMemory) {
        if !(64 << 10..=16 << 20).contains(&memory.len) {
            self.breaks(format!("a window of {} bytes (clause W-2)", memory.len));
        }
        if let Some(before) = self.window.replace(memory) {
            if before.len != memory.len {
                self.breaks(format!(
                    "a window of {} bytes after one of {} (clause W-3)",
                    memory.len, before.len
                ));
            }
            if self.announced != 0 && self.announced < before.len.into() {
                self.breaks(format!(
                    "a Register with {} of {} bytes announced (clause W-5)",
                    self.announced, before.len
                ));
            }
        }
        self.announced = 0;
    }

    fn sees_data(&mut self, byte_len: u32, imm: u32) {
        self.agreement.written |= imm > 0;
        let room = self.offered - self.written.min(self.offered);
        if u64::from(imm) > room {
            self.breaks(format!("an immediate of {imm} with {room} bytes of room (clause I-2)"));
        }
        if imm < byte_len {
            self.breaks(format!("an immediate of {imm} after a write of {byte_len} (clause I-3)"));
        }
        self.written += u64::from(imm);
    }
}

impl DeviceLayer for Watched {
    fn below(&self) -> &dyn DeviceConnection {
        &*self.device
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        &mut *self.device
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        for request in chain {
            self.sends(request);
        }
        self.device.post_sends(chain)
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        for request in batch {
            if let WrKind::Receive(slot) = request.wr_id.kind() {
                self.receives.insert(slot, request.local);
            }
        }
        self.device.post_receives(batch)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        let before = out.len();
        self.device.poll(out, limit)?;
        for completion in &out[before..] {
            self.sees(completion);
        }
        Ok(())
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        let event = ready!(self.device.poll_cm_event(cx));
        if let Ok(event) = &event {
            self.note(&format!("<- connection manager: {event:?}"));
        }
        Poll::Ready(event)
    }

    fn disconnect(&mut self) {
        self.note("-> disconnect");
        self.device.disconnect();
    }
}

/// What servers post in receives. They cannot see more messages than that at once: the next waits, or fails.
const RECEIVES: u32 = 1024;
