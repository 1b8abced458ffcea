//! A peer that says anything at any time: every input ends in data, nothing, or one typed error.

use std::time::Duration;

use proptest::prelude::*;
use valkey_rdma_proto::wire::MESSAGE_LEN;
use valkey_rdma_proto::work::{
    Completion, FailureStatus, Outcome, Region, RegionId, SendOp, SendRequest, WrId,
};
use valkey_rdma_proto::{Config, Connection, Event, Instant, Resources, Role, Work};

/// What happens to the connection.
#[derive(Clone, Debug)]
enum Input {
    Established,
    Disconnected,
    DeviceFailure,
    Message(Vec<u8>),
    Written { byte_len: u32, imm: u32 },
    Sent(u64),
    Failed,
    Nonsense(u64, u32),
    Elapse(u16),
    Write(u16),
    Read(u16),
    Renew,
    Close,
}

const STAGING: u32 = 64;
const WINDOW: u32 = 100;

fn number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..12_u32, 2 => 90..110_u32, 1 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let register = (number(), number(), any::<bool>()).prop_map(|(len, key, high)| {
        let mut bytes = vec![0; MESSAGE_LEN];
        bytes[1] = 3;
        bytes[16..24].fill(if high { 0xff } else { 0 });
        bytes[24..28].copy_from_slice(&len.to_be_bytes());
        bytes[28..].copy_from_slice(&key.to_be_bytes());
        bytes
    });
    let opcode = (0..6_u8, any::<[u8; 30]>()).prop_map(|(opcode, rest)| [&[0, opcode], &rest[..]].concat());
    prop_oneof![6 => register, 4 => opcode, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        2 => Just(Input::Established),
        10 => message().prop_map(Input::Message),
        10 => (number(), number()).prop_map(|(byte_len, imm)| Input::Written { byte_len, imm }),
        6 => (1..50_u32).prop_map(|len| Input::Written { byte_len: len, imm: len }),
        4 => (0..40_u64).prop_map(Input::Sent),
        1 => (any::<u64>(), any::<u32>()).prop_map(|(id, n)| Input::Nonsense(id, n)),
        3 => any::<u16>().prop_map(Input::Elapse),
        8 => (0..80_u16).prop_map(Input::Write),
        8 => (0..80_u16).prop_map(Input::Read),
        1 => Just(Input::Renew),
        1 => prop_oneof![
            Just(Input::Close),
            Just(Input::Failed),
            Just(Input::Disconnected),
            Just(Input::DeviceFailure)
        ],
    ]
}

struct Victim {
    core: Connection,
    now: Instant,
    posted: Vec<WrId>,
    disconnected: bool,
    connected: u32,
    closed: u32,
}

impl Victim {
    fn new(role: Role) -> Self {
        let rx = [0, 1].map(|n| Region { id: RegionId(2 + n), addr: 0, rkey: n, len: WINDOW });
        let resources = Resources {
            commands: RegionId(0),
            staging: RegionId(1),
            staging_len: STAGING,
            rx: &rx,
            receives: 8,
            send_depth: 16,
            max_message: 30,
        };
        let config = Config {
            danger_early_register: true,
            features: Some(1),
            idle_timeout: Some(Duration::from_secs(100)),
            credit_limit: 8,
            ..Config::new(role)
        };
        let core = Connection::new(role, config, resources);
        let now = Instant::default();
        let mut victim = Self { core, now, posted: Vec::new(), disconnected: false, connected: 0, closed: 0 };
        victim.pump();
        victim
    }

    fn apply(&mut self, input: &Input) {
        let now = self.now;
        match *input {
            Input::Established => self.core.handle_established(now),
            Input::Disconnected => self.core.handle_disconnected(now),
            Input::DeviceFailure => self.core.handle_device_failure(now),
            Input::Message(ref bytes) => {
                let len = bytes.len() as u32;
                self.receive(Outcome::Received { len }, &bytes[..bytes.len().min(MESSAGE_LEN)]);
            }
            Input::Written { byte_len, imm } => self.receive(Outcome::Written { byte_len, imm }, &[]),
            Input::Sent(sequence) => self.complete(WrId::send(sequence), Outcome::Sent, &[]),
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
                assert!(room.end <= STAGING);
                self.core.commit(now, u32::from(len).min(room.len() as u32));
            }
            Input::Read(len) => {
                if let Some(slice) = self.core.readable() {
                    assert!(slice.offset + slice.len <= WINDOW && slice.region.0 >= 2);
                    self.core.consume(now, slice.len.min(len.into()));
                }
            }
            Input::Renew => drop(self.core.renew_window(now)),
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
        while let Some(work) = self.core.poll_work() {
            assert!(!self.disconnected, "nothing follows a disconnect: {work:?}");
            match work {
                Work::Receive(request) => self.posted.push(request.wr_id),
                Work::Message(request, _) => Self::look_at(&request, 0),
                Work::Data(request) => Self::look_at(&request, 1),
                Work::Disconnect => self.disconnected = true,
            }
        }
        assert!(self.posted.len() <= 8);
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Connected => self.connected += 1,
                Event::Closed { .. } => self.closed += 1,
                _ => {}
            }
        }
        assert!(self.connected <= 1 && self.closed <= 1);
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
            assert!(request.local.offset + request.local.len <= STAGING);
        }
        if let SendOp::WriteWithImm { imm, .. } = request.op {
            assert!(imm >= request.local.len && imm <= 30);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Clauses M-1, M-2, I-2, I-3, F-4: no panic, no work after the end, one end.
    #[test]
    fn any_input_in_any_state_ends_in_data_nothing_or_one_typed_error(
        server: bool,
        early: bool,
        inputs in prop::collection::vec(input(), 0..120),
    ) {
        let mut victim = Victim::new(if server { Role::Server } else { Role::Client });
        if !early {
            victim.apply(&Input::Established);
        }
        for input in &inputs {
            victim.apply(input);
        }
    }
}
