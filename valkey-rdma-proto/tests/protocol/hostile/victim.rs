//! One connection, and what must hold whatever its peer does. Shared by the property test, the replay of
//! the fuzzer's stories and the fuzzer (`fuzz/`).

use std::collections::BTreeSet;
use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, MESSAGE_LEN, XferMemory};
use valkey_rdma_proto::work::{
    Completion, FailureStatus, Outcome, Region, RegionId, SendOp, SendRequest, WrId,
};
use valkey_rdma_proto::{Config, Connection, Event, FeatureSet, Instant, Resources, Role, Work};

/// What happens to the connection.
#[derive(Clone, Debug, arbitrary::Arbitrary)]
pub enum Input {
    Established,
    Disconnected,
    DeviceFailure,
    Register { high: bool, len: u32, key: u32 },
    Message(Vec<u8>),
    Written { byte_len: u32, imm: u32 },
    Sent(u8),
    Failed,
    Nonsense(u64, u32),
    Elapse(u16),
    Write(u16),
    Read(u16),
    Close,
}

/// A whole story, as the fuzzer writes them.
#[derive(Clone, Debug, arbitrary::Arbitrary)]
pub struct Story {
    pub server: bool,
    pub early: bool,
    pub inputs: Vec<Input>,
}

impl Story {
    /// Applies the inputs in order. Returns the names of the events, ends and work requests that the connection came to.
    ///
    /// # Panics
    /// If the connection breaks one of its promises.
    pub fn play(&self) -> BTreeSet<String> {
        let mut victim = Victim::new(if self.server { Role::Server } else { Role::Client });
        if !self.early {
            victim.apply(&Input::Established);
        }
        for input in &self.inputs {
            victim.apply(input);
        }
        victim.reached
    }
}

const SEND_BUFFER: u32 = 64;
const WINDOW: u32 = 100;

/// A connection with everything around it that a device would do, and what must hold whatever happens.
pub struct Victim {
    core: Connection,
    now: Instant,
    posted: Vec<WrId>,
    disconnected: bool,
    connected: u32,
    agreed: Option<FeatureSet>,
    closed: u32,
    /// Names of the events, ends and work requests so far.
    reached: BTreeSet<String>,
}

impl Victim {
    /// A connection on which nothing has happened yet.
    pub fn new(role: Role) -> Self {
        Self::with_features(role, FeatureSet::NONE, FeatureSet::NONE)
    }

    /// The same of a side that wants or offers features; a client also requires some.
    pub fn with_features(role: Role, features: FeatureSet, requires: FeatureSet) -> Self {
        let rx = [0, 1].map(|n| Region { id: RegionId(2 + n), addr: 0, rkey: n, len: WINDOW });
        let resources = Resources {
            control: RegionId(0),
            send_buffer: RegionId(1),
            send_buffer_len: SEND_BUFFER,
            rx: &rx,
            receives: 8,
            send_depth: 16,
            max_message: 30,
        };
        let config = Config {
            idle_timeout: Some(Duration::from_secs(100)),
            stall_timeout: Some(Duration::from_secs(30)),
            credit_limit: 8,
            offers: features,
            wants: features,
            requires,
            ..Config::new(role)
        };
        let core = Connection::new(role, config, resources);
        let now = Instant::default();
        let mut victim = Self {
            core,
            now,
            posted: Vec::new(),
            disconnected: false,
            connected: 0,
            agreed: None,
            closed: 0,
            reached: BTreeSet::new(),
        };
        victim.pump();
        victim
    }

    /// Applies `input`, and checks all that the connection wants done after it.
    ///
    /// # Panics
    /// If the connection breaks one of its promises.
    pub fn apply(&mut self, input: &Input) {
        let now = self.now;
        match *input {
            Input::Established => self.core.handle_established(now),
            Input::Disconnected => self.core.handle_disconnected(now),
            Input::DeviceFailure => self.core.handle_device_failure(now),
            Input::Message(ref bytes) => {
                let len = bytes.len() as u32;
                self.receive(Outcome::Received { len }, &bytes[..bytes.len().min(MESSAGE_LEN)]);
            }
            Input::Register { high, len, key } => {
                let addr = if high { u64::MAX } else { 0 };
                let register = ControlMessage::RegisterXferMemory(XferMemory { addr, len, key });
                self.receive(Outcome::Received { len: MESSAGE_LEN as u32 }, &register.encode());
            }
            Input::Written { byte_len, imm } => self.receive(Outcome::Written { byte_len, imm }, &[]),
            Input::Sent(sequence) => self.complete(WrId::send(sequence.into()), Outcome::Sent, &[]),
            Input::Failed => {
                self.complete(WrId::send(0), Outcome::Failed(FailureStatus::RemoteOperation), &[]);
            }
            Input::Nonsense(id, n) => {
                // A slot that does not exist, a send that was never made, an outcome of the other kind.
                self.complete(WrId(id | 1 << 20), Outcome::Sent, &[]);
                self.complete(WrId(id & !(1 << 63)), Outcome::Received { len: n }, &[]);
            }
            Input::Elapse(ms) => {
                self.now = now + Duration::from_millis(ms.into());
                self.core.handle_timeout(self.now);
            }
            Input::Write(len) => {
                let room = self.core.reserve();
                assert!(room.end <= SEND_BUFFER);
                self.core.commit(u32::from(len).min(room.len() as u32));
            }
            Input::Read(len) => {
                if let Some(slice) = self.core.readable() {
                    assert!(slice.offset + slice.len <= WINDOW && slice.region.0 >= 2);
                    self.core.consume(slice.len.min(len.into()));
                }
            }
            Input::Close => self.core.close(now),
        }
        self.pump();
    }

    fn receive(&mut self, outcome: Outcome, message: &[u8]) {
        // After the end nothing is posted any more, and nothing can be received.
        if let Some(wr_id) = self.posted.pop() {
            self.complete(wr_id, outcome, message);
        }
    }

    fn complete(&mut self, wr_id: WrId, outcome: Outcome, message: &[u8]) {
        self.core.handle_completion(self.now, Completion { wr_id, outcome }, message);
    }

    fn pump(&mut self) {
        let now = self.now;
        while let Some(work) = self.core.poll_work(|| now) {
            assert!(!self.disconnected, "nothing follows a disconnect: {work:?}");
            // A client that closes may write nothing, to learn that all before it has arrived.
            let is_data = matches!(work, Work::Data(request) if request.local.len > 0);
            assert!(!is_data || self.core.agreed().is_some(), "data before features are agreed");
            self.reached.insert(name(&work));
            match work {
                Work::Receive(request) => self.posted.push(request.wr_id),
                Work::Message(request, _) => Self::look_at(&request, 0),
                Work::Data(request) => Self::look_at(&request, 1),
                Work::Disconnect => self.disconnected = true,
            }
        }
        assert!(self.posted.len() <= 8);
        while let Some(event) = self.core.poll_event() {
            self.reached.insert(name(&event));
            match event {
                Event::Connected => self.connected += 1,
                Event::Closed { .. } => self.closed += 1,
                _ => {}
            }
        }
        assert!(self.connected <= 1 && self.closed <= 1);
        match self.core.agreed() {
            Some(features) => assert_eq!(*self.agreed.get_or_insert(features), features, "agreed once"),
            None => assert!(self.core.room() == 0 && self.core.readable().is_none()),
        }
        assert_eq!(self.closed == 1, self.core.is_closed());
        assert_eq!(self.disconnected, self.core.is_closed());
        if self.core.is_closed() {
            assert!(self.core.reserve().is_empty());
            assert_eq!(self.core.poll_timeout(), None);
        }
    }

    fn look_at(request: &SendRequest, region: u32) {
        assert_eq!(request.local.region.0, region);
        if region == 1 {
            assert!(request.local.offset + request.local.len <= SEND_BUFFER);
        }
        if let SendOp::WriteWithImm { imm, .. } = request.op {
            assert!(imm >= request.local.len && imm <= 30);
        }
    }
}

/// The variants in its debug text: `Closed { reason: Protocol(EmptyWindow) }` is `Closed Protocol EmptyWindow`.
fn name(value: &impl std::fmt::Debug) -> String {
    const TYPES: [&str; 5] = ["SendRequest", "ReceiveRequest", "WrId", "Slice", "RegionId"];
    let text = format!("{value:?}");
    let words = text.split(|character: char| !character.is_alphanumeric());
    let variants = words.filter(|word| word.starts_with(char::is_uppercase) && !TYPES.contains(word));
    variants.collect::<Vec<_>>().join(" ")
}
