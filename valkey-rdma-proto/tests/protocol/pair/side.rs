//! One end of a pair: a connection, the device it posts to, the memory it registered, and an application that
//! writes a known stream and checks the one it reads.

use std::collections::VecDeque;

use valkey_rdma_proto::wire::MESSAGE_LEN;
use valkey_rdma_proto::work::{
    Completion, FailureStatus, Outcome, ReceiveRequest, Region, RegionId, SendOp, SendRequest, Slice, WrId,
    WrKind,
};
use valkey_rdma_proto::{
    Config, Connection, Direction, Event, Instant, Resources, Role, Transfer, Work, control_region_len,
};

use super::Fault;

const CONTROL: RegionId = RegionId(0);
const SEND_BUFFER: RegionId = RegionId(1);
/// The number of the first receive buffer.
const RX: u32 = 2;

/// What one side is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    pub config: Config,
    pub window: u32,
    pub buffers: u32,
    pub send_buffer: u32,
    pub receives: u32,
    pub send_depth: u32,
    pub max_message: u32,
}

impl Setup {
    pub fn new(role: Role) -> Self {
        Self {
            config: Config::new(role),
            window: 1024,
            buffers: 2,
            send_buffer: 1024,
            receives: 1024,
            send_depth: 1024,
            max_message: 1 << 30,
        }
    }
}

/// A send on its way. A control message's bytes travel with it, data is read from memory when it arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Posted {
    pub request: SendRequest,
    pub message: Option<[u8; MESSAGE_LEN]>,
}

/// A send that the peer's device has carried out, with the bytes it saw.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executed {
    pub sent: Posted,
    pub bytes: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Side {
    pub core: Connection,
    role: Role,
    send_depth: usize,
    receives: usize,
    /// Send buffer, windows, and memory of the application's own, in the order of their numbers. Bytes that are no longer
    /// used are zero.
    memory: Vec<Vec<u8>>,
    /// Memory of its own that the application has lent: where it ends in the stream, and which it is.
    lent: VecDeque<(u64, Slice)>,
    windows: Vec<Region>,
    /// Receives the device holds.
    pub posted: VecDeque<ReceiveRequest>,
    /// Sends on their way to the peer.
    pub sends: VecDeque<Posted>,
    /// Sends that arrived there and are not acknowledged here.
    pub executed: VecDeque<Executed>,
    /// Send queue entries in use: numbers of sends that no polled completion vouches for.
    unretired: VecDeque<u64>,
    /// Completions that were reported and not polled yet, with the message if it is one.
    pub completions: VecDeque<(Completion, Vec<u8>)>,
    /// The core has got the established event.
    pub established: bool,
    /// The queue pair works.
    pub up: bool,
    /// The peer disconnected, and the core has not got that event yet.
    pub hung_up: bool,
    pub events: Vec<Event>,
    pub written: u64,
    pub read: u64,
    /// Messages of this side that used up a receive of the peer's.
    pub messages_out: u64,
    /// The client's memory that the server may use.
    exposed: Vec<u8>,
    /// The server's transfers.
    pub transfers: Vec<Started>,
    pub faults: Vec<Fault>,
}

/// A transfer of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Started {
    direction: Direction,
    local: Slice,
    /// The place in the client's memory.
    remote: u64,
    /// The reply begins here in the server's stream.
    reply: u64,
}

/// The key of the client's exposed memory, and the address of its first byte.
const EXPOSED: (u32, u64) = (0xd1, 0xd000_0000);

/// What transfers move.
const VALUE: u8 = 0xd1;

/// The byte at `position` of the stream that `role` writes. Neighbours and the two streams differ.
fn stream_byte(role: Role, position: u64) -> u8 {
    let salt = if role == Role::Client { 17 } else { 101 };
    (position.wrapping_mul(31).wrapping_add(salt) % 251) as u8
}

impl Side {
    pub fn new(role: Role, setup: &Setup) -> Self {
        let windows: Vec<_> = (0..setup.buffers)
            .map(|n| Region {
                id: RegionId(RX + n),
                addr: 0x1_0000_0000 * u64::from(n + 1),
                rkey: 0x100 + n,
                len: setup.window,
            })
            .collect();
        let resources = Resources {
            control: CONTROL,
            send_buffer: SEND_BUFFER,
            send_buffer_len: setup.send_buffer,
            rx: &windows,
            receives: setup.receives,
            send_depth: setup.send_depth,
            max_message: setup.max_message,
        };
        let mut memory = vec![vec![0; setup.send_buffer as usize]];
        memory.extend(windows.iter().map(|window| vec![0; window.len as usize]));
        memory.push(Vec::new());
        Self {
            core: Connection::new(role, setup.config.clone(), resources),
            role,
            send_depth: setup.send_depth as usize,
            receives: setup.receives as usize,
            memory,
            lent: VecDeque::new(),
            windows,
            posted: VecDeque::new(),
            sends: VecDeque::new(),
            executed: VecDeque::new(),
            unretired: VecDeque::new(),
            completions: VecDeque::new(),
            established: false,
            up: true,
            hung_up: false,
            events: Vec::new(),
            written: 0,
            read: 0,
            messages_out: 0,
            exposed: Vec::new(),
            transfers: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// Does all the work the core has. Returns whether it wants to be disconnected.
    pub fn pump(&mut self, now: Instant) -> bool {
        let mut disconnect = false;
        while let Some(work) = self.core.poll_work(|| now) {
            match work {
                Work::Receive(request) => {
                    self.posted.push_back(request);
                    if self.posted.len() > self.receives {
                        self.faults.push(Fault::ReceiveQueueOverflow);
                    }
                }
                Work::Message(request, bytes) => {
                    self.check_slot(request.local);
                    self.post(Posted { request, message: Some(bytes) });
                }
                Work::Data(request) => self.post(Posted { request, message: None }),
                Work::Disconnect => disconnect = true,
            }
        }
        while let Some(event) = self.core.poll_event() {
            self.events.push(event);
        }
        disconnect
    }

    /// A message's slot lies in the control region, and its last message has left it.
    fn check_slot(&mut self, slot: Slice) {
        let mut in_use = self.sends.iter().chain(self.executed.iter().map(|done| &done.sent));
        let len = control_region_len(self.receives as u32);
        let first = (self.receives * MESSAGE_LEN) as u32;
        let inside = slot.region == CONTROL && (first..len).contains(&slot.offset);
        if !inside || in_use.any(|other| other.request.local == slot) {
            self.faults.push(Fault::SlotInUse);
        }
    }

    fn post(&mut self, send: Posted) {
        let WrKind::Send(sequence) = send.request.wr_id.kind() else { panic!("a send") };
        self.unretired.push_back(sequence);
        if self.unretired.len() > self.send_depth {
            self.faults.push(Fault::SendQueueOverflow);
        }
        if self.up {
            self.sends.push_back(send);
        } else {
            self.fail(send.request.wr_id, FailureStatus::Flushed);
        }
    }

    /// The device reports a failure.
    pub fn fail(&mut self, wr_id: WrId, status: FailureStatus) {
        let completion = Completion { wr_id, outcome: Outcome::Failed(status) };
        self.completions.push_back((completion, Vec::new()));
    }

    /// Writes up to `len` bytes of the stream. Returns how many went in.
    pub fn write(&mut self, len: u64) -> u64 {
        let before = self.written;
        loop {
            let room = self.core.reserve();
            let now_len = (len - (self.written - before)).min(room.len() as u64);
            if now_len == 0 {
                return self.written - before;
            }
            for offset in room.start..room.start + now_len as u32 {
                let byte = stream_byte(self.role, self.written);
                self.slice_mut(Slice { region: SEND_BUFFER, offset, len: 1 })[0] = byte;
                self.written += 1;
            }
            self.core.commit(now_len as u32);
        }
    }

    /// Lends up to `len` bytes of the stream, from where they lie. Returns how many there was room for.
    pub fn lend(&mut self, len: u64) -> u64 {
        let len = len.min(self.core.room().into());
        let region = RegionId(RX + self.windows.len() as u32);
        let (role, written) = (self.role, self.written);
        let memory = self.memory.last_mut().expect("the last is the application's own");
        let offset = memory.len() as u32;
        memory.extend((written..written + len).map(|position| stream_byte(role, position)));
        let slice = Slice { region, offset, len: len as u32 };
        self.core.lend(slice);
        self.written += len;
        self.lent.push_back((self.written, slice));
        len
    }

    /// The application uses what it has lent for something else, as soon as it may.
    fn reuse_lent(&mut self) {
        let delivered = self.core.delivery_report().delivered;
        while let Some(&(end, slice)) = self.lent.front()
            && end <= delivered
        {
            self.lent.pop_front();
            self.clear(slice);
        }
    }

    /// Transfers `len` bytes from or to memory of the application's own. What is written next is the reply.
    pub fn transfer(&mut self, direction: Direction, len: u32) {
        let region = RegionId(RX + self.windows.len() as u32);
        let memory = self.memory.last_mut().expect("the last is the application's own");
        let local = Slice { region, offset: memory.len() as u32, len };
        let byte = if direction == Direction::Write { VALUE } else { 0 };
        memory.resize(memory.len() + len as usize, byte);
        let remote = self.transfers.iter().map(|other| u64::from(other.local.len)).sum();
        let transfer = Transfer { direction, local, addr: EXPOSED.1 + remote, rkey: EXPOSED.0 };
        if self.core.transfer(transfer).is_some() {
            self.transfers.push(Started { direction, local, remote, reply: self.written });
        }
    }

    /// The bytes of a read have arrived.
    pub fn fill_read(&mut self, slice: Slice) {
        self.slice_mut(slice).fill(VALUE);
    }

    /// Whether the bytes of complete reads are here.
    fn reads_are_here(&self) -> bool {
        let complete = self.transfers.iter().take(self.core.transferred() as usize);
        let mut reads = complete.filter(|transfer| transfer.direction == Direction::Read);
        reads.all(|read| self.slice(read.local).iter().all(|byte| *byte == VALUE))
    }

    /// Whether the bytes of writes are here whose reply has begun, up to `read`.
    pub fn has_written(&self, transfers: &[Started], read: u64) -> bool {
        let replied = transfers.iter().filter(|transfer| transfer.reply < read);
        replied.filter(|transfer| transfer.direction == Direction::Write).all(|write| {
            let (start, len) = (write.remote as usize, write.local.len as usize);
            // Memory is as long as what was written to it so far.
            let bytes = self.exposed.get(start..start + len);
            len == 0 || bytes.is_some_and(|bytes| bytes.iter().all(|byte| *byte == VALUE))
        })
    }

    /// Reads up to `len` bytes and checks them. Returns how many there were.
    pub fn read(&mut self, len: u64) -> u64 {
        let before = self.read;
        let peer = if self.role == Role::Client { Role::Server } else { Role::Client };
        while self.read - before < len {
            let Some(slice) = self.core.readable() else { break };
            let slice = Slice { len: slice.len.min((len - (self.read - before)) as u32), ..slice };
            let start = self.read;
            self.read += u64::from(slice.len);
            let wrong = (start..).zip(self.slice(slice)).find(|&(at, &byte)| byte != stream_byte(peer, at));
            if let Some((position, _)) = wrong {
                self.faults.push(Fault::WrongByte { position });
            }
            self.clear(slice);
            self.core.consume(slice.len);
        }
        self.read - before
    }

    /// Hands the oldest completion to the core.
    pub fn poll(&mut self, now: Instant) -> bool {
        let Some((completion, message)) = self.completions.pop_front() else { return false };
        if let WrKind::Send(sequence) = completion.wr_id.kind() {
            self.unretired.retain(|&number| number > sequence);
        }
        self.core.handle_completion(now, completion, &message);
        self.reuse_lent();
        if !self.reads_are_here() {
            self.faults.push(Fault::TransferNotThere);
        }
        true
    }

    /// The bytes a send carries, read when the device reads them.
    pub fn bytes(&self, send: &Posted) -> Vec<u8> {
        send.message.map_or_else(|| self.slice(send.request.local).to_vec(), |message| message.to_vec())
    }

    /// Clears bytes that are no longer used.
    pub fn clear(&mut self, slice: Slice) {
        self.slice_mut(slice).fill(0);
    }

    fn slice(&self, slice: Slice) -> &[u8] {
        let start = slice.offset as usize;
        &self.memory[(slice.region.0 - SEND_BUFFER.0) as usize][start..start + slice.len as usize]
    }

    fn slice_mut(&mut self, slice: Slice) -> &mut [u8] {
        let start = slice.offset as usize;
        &mut self.memory[(slice.region.0 - SEND_BUFFER.0) as usize][start..start + slice.len as usize]
    }

    /// A send arrives from the peer. A WRITE outside of the windows is a fault; no receive is `None`.
    pub fn arrive(&mut self, op: SendOp, bytes: &[u8]) -> Option<Result<(), Fault>> {
        if op.consumes_receive() && self.posted.is_empty() {
            return None;
        }
        let outcome = match op {
            SendOp::Send => Some(Outcome::Received { len: bytes.len() as u32 }),
            SendOp::Write { addr, rkey } => match self.store(addr, rkey, bytes) {
                Ok(()) => None,
                Err(fault) => return Some(Err(fault)),
            },
            SendOp::WriteWithImm { addr, rkey, imm } => match self.store(addr, rkey, bytes) {
                Ok(()) => Some(Outcome::Written { byte_len: bytes.len() as u32, imm }),
                Err(fault) => return Some(Err(fault)),
            },
            SendOp::Read { rkey, .. } if rkey == EXPOSED.0 => None,
            SendOp::SendWithImm { .. } | SendOp::Read { .. } => panic!("the protocol knows no {op:?}"),
        };
        if let Some(outcome) = outcome {
            let receive = self.posted.pop_front().expect("checked above");
            let message = if op == SendOp::Send { bytes.to_vec() } else { Vec::new() };
            self.completions.push_back((Completion { wr_id: receive.wr_id, outcome }, message));
        }
        Some(Ok(()))
    }

    fn store(&mut self, addr: u64, rkey: u32, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.is_empty() {
            return Ok(());
        }
        if rkey == EXPOSED.0 {
            let start = (addr - EXPOSED.1) as usize;
            let end = start + bytes.len();
            self.exposed.resize(self.exposed.len().max(end), 0);
            self.exposed[start..end].copy_from_slice(bytes);
            return Ok(());
        }
        let window = self.windows.iter().find(|window| window.rkey == rkey).ok_or(Fault::RemoteAccess)?;
        let offset = addr.checked_sub(window.addr).ok_or(Fault::RemoteAccess)?;
        if offset + bytes.len() as u64 > u64::from(window.len) {
            return Err(Fault::RemoteAccess);
        }
        let slice = Slice { region: window.id, offset: offset as u32, len: bytes.len() as u32 };
        self.slice_mut(slice).copy_from_slice(bytes);
        Ok(())
    }
}
