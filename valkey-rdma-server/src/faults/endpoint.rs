//! The wrapper around one endpoint, where every fault happens.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BufMut;
use tokio::time::{Instant, Sleep};
use valkey_rdma_transport::device::wire::{MESSAGE_LEN, XferMemory};
use valkey_rdma_transport::device::work::{
    Completion, Outcome, ReceiveRequest, Region, RegionId, SendOp, SendRequest, Slice, WrId, WrKind,
};
use valkey_rdma_transport::device::{Access, CmEvent, DeviceInfo, Endpoint, Limits};
use valkey_rdma_transport::{BufferPool, TransportError};

use super::fault::{Fault, Occasion};
use super::script::Script;
use super::wire::{self, Message};

/// An endpoint that misbehaves by a script.
///
/// What it adds goes out under names of its own, and whoever owns the endpoint never hears of it. What it leaves out is
/// replaced by a write of nothing, so that the owner's completions come as if it had been sent.
pub(super) struct FaultyEndpoint {
    /// `Some` until drop.
    device: Option<Box<dyn Endpoint>>,
    script: Script,
    scratch: Region,
    scratch_used: u64,
    /// Work requests of ours that are not acknowledged, and how many there have been.
    added: u32,
    added_ever: u64,
    established: bool,
    /// Where each posted receive lands, by slot.
    receives: HashMap<u32, Slice>,
    /// The peer's windows: the first, and the one now.
    peer_windows: Option<(XferMemory, XferMemory)>,
    last_register: Option<Message>,
    late: Vec<(Instant, Message)>,
    stalled_until: Option<Instant>,
    /// Taken from the device and not yet given out.
    completions: VecDeque<Completion>,
    close_after: Option<WrId>,
    kept_open: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl FaultyEndpoint {
    pub(super) fn new(mut device: Box<dyn Endpoint>, script: Script) -> Result<Self, TransportError> {
        let scratch = device.register(SLOTS * SLOT, Access::Local)?;
        Ok(Self {
            device: Some(device),
            script,
            scratch,
            scratch_used: 0,
            added: 0,
            added_ever: 0,
            established: false,
            receives: HashMap::new(),
            peer_windows: None,
            last_register: None,
            late: Vec::new(),
            stalled_until: None,
            completions: VecDeque::new(),
            close_after: None,
            kept_open: false,
            sleep: None,
        })
    }

    fn below_mut(&mut self) -> &mut dyn Endpoint {
        self.device.as_deref_mut().expect("there until drop")
    }

    fn below(&self) -> &dyn Endpoint {
        self.device.as_deref().expect("there until drop")
    }

    /// How many work requests may be added at once: what [`limits`](Endpoint::limits) keeps from the owner.
    fn reserve(&self) -> u32 {
        self.below().limits().send_depth / 2
    }

    /// Puts bytes where they can be sent from. The place is used again only after more sends than a queue holds.
    fn stage(&mut self, bytes: &[u8]) -> Slice {
        let offset = (self.scratch_used % u64::from(SLOTS)) as u32 * SLOT;
        self.scratch_used += 1;
        let start = offset as usize;
        let region = self.scratch.id;
        let range = start..start + bytes.len();
        self.below_mut().fill(region, range, &mut |room| room.copy_from_slice(bytes));
        Slice { region, offset, len: bytes.len() as u32 }
    }

    fn read(&self, slice: Slice) -> Vec<u8> {
        let start = slice.offset as usize;
        let mut bytes = Vec::with_capacity(slice.len as usize);
        self.below().copy_out(slice.region, start..start + slice.len as usize, &mut bytes);
        bytes
    }

    /// A work request of our own, if there is room for one.
    fn add(&mut self, chain: &mut Vec<SendRequest>, local: Slice, op: SendOp) -> Option<WrId> {
        if self.added == self.reserve() {
            return None;
        }
        self.added += 1;
        self.added_ever += 1;
        let wr_id = WrId::send(ADDED | self.added_ever);
        chain.push(SendRequest { wr_id, local, op, signalled: true });
        Some(wr_id)
    }

    /// A message of our own. `false`: there is no room for one.
    fn add_message(&mut self, chain: &mut Vec<SendRequest>, bytes: &[u8]) -> bool {
        let local = self.stage(bytes);
        self.add(chain, local, SendOp::Send).is_some()
    }

    fn nothing(&self) -> Slice {
        Slice { region: self.scratch.id, offset: 0, len: 0 }
    }

    /// The request without its effect.
    fn erase(&self, request: &mut SendRequest) {
        request.local = self.nothing();
        request.op = SendOp::Write { addr: 0, rkey: 0 };
    }

    fn send_message(&mut self, mut request: SendRequest, chain: &mut Vec<SendRequest>) {
        let Ok(original) = Message::try_from(self.read(request.local)) else { return chain.push(request) };
        let mut message = original;
        let mut again = false;
        let occasion = match () {
            () if wire::is_register(&message) => Some(Occasion::Register),
            () if wire::is_keepalive(&message) => Some(Occasion::Keepalive),
            () if wire::is_answer(&message) => Some(Occasion::Answer),
            () => None,
        };
        let mut struck = occasion.map(|occasion| self.script.strike(occasion)).unwrap_or_default();
        struck.extend(self.script.strike(Occasion::Message));
        let mut erased = false;
        for (fault, value) in struck {
            let before = (erased, message);
            match fault {
                Fault::RegisterMissing | Fault::KeepaliveMissing | Fault::AnswerMissing => erased = true,
                Fault::RegisterLate => {
                    let due = Instant::now() + Duration::from_millis(value.into());
                    self.late.push((due, message));
                    erased = true;
                }
                Fault::RegisterTwice => again = true,
                Fault::RegisterLength => edit_register(&mut message, |memory| memory.len = value),
                Fault::RegisterKey => edit_register(&mut message, |memory| memory.key ^= WRONG_KEY),
                Fault::Reserved => self.script.noise(wire::reserved(&mut message)),
                Fault::AnswerOpcode => wire::set_opcode(&mut message, value as u16),
                Fault::AnswerSelect => message[2] ^= 0xff,
                _ => {}
            }
            // What is not sent cannot be wrong.
            if !before.0 && (erased, message) != before {
                self.script.happened(fault);
            }
        }
        if wire::is_register(&message) {
            self.last_register = Some(message);
        }
        if erased {
            self.erase(&mut request);
        } else if message != original {
            request.local = self.stage(&message);
        }
        chain.push(request);
        if again && self.add_message(chain, &message) {
            self.script.happened(Fault::RegisterTwice);
        }
    }

    fn send_data(&mut self, mut request: SendRequest, chain: &mut Vec<SendRequest>) {
        let SendOp::WriteWithImm { mut addr, mut rkey, mut imm } = request.op else {
            return chain.push(request);
        };
        let mut pieces = 1;
        let mut erased = false;
        let mut keepalives = 0;
        for (fault, value) in self.script.strike(Occasion::Data) {
            let before = (imm, addr, rkey, request.local.offset, erased);
            let mut felt = false;
            match fault {
                Fault::ImmOver => imm = BEYOND_ANY_WINDOW,
                Fault::ImmWrap => imm = u32::MAX,
                Fault::ImmShort => imm -= 1,
                Fault::ImmSwapped => imm = imm.swap_bytes(),
                Fault::ImmZero => {
                    let nothing = self.nothing();
                    felt = self.add(chain, nothing, SendOp::WriteWithImm { addr, rkey, imm: 0 }).is_some();
                }
                Fault::ImmSplit => pieces = value.min(request.local.len),
                Fault::WriteFirst => {
                    let half = request.local.len / 2;
                    let first = Slice { len: half, ..request.local };
                    if self.add(chain, first, SendOp::Write { addr, rkey }).is_some() {
                        addr += u64::from(half);
                        request.local = skip(request.local, half);
                    }
                }
                Fault::TailMissing => erased |= self.fills_window(addr, request.local.len),
                Fault::AddressOff => addr += 1,
                Fault::AddressStale => {
                    if let Some((first, now)) = self.peer_windows {
                        addr = addr.wrapping_sub(now.addr).wrapping_add(first.addr);
                        rkey = first.key;
                    }
                }
                Fault::RegisterEarly => {
                    felt = self.last_register.is_some_and(|message| self.add_message(chain, &message));
                }
                Fault::KeepaliveFlood => keepalives = value,
                Fault::Opcode => felt = self.add_message(chain, &wire::bare(value as u16)),
                Fault::MessageLength => {
                    let mut bytes = wire::keepalive().to_vec();
                    bytes.resize(value as usize, 0);
                    felt = self.add_message(chain, &bytes);
                }
                Fault::Garbage => {
                    let Slice { region, offset, len } = request.local;
                    let mut noise = vec![0; len as usize];
                    self.script.noise(&mut noise);
                    let range = offset as usize..(offset + len) as usize;
                    self.below_mut().fill(region, range, &mut |room| room.copy_from_slice(&noise));
                    felt = true;
                }
                _ => {}
            }
            if felt || (imm, addr, rkey, request.local.offset, erased) != before {
                self.script.happened(fault);
            }
        }
        let whole = request.local.len;
        // Every piece but the last is one of ours.
        for left in (2..=pieces).rev() {
            let len = request.local.len / left;
            let piece = Slice { len, ..request.local };
            if self.add(chain, piece, SendOp::WriteWithImm { addr, rkey, imm: len }).is_none() {
                break;
            }
            addr += u64::from(len);
            imm -= len;
            request.local = skip(request.local, len);
        }
        if request.local.len < whole {
            self.script.happened(Fault::ImmSplit);
        }
        request.op = SendOp::WriteWithImm { addr, rkey, imm };
        if erased {
            self.erase(&mut request);
        }
        chain.push(request);
        let added = (0..keepalives).filter(|_| self.add_message(chain, &wire::keepalive())).count();
        if added > 0 {
            self.script.happened(Fault::KeepaliveFlood);
        }
    }

    fn fills_window(&self, addr: u64, len: u32) -> bool {
        self.peer_windows
            .is_some_and(|(_, now)| addr + u64::from(len) == now.addr.wrapping_add(now.len.into()))
    }

    /// What the owner gets to see of a completion.
    fn pass_on(&mut self, mut completion: Completion) -> Option<Completion> {
        match (completion.wr_id.kind(), completion.outcome) {
            (WrKind::Send(number), outcome) if number & ADDED != 0 => {
                self.added -= 1;
                if self.close_after == Some(completion.wr_id) && outcome == Outcome::Sent {
                    self.script.happened(Fault::CloseAfter);
                    self.below_mut().disconnect();
                }
                return None;
            }
            (WrKind::Receive(slot), Outcome::Received { len }) => {
                completion.outcome = self.message_came(slot, len);
            }
            (WrKind::Receive(_), Outcome::Written { byte_len, imm }) if imm > 0 => {
                for (fault, value) in self.script.strike(Occasion::Arrival) {
                    let before = completion.outcome;
                    match fault {
                        Fault::Stall => {
                            self.stalled_until = Some(Instant::now() + Duration::from_millis(value.into()));
                        }
                        Fault::LenientImm => {
                            completion.outcome = Outcome::Written { byte_len, imm: byte_len }
                        }
                        _ => {}
                    }
                    if fault == Fault::Stall || completion.outcome != before {
                        self.script.happened(fault);
                    }
                }
            }
            _ => {}
        }
        Some(completion)
    }

    fn message_came(&mut self, slot: u32, mut len: u32) -> Outcome {
        let Some(&place) = self.receives.get(&slot) else { return Outcome::Received { len } };
        let message = self.read(Slice { len: len.min(place.len), ..place });
        let struck = self.script.strike(Occasion::Control);
        let strikes = |fault| struck.iter().any(|&(struck, _)| struck == fault);
        let overlooks = if message.len() != MESSAGE_LEN {
            Some(Fault::LenientLength)
        } else if wire::is_known(&message) {
            None
        } else {
            Some(Fault::LenientOpcode)
        };
        if let Some(fault) = overlooks.filter(|&fault| strikes(fault)) {
            self.script.happened(fault);
            let start = place.offset as usize;
            self.below_mut().fill(place.region, start..start + MESSAGE_LEN, &mut |room| {
                room.copy_from_slice(&wire::keepalive());
            });
            len = MESSAGE_LEN as u32;
        } else if let Some(memory) = message.try_into().ok().and_then(|message| wire::window(&message)) {
            let first = self.peer_windows.map_or(memory, |(first, _)| first);
            self.peer_windows = Some((first, memory));
        }
        Outcome::Received { len }
    }

    /// Does what has become due. `true`: something has, so there may be something to look at.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Result<bool, TransportError> {
        let deadlines = self.late.iter().map(|(due, _)| *due).chain(self.stalled_until);
        let Some(deadline) = deadlines.min() else { return Ok(false) };
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        sleep.as_mut().reset(deadline);
        if sleep.as_mut().poll(cx).is_pending() {
            return Ok(false);
        }
        self.stalled_until = self.stalled_until.filter(|&until| until > deadline);
        let mut chain = Vec::new();
        for (_, message) in self.late.extract_if(.., |(due, _)| *due <= deadline).collect::<Vec<_>>() {
            self.add_message(&mut chain, &message);
        }
        self.below_mut().post_sends(&chain)?;
        Ok(true)
    }
}

fn skip(slice: Slice, len: u32) -> Slice {
    Slice { offset: slice.offset + len, len: slice.len - len, ..slice }
}

fn edit_register(message: &mut Message, edit: impl FnOnce(&mut XferMemory)) {
    if let Some(mut memory) = wire::window(message) {
        edit(&mut memory);
        *message = wire::register(memory);
    }
}

impl Endpoint for FaultyEndpoint {
    fn register(&mut self, len: u32, access: Access) -> Result<Region, TransportError> {
        self.below_mut().register(len, access)
    }

    /// Never: faults are made in the bytes of the send buffer.
    fn lend(&mut self, _: &BufferPool) -> Result<Region, TransportError> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(TransportError::Device { call: "ibv_reg_mr", source })
    }

    fn fill(&mut self, region: RegionId, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        self.below_mut().fill(region, range, fill);
    }

    fn copy_out(&self, region: RegionId, range: Range<usize>, out: &mut dyn BufMut) {
        self.below().copy_out(region, range, out);
    }

    fn post_sends(&mut self, chain: &[SendRequest]) -> Result<(), TransportError> {
        let struck = self.script.strike(Occasion::Post);
        let strikes = |fault| struck.iter().any(|&(struck, _)| struck == fault);
        if strikes(Fault::CloseBefore) {
            self.script.happened(Fault::CloseBefore);
            self.below_mut().disconnect();
            return Ok(());
        }
        let mut lies = Vec::with_capacity(chain.len());
        for &request in chain {
            match request.op {
                SendOp::Send => self.send_message(request, &mut lies),
                SendOp::WriteWithImm { .. } if request.local.len > 0 => self.send_data(request, &mut lies),
                _ => lies.push(request),
            }
        }
        if strikes(Fault::CloseAfter) {
            let nothing = self.nothing();
            self.close_after = self.add(&mut lies, nothing, SendOp::Write { addr: 0, rkey: 0 });
        }
        self.below_mut().post_sends(&lies)
    }

    fn post_receives(&mut self, batch: &[ReceiveRequest]) -> Result<(), TransportError> {
        if self.established && !self.script.strike(Occasion::Receives).is_empty() {
            self.script.happened(Fault::ReceivesMissing);
            return Ok(());
        }
        for request in batch {
            if let WrKind::Receive(slot) = request.wr_id.kind() {
                self.receives.insert(slot, request.local);
            }
        }
        self.below_mut().post_receives(batch)
    }

    fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> Result<(), TransportError> {
        let mut found = Vec::new();
        loop {
            self.below_mut().poll(&mut found, POLL_BATCH)?;
            let all = found.len() < POLL_BATCH;
            for completion in found.drain(..) {
                let passed_on = self.pass_on(completion);
                self.completions.extend(passed_on);
            }
            if all {
                break;
            }
        }
        if self.stalled_until.is_none() {
            out.extend(self.completions.drain(..limit.min(self.completions.len())));
        }
        Ok(())
    }

    fn arm(&mut self) -> Result<(), TransportError> {
        self.below_mut().arm()
    }

    fn poll_completion_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TransportError>> {
        match self.poll_due(cx) {
            Ok(true) => Poll::Ready(Ok(())),
            Ok(false) => self.below_mut().poll_completion_event(cx),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn establish(&mut self) -> Result<(), TransportError> {
        self.established = true;
        self.below_mut().establish()
    }

    fn poll_cm_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<CmEvent, TransportError>> {
        self.below_mut().poll_cm_event(cx)
    }

    fn disconnect(&mut self) {
        if self.kept_open {
            return;
        }
        if self.script.strike(Occasion::Disconnect).is_empty() {
            self.below_mut().disconnect();
        } else {
            self.script.happened(Fault::CloseMissing);
            self.kept_open = true;
        }
    }

    fn limits(&self) -> Limits {
        let limits = self.below().limits();
        Limits { send_depth: limits.send_depth - self.reserve(), ..limits }
    }

    fn local_addr(&self) -> SocketAddr {
        self.below().local_addr()
    }

    fn peer_addr(&self) -> SocketAddr {
        self.below().peer_addr()
    }

    fn device(&self) -> DeviceInfo {
        self.below().device()
    }
}

impl Drop for FaultyEndpoint {
    /// A connection that is to stay open outlives its owner, until the peer leaves.
    fn drop(&mut self) {
        let device = self.device.take().filter(|_| self.kept_open);
        if let (Some(mut device), Ok(runtime)) = (device, tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                let left = async {
                    while let Ok(CmEvent::Established) = poll_fn(|cx| device.poll_cm_event(cx)).await {}
                };
                // If the peer never leaves either, the two would wait for each other for ever.
                let _ = tokio::time::timeout(KEPT_OPEN, left).await;
            });
        }
    }
}

/// Room for one message that is added or changed, and how many: more than can be under way.
const SLOT: u32 = 64;
const SLOTS: u32 = 2048;

/// How long a connection that is not to be closed outlives its owner.
const KEPT_OPEN: Duration = Duration::from_secs(30);

/// Tells our sends from the owner's, which count from 0.
const ADDED: u64 = 1 << 62;

const POLL_BATCH: usize = 64;

/// 2 GiB - 1. Windows have at most 1 GiB here, and Valkey's 16 MiB.
const BEYOND_ANY_WINDOW: u32 = 0x7fff_ffff;

const WRONG_KEY: u32 = 0x5a5a_5a5a;
