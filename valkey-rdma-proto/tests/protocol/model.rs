//! Model checking: the same core, two of them, in worlds so small that every interleaving of delivery,
//! acknowledgement, polling, reading, writing, keepalive and closing can be tried.
//!
//! Every step moves a byte, a message or a completion on, so no world runs for ever: a deadlock is a state in
//! which nothing can happen any more although something is left to do.

mod agreement;
mod hostile;
mod transfers;

use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::{Checker, Model, Property};
use valkey_rdma_proto::{CloseReason, Config, Direction, Event, Instant, Role};

use crate::pair::{End, Pair, Setup};

/// A step of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Establish(End),
    Write(End),
    Lend(End),
    /// The server transfers three bytes, in two pieces.
    Transfer(Direction),
    Read(End),
    Deliver(End),
    Acknowledge(End),
    Poll(End),
    HangUp(End),
    Close(End),
    /// Time passes to the next deadline.
    Tick,
}

/// A small world: the setup of the two sides, and the steps that are possible.
#[derive(Clone, Debug)]
struct World {
    client: Setup,
    server: Setup,
    /// Bytes that each side's application writes.
    says: [u64; 2],
    /// Sides that close, at any moment.
    closers: &'static [End],
    /// How far time may go.
    until: Duration,
    handshake: bool,
    /// Up to two bytes may be sent from where they lie, too.
    lend: bool,
    /// Transfers of the server.
    transfers: &'static [Direction],
    skip_tail: bool,
}

impl World {
    /// Windows of these lengths, one buffer each, two bytes of send buffer, four credits, and neither side closes.
    fn new(windows: [u32; 2], says: [u64; 2]) -> Self {
        let setup = |role, window, receives| Setup {
            config: Config {
                credit_limit: 4,
                keepalive: None,
                linger: Duration::ZERO,
                close_timeout: Duration::MAX,
                handshake_timeout: Duration::MAX,
                ..Config::new(role)
            },
            window,
            buffers: 1,
            send_buffer: 2,
            receives,
            send_depth: 6,
            max_message: 2,
        };
        Self {
            client: setup(Role::Client, windows[0], 2),
            server: setup(Role::Server, windows[1], 4),
            says,
            closers: &[],
            until: Duration::ZERO,
            handshake: false,
            lend: false,
            transfers: &[],
            skip_tail: false,
        }
    }

    fn buffers(mut self, buffers: u32) -> Self {
        (self.client.buffers, self.server.buffers) = (buffers, buffers);
        self
    }

    fn closing(self, closers: &'static [End]) -> Self {
        Self { closers, ..self }
    }

    fn possible(&self, pair: &Pair) -> Vec<Step> {
        let mut steps = Vec::new();
        for end in End::BOTH {
            let (side, peer) = (&pair[end], &pair[end.other()]);
            let mut may = |possible: bool, step| steps.extend(possible.then_some(step));
            may(!side.core.is_closed() && !side.established, Step::Establish(end));
            let writes = self.left(pair, end) > 0 && side.core.room() > 0;
            may(writes, Step::Write(end));
            may(writes && self.lend, Step::Lend(end));
            may(side.core.readable().is_some(), Step::Read(end));
            // A server's device waits for a receive; a client's dies.
            let waits = end == End::Server && peer.up && peer.posted.is_empty();
            may(!waits && !side.sends.is_empty(), Step::Deliver(end));
            may(!side.executed.is_empty(), Step::Acknowledge(end));
            may(!side.completions.is_empty(), Step::Poll(end));
            may(side.hung_up, Step::HangUp(end));
            may(self.closers.contains(&end) && !side.core.is_closing(), Step::Close(end));
        }
        let server = &pair[End::Server];
        if let Some(direction) = self.transfers.get(server.transfers.len())
            && server.core.may_transfer()
            && !server.core.is_closing()
        {
            steps.push(Step::Transfer(*direction));
        }
        if pair.next_deadline().is_some_and(|next| next <= Instant::from_origin(self.until)) {
            steps.push(Step::Tick);
        }
        steps
    }

    fn left(&self, pair: &Pair, end: End) -> u64 {
        self.says[end as usize] - pair[end].written
    }

    /// Nothing is left to be done.
    fn is_finished(&self, pair: &Pair) -> bool {
        if !self.transfers_are_finished(pair) {
            return false;
        }
        End::BOTH.into_iter().all(|end| {
            let (side, read) = (&pair[end], pair[end.other()].read);
            let fate = side.core.delivery_report();
            match (self.closers, pair.close_reason(end)) {
                ([], None) => self.left(pair, end) == 0 && read == side.written,
                ([], Some(_)) | (_, None) => false,
                (_, Some(CloseReason::Local)) => fate.unknown + fate.unsent == 0 && read == fate.delivered,
                (_, Some(_)) => fate.delivered <= read && read <= fate.delivered + fate.unknown,
            }
        })
    }

    /// Without an end of the connection, every transfer completes; with an orderly one of the server, every one that has started.
    fn transfers_are_finished(&self, pair: &Pair) -> bool {
        let server = &pair[End::Server];
        let ended = pair.close_reason(End::Server);
        let started = server.transfers.len();
        let complete = server.core.transferred() == started as u64;
        match ended {
            None => complete && started == self.transfers.len(),
            Some(CloseReason::Local) => complete,
            Some(_) => true,
        }
    }

    /// The end is reported once; it is the last event and the last work.
    fn ends_once(pair: &Pair) -> bool {
        End::BOTH.into_iter().all(|end| {
            let side = &pair[end];
            let ends = side.events.iter().filter(|event| matches!(event, Event::Closed { .. })).count();
            let last = matches!(side.events.last(), Some(Event::Closed { .. }));
            ends <= 1 && (ends == 1) == last && (ends == 0 || side.sends.is_empty() && !side.up)
        })
    }
}

impl Model for World {
    type State = Pair;
    type Action = Step;

    fn init_states(&self) -> Vec<Pair> {
        let mut pair = if self.handshake {
            Pair::new(&self.client, &self.server)
        } else {
            Pair::connected(&self.client, &self.server)
        };
        pair.skip_tail = self.skip_tail;
        vec![pair]
    }

    fn actions(&self, pair: &Pair, steps: &mut Vec<Step>) {
        // A fault ends the world: nothing after it is checked.
        if pair.faults().is_empty() {
            steps.extend(self.possible(pair));
        }
    }

    fn next_state(&self, pair: &Pair, step: Step) -> Option<Pair> {
        let mut pair = pair.clone();
        match step {
            Step::Establish(end) => pair.establish(end),
            Step::Write(end) => drop(pair.write(end, 1)),
            Step::Transfer(direction) => pair.direct(direction, 3),
            Step::Lend(end) => drop(pair.lend(end, self.left(&pair, end).min(2))),
            Step::Read(end) => drop(pair.read(end, 1)),
            Step::Deliver(end) => drop(pair.deliver(end)),
            Step::Acknowledge(end) => drop(pair.acknowledge(end)),
            Step::Poll(end) => drop(pair.poll(end)),
            Step::HangUp(end) => drop(pair.hang_up(end)),
            Step::Close(end) => pair.close(end),
            Step::Tick => {
                let next = pair.next_deadline().expect("only then time passes");
                pair.expire(next - pair.now());
            }
        }
        Some(pair)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOST, |_, pair: &Pair| pair.faults().is_empty()),
            Property::always(STUCK, |world: &World, pair: &Pair| {
                !pair.faults().is_empty() || !world.possible(pair).is_empty() || world.is_finished(pair)
            }),
            Property::always("the end is reported once and nothing follows it", |_, pair: &Pair| {
                World::ends_once(pair)
            }),
            Property::sometimes("everything arrives", |world: &World, pair: &Pair| {
                End::BOTH.into_iter().all(|end| pair[end.other()].read == world.says[end as usize])
            }),
        ]
    }
}

const LOST: &str = "nothing is lost, overrun or overwritten";
const STUCK: &str = "what comes to rest is finished";

/// A model that the checker can explore.
trait Explorable:
    Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>
    + Send
    + Sync
    + 'static
{
}

impl<M> Explorable for M
where
    M: Model<State: Clone + Debug + Hash + PartialEq + Send + Sync, Action: Clone + Debug + PartialEq>,
    M: Send + Sync + 'static,
{
}

/// Tries every order of steps, and prints the number of states.
#[expect(clippy::print_stdout, reason = "the number of states is a result")]
fn explore<M: Explorable>(name: &str, world: M) -> impl Checker<M> {
    let checker = world.checker().spawn_bfs().join();
    println!("{name}: {} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker
}

fn prove(name: &str, world: impl Explorable) {
    let checker = explore(name, world);
    assert!(checker.is_done());
    checker.assert_properties();
}

/// The checker finds what a broken rule leads to.
fn refute(name: &str, world: World, property: &'static str) {
    let checker = explore(name, world);
    assert!(checker.discovery(property).is_some(), "{name} does no harm");
}

#[test]
fn one_byte_windows_one_direction_w4_c1() {
    prove("client to server, one byte", World::new([1, 1], [4, 0]));
    prove("server to client, one byte", World::new([1, 1], [0, 4]));
}

#[test]
fn windows_that_are_not_full_at_the_end_w4_w5() {
    prove("client to server, three bytes", World::new([1, 3], [4, 0]));
    prove("server to client, three bytes", World::new([3, 1], [0, 5]));
}

#[test]
fn bytes_written_and_lent_in_any_order_w4_x1() {
    let lends = |windows, says| World { lend: true, ..World::new(windows, says) };
    prove("a client that lends", lends([1, 2], [4, 0]));
    prove("a server that lends", lends([2, 1], [0, 4]));
    prove("a client that lends and closes", lends([1, 2], [3, 0]).closing(&[End::Client]));
}

#[test]
fn both_directions_at_once_w4_w5_c1() {
    prove("both directions", World::new([1, 2], [2, 1]));
}

#[test]
fn two_and_three_buffers_rotate_w6() {
    prove("two buffers", World::new([1, 1], [0, 4]).buffers(2));
    prove("two buffers of two", World::new([1, 2], [4, 0]).buffers(2));
    prove("three buffers", World::new([1, 1], [4, 0]).buffers(3));
}

#[test]
fn the_handshake_in_any_order_h2_h3() {
    prove("handshake", World { handshake: true, ..World::new([1, 1], [1, 1]) });
}

#[test]
fn keepalives_among_data_k1_k2() {
    let second = Duration::from_secs(1);
    let mut world = World { until: second * 2, ..World::new([1, 1], [0, 2]) };
    world.server.config.keepalive = Some(second);
    prove("keepalives of a server", world);

    let mut world = World { until: second * 2, ..World::new([1, 1], [2, 0]) };
    world.client.config.keepalive = Some(second);
    prove("keepalives of a client", world);
}

#[test]
fn a_close_by_the_writer_at_any_moment_x1() {
    prove("client writes and closes", World::new([1, 1], [3, 0]).closing(&[End::Client]));
    prove("server writes and closes", World::new([1, 1], [0, 3]).closing(&[End::Server]));
}

#[test]
fn a_close_by_the_reader_at_any_moment_x2_x3() {
    prove("client closes, server writes", World::new([1, 1], [0, 3]).closing(&[End::Client]));
    prove("server closes, client writes", World::new([1, 1], [3, 0]).closing(&[End::Server]));
}

#[test]
fn both_close_at_any_moment_x1_x2() {
    prove("both close", World::new([1, 1], [1, 1]).closing(&End::BOTH));
}

#[test]
fn a_server_that_lingers_x2() {
    let mut world = World::new([1, 1], [0, 2]).closing(&End::BOTH);
    world.server.config.linger = Duration::from_secs(1);
    world.until = Duration::from_secs(1);
    prove("lingering", world);
}

#[test]
fn ignoring_credits_is_found_c1() {
    let mut world = World::new([1, 8], [6, 0]);
    world.client.config.credit_limit = 16;
    refute("ignored credits", world, LOST);
}

#[test]
fn skipping_the_tail_is_found_w4() {
    let world = World { handshake: true, skip_tail: true, ..World::new([2, 2], [2, 0]) };
    refute("skipped tail", world, STUCK);
}

#[test]
#[ignore = "takes minutes: ./dev model runs it"]
fn larger_worlds_w4_w5_c1_k2_x1() {
    let second = Duration::from_secs(1);
    let mut world = World { until: second * 2, ..World::new([1, 1], [1, 1]) };
    world.server.config.keepalive = Some(second);
    world.client.config.keepalive = Some(second);
    prove("keepalives of both", world);
    prove("both directions, larger", World::new([1, 2], [2, 2]));
    prove("both directions, two buffers", World::new([1, 1], [2, 2]).buffers(2));
    prove("both close, larger", World::new([1, 1], [2, 1]).closing(&End::BOTH));
}
