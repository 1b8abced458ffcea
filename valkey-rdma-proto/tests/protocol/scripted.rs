//! One connection whose peer is a script: it says and writes what the test wants, legal or not.

use std::collections::VecDeque;
use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN, XferMemory};
use valkey_rdma_proto::work::{
    Completion, FailureStatus, Outcome, Region, RegionId, SendRequest, WrId, WrKind,
};
use valkey_rdma_proto::{
    CloseReason, Config, Connection, Event, Instant, ProtocolError, Resources, Role, Work,
};

/// The scripted peer's own window.
pub const PEER_MEMORY: XferMemory = XferMemory { addr: 0xa000_0000, len: 4096, key: 0xbeef };
/// Length of the connection's window.
pub const WINDOW: u32 = 1024;
/// Receives that the connection posts.
const RECEIVES: u32 = 32;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scripted {
    pub core: Connection,
    pub now: Instant,
    /// Control messages the connection sent.
    pub messages: Vec<ControlMessage>,
    /// Data the connection sent.
    pub data: Vec<SendRequest>,
    pub disconnected: bool,
    pub events: Vec<Event>,
    receives: VecDeque<WrId>,
    /// Signalled sends that are not acknowledged.
    unacknowledged: VecDeque<WrId>,
}

impl Scripted {
    /// A connection that is not established, with one receive buffer.
    pub fn new(role: Role, config: Config) -> Self {
        Self::with_buffers(role, config, 1)
    }

    pub fn with_buffers(role: Role, config: Config, buffers: u32) -> Self {
        let rx: Vec<_> = (0..buffers)
            .map(|n| Region {
                id: RegionId(2 + n),
                addr: 0x1000_0000 * u64::from(n + 1),
                rkey: 7 + n,
                len: WINDOW,
            })
            .collect();
        let resources = Resources {
            control: RegionId(0),
            send_buffer: RegionId(1),
            send_buffer_len: 8192,
            rx: &rx,
            receives: RECEIVES,
            send_depth: 64,
            max_message: 1 << 20,
        };
        let mut scripted = Self {
            core: Connection::new(role, config, resources),
            now: Instant::default(),
            messages: Vec::new(),
            data: Vec::new(),
            disconnected: false,
            events: Vec::new(),
            receives: VecDeque::new(),
            unacknowledged: VecDeque::new(),
        };
        scripted.pump();
        scripted
    }

    /// Established, with the peer's window known and the own Register sent.
    pub fn connected(role: Role) -> Self {
        Self::new(role, Config::new(role)).connect()
    }

    pub fn connect(mut self) -> Self {
        self.establish();
        self.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
        self.acknowledge();
        assert_eq!(self.events, [Event::Connected]);
        self
    }

    pub fn establish(&mut self) {
        self.core.handle_established(self.now);
        self.pump();
    }

    /// The peer sends a control message.
    pub fn says(&mut self, message: ControlMessage) {
        self.says_bytes(&message.encode());
    }

    /// The peer sends any bytes.
    pub fn says_bytes(&mut self, bytes: &[u8]) {
        let len = bytes.len() as u32;
        self.receive(Outcome::Received { len }, &bytes[..bytes.len().min(MESSAGE_LEN)]);
    }

    /// The peer writes `len` bytes and announces them.
    pub fn writes(&mut self, len: u32) {
        self.announces(len, len);
    }

    /// The peer writes `byte_len` bytes and announces `imm`.
    pub fn announces(&mut self, byte_len: u32, imm: u32) {
        self.receive(Outcome::Written { byte_len, imm }, &[]);
    }

    /// The peer's write was announced before the end; the completion is polled after it.
    pub fn writes_late(&mut self, len: u32) {
        assert!(self.core.is_closed());
        self.writes(len);
    }

    pub fn receive(&mut self, outcome: Outcome, message: &[u8]) {
        let wr_id = self.receives.pop_front().expect("the connection keeps receives posted");
        self.core.handle_completion(self.now, Completion { wr_id, outcome }, message);
        self.pump();
    }

    /// The peer's device acknowledges everything sent so far.
    pub fn acknowledge(&mut self) {
        while let Some(wr_id) = self.unacknowledged.pop_front() {
            self.core.handle_completion(self.now, Completion { wr_id, outcome: Outcome::Sent }, &[]);
            self.pump();
        }
    }

    /// The peer's device acknowledges everything up to this send, which is signalled.
    pub fn acknowledge_up_to(&mut self, last: WrId) {
        while let Some(wr_id) = self.unacknowledged.pop_front() {
            self.core.handle_completion(self.now, Completion { wr_id, outcome: Outcome::Sent }, &[]);
            if wr_id == last {
                break;
            }
        }
        self.pump();
    }

    /// The device fails the oldest send in flight.
    /// A receive fails.
    pub fn fail_receive(&mut self, status: FailureStatus) {
        self.receive(Outcome::Failed(status), &[]);
    }

    pub fn fail(&mut self, status: FailureStatus) {
        let wr_id = self.unacknowledged.pop_front().unwrap_or(WrId::send(0));
        self.core.handle_completion(self.now, Completion { wr_id, outcome: Outcome::Failed(status) }, &[]);
        self.pump();
    }

    pub fn disconnect(&mut self) {
        self.core.handle_disconnected(self.now);
        self.pump();
    }

    /// The application writes. Returns how many bytes went in.
    pub fn write(&mut self, len: u32) -> u32 {
        let room = self.core.reserve();
        let len = len.min(room.len() as u32);
        self.core.commit(len);
        self.pump();
        len
    }

    /// The application wants to know what became of its bytes.
    pub fn request_acknowledgement(&mut self) {
        self.core.request_acknowledgement();
        self.pump();
    }

    /// The application reads all there is. Returns how many bytes that was.
    pub fn read(&mut self) -> u32 {
        let mut len = 0;
        while let Some(slice) = self.core.readable() {
            self.core.consume(slice.len);
            len += slice.len;
        }
        self.pump();
        len
    }

    pub fn close(&mut self) {
        self.core.close(self.now);
        self.pump();
    }

    /// Time passes, and every deadline is met when it comes.
    pub fn elapse(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(deadline) = self.core.poll_timeout().filter(|&deadline| deadline <= until) {
            self.now = self.now.max(deadline);
            self.core.handle_timeout(self.now);
            self.pump();
        }
        self.now = until;
    }

    /// The close reason, which may be reported only once.
    pub fn close_reason(&self) -> Option<CloseReason> {
        let mut reasons = self.events.iter().filter_map(|event| match event {
            Event::Closed { reason } => Some(*reason),
            _ => None,
        });
        let reason = reasons.next();
        assert_eq!(reasons.next(), None, "closed twice");
        assert_eq!(reason.is_some(), self.core.is_closed());
        reason
    }

    /// The connection ended for this error, and disconnected.
    pub fn assert_refused(&self, error: ProtocolError) {
        assert_eq!(self.close_reason(), Some(CloseReason::Protocol(error)));
        assert!(self.disconnected);
    }

    /// The connection goes on: it still sends and receives.
    pub fn assert_usable(&mut self) {
        assert_eq!(self.close_reason(), None);
        self.read();
        let (sent, received) = (self.core.counters().bytes_sent, self.core.counters().bytes_received);
        assert_eq!(self.write(3), 3);
        self.writes(5);
        assert_eq!(self.read(), 5);
        assert_eq!(self.core.counters().bytes_sent, sent + 3);
        assert_eq!(self.core.counters().bytes_received, received + 5);
        assert_eq!(self.receives.len(), RECEIVES as usize, "every receive is posted again");
    }

    /// How many receives are posted.
    pub fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    pub fn pump(&mut self) {
        let now = self.now;
        while let Some(work) = self.core.poll_work(|| now) {
            match work {
                Work::Receive(request) => {
                    assert!(matches!(request.wr_id.kind(), WrKind::Receive(_)));
                    self.receives.push_back(request.wr_id);
                }
                Work::Message(request, bytes) => {
                    self.messages.push(ControlMessage::decode(&bytes).unwrap());
                    self.track(&request);
                }
                Work::Data(request) => {
                    self.data.push(request);
                    self.track(&request);
                }
                Work::Disconnect => self.disconnected = true,
            }
        }
        while let Some(event) = self.core.poll_event() {
            self.events.push(event);
        }
    }

    fn track(&mut self, request: &SendRequest) {
        assert!(!self.disconnected, "nothing follows a disconnect");
        if request.signalled {
            self.unacknowledged.push_back(request.wr_id);
        }
    }
}
