//! The protocol core alone: two of them, wired back to back, exchange a request and a reply.

use std::collections::VecDeque;
use std::hint::black_box;

use criterion::{Criterion, Throughput};
use valkey_rdma_proto::wire::MESSAGE_LEN;
use valkey_rdma_proto::work::{Completion, Outcome, Region, RegionId, SendOp, SendRequest, WrId};
use valkey_rdma_proto::{Config, Connection, Instant, Resources, Role, Work};

/// A GET of a 16 byte key.
const REQUEST: u32 = 36;
/// Three bytes.
const REPLY: u32 = 9;
const WINDOW: u32 = 1 << 20;

struct Side {
    core: Connection,
    receives: VecDeque<WrId>,
}

impl Side {
    fn new(role: Role) -> Self {
        let rx: Vec<_> = (0..2)
            .map(|n| Region { id: RegionId(2 + n), addr: u64::from(n + 1) << 32, rkey: n, len: WINDOW })
            .collect();
        let resources = Resources {
            control: RegionId(0),
            send_buffer: RegionId(1),
            send_buffer_len: WINDOW,
            rx: &rx,
            receives: 1024,
            send_depth: 1024,
            max_message: 1 << 30,
        };
        Self { core: Connection::new(role, Config::new(role), resources), receives: VecDeque::new() }
    }

    fn write(&mut self, len: u32) {
        let mut left = len;
        while left > 0 {
            let now = left.min(self.core.reserve().len() as u32);
            assert!(now > 0, "the peer acknowledges everything at once");
            self.core.commit(now);
            left -= now;
        }
    }

    fn read(&mut self) -> u32 {
        let mut len = 0;
        while let Some(slice) = self.core.readable() {
            self.core.consume(slice.len);
            len += slice.len;
        }
        len
    }
}

/// Both sides, on a wire without any delay.
struct Pair([Side; 2]);

impl Pair {
    fn connected() -> Self {
        let mut pair = Self([Side::new(Role::Client), Side::new(Role::Server)]);
        (0..2).for_each(|side| pair.pump(side));
        pair.0.iter_mut().for_each(|side| side.core.handle_established(Instant::default()));
        (0..2).for_each(|side| pair.pump(side));
        assert!(pair.0.iter().all(|side| side.core.is_connected()));
        pair
    }

    /// Does all that a side has to do, and what it leads to on the other.
    fn pump(&mut self, side: usize) {
        while let Some(work) = self.0[side].core.poll_work(Instant::default) {
            match work {
                Work::Receive(request) => self.0[side].receives.push_back(request.wr_id),
                Work::Message(request, bytes) => {
                    let outcome = Outcome::Received { len: MESSAGE_LEN as u32 };
                    self.arrive(side, request, outcome, &bytes);
                }
                Work::Data(request) => {
                    let SendOp::WriteWithImm { imm, .. } = request.op else { continue };
                    self.arrive(side, request, Outcome::Written { byte_len: request.local.len, imm }, &[]);
                }
                Work::Disconnect => panic!("neither side disconnects"),
            }
        }
    }

    fn arrive(&mut self, from: usize, request: SendRequest, outcome: Outcome, message: &[u8]) {
        let to = &mut self.0[1 - from];
        let wr_id = to.receives.pop_front().expect("receives are posted");
        to.core.handle_completion(Instant::default(), Completion { wr_id, outcome }, message);
        if request.signalled {
            let sent = Completion { wr_id: request.wr_id, outcome: Outcome::Sent };
            self.0[from].core.handle_completion(Instant::default(), sent, &[]);
        }
        self.pump(1 - from);
    }

    /// A request there and a reply back.
    fn exchange(&mut self) -> u32 {
        let mut read = 0;
        for (from, len) in [(0, REQUEST), (1, REPLY)] {
            self.0[from].write(len);
            self.pump(from);
            read += self.0[1 - from].read();
            self.pump(1 - from);
        }
        read
    }
}

pub(crate) fn exchange(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    group.throughput(Throughput::Elements(1));
    let mut pair = Pair::connected();
    group.bench_function("request and reply, both sides", |bencher| {
        bencher.iter(|| assert_eq!(black_box(pair.exchange()), REQUEST + REPLY));
    });
    group.finish();
}
