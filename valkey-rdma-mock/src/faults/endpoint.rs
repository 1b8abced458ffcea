//! The wrapper around one endpoint, where every fault happens: [`sending`] and [`arriving`] are the two ways.

mod arriving;
mod sending;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::wire::XferMemory;
use valkey_rdma_transport::device::work::{
    Completion, Outcome, ReceiveRequest, Region, SendOp, SendRequest, Slice, WrId, WrKind,
};
use valkey_rdma_transport::device::{Access, CmEvent, DeviceConnection, DeviceLayer, Limits, SendMemory};

use super::fault::{Fault, Occasion};
use super::script::Script;
use super::wire::Message;

/// An endpoint that misbehaves by a script.
///
/// Work requests that it adds have their own ids, and the owner of the device connection never sees their completions. What it leaves out is
/// replaced by a write of nothing, so that the owner's completions come as if it had been sent.
pub(super) struct FaultyEndpoint {
    /// `Some` until drop.
    device: Option<Box<dyn DeviceConnection>>,
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
    /// The feature bits of the peer's last question.
    question_bits: u64,
    late: Vec<(Instant, Message)>,
    /// Direct transfers that wait for the peer's next data.
    late_transfers: Vec<(Slice, SendOp)>,
    stalled_until: Option<Instant>,
    /// Taken from the device and not yet given out.
    completions: VecDeque<Completion>,
    close_after: Option<WrId>,
    kept_open: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl FaultyEndpoint {
    pub(super) fn new(mut device: Box<dyn DeviceConnection>, script: Script) -> Result<Self, TransportError> {
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
            question_bits: 0,
            late: Vec::new(),
            late_transfers: Vec::new(),
            stalled_until: None,
            completions: VecDeque::new(),
            close_after: None,
            kept_open: false,
            sleep: None,
        })
    }

    /// How many work requests may be added at once: what [`limits`](DeviceConnection::limits) keeps from the owner.
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
        self.below_mut().write_local(region, range, &mut |room| room.copy_from_slice(bytes));
        Slice { region, offset, len: bytes.len() as u32 }
    }

    fn read(&self, slice: Slice) -> Vec<u8> {
        let start = slice.offset as usize;
        let mut bytes = Vec::with_capacity(slice.len as usize);
        self.below().read_local(slice.region, start..start + slice.len as usize, &mut bytes);
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

    /// Sends an added message. `false`: there is no room for it.
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

    /// Keeps a direct transfer for later, in memory of its own: by then, the owner uses its memory for something else.
    fn postpone(&mut self, request: SendRequest) -> Result<(), TransportError> {
        let own = self.below_mut().register(request.local.len, Access::Local)?.id;
        if matches!(request.op, SendOp::Write { .. }) {
            let bytes = self.read(request.local);
            self.below_mut().write_local(own, 0..bytes.len(), &mut |room| room.copy_from_slice(&bytes));
        }
        self.late_transfers.push((Slice { region: own, offset: 0, len: request.local.len }, request.op));
        Ok(())
    }

    /// Does the transfers that were kept for later.
    fn transfer_late(&mut self) -> Result<(), TransportError> {
        let mut chain = Vec::new();
        for (local, op) in std::mem::take(&mut self.late_transfers) {
            self.add(&mut chain, local, op);
        }
        self.below_mut().post_sends(&chain)
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

impl DeviceLayer for FaultyEndpoint {
    fn below(&self) -> &dyn DeviceConnection {
        self.device.as_deref().expect("there until drop")
    }

    fn below_mut(&mut self) -> &mut dyn DeviceConnection {
        self.device.as_deref_mut().expect("there until drop")
    }

    /// Never: faults are made in the bytes of the send buffer.
    fn register_send_memory(&mut self, _: &SendMemory) -> Result<Region, TransportError> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(TransportError::Device { call: "ibv_reg_mr", source })
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
                SendOp::Write { rkey, .. } | SendOp::Read { rkey, .. } if self.is_transfer(request, rkey) => {
                    lies.push(self.transfer(request)?);
                }
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
                let brings_data = matches!(completion.outcome, Outcome::Written { imm: 1.., .. });
                if brings_data && !self.late_transfers.is_empty() {
                    self.transfer_late()?;
                }
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

/// Room for one message that is added or changed, and how many: more than can be in flight.
const SLOT: u32 = 64;
const SLOTS: u32 = 2048;

/// How long a connection that is not to be closed outlives its owner.
const KEPT_OPEN: Duration = Duration::from_secs(30);

/// Distinguishes added sends from the owner's, which count from 0.
const ADDED: u64 = 1 << 62;

const POLL_BATCH: usize = 64;

/// 2 GiB - 1. Windows have at most 1 GiB here, and Valkey's 16 MiB.
const BEYOND_ANY_WINDOW: u32 = 0x7fff_ffff;

const WRONG_KEY: u32 = 0x5a5a_5a5a;
