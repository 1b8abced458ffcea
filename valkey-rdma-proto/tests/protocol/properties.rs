//! Random lists of steps on two cores over a link with arbitrary delays.

mod agreement;
mod transfers;

use std::time::Duration;

use proptest::prelude::*;
use valkey_rdma_proto::{CloseReason, Config, Event, Role};

use crate::pair::{End, Pair, Setup};

/// One step: who does it, and how much where that matters.
#[derive(Clone, Copy, Debug)]
enum Step {
    Establish(End),
    Write(End, u8),
    Lend(End, u8),
    Read(End, u8),
    Deliver(End),
    Acknowledge(End),
    Poll(End),
    Pump(End),
    Elapse(u16),
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Client), Just(End::Server)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => end().prop_map(Step::Establish),
        4 => (end(), 1..60_u8).prop_map(|(end, len)| Step::Write(end, len)),
        2 => (end(), 1..60_u8).prop_map(|(end, len)| Step::Lend(end, len)),
        4 => (end(), 1..60_u8).prop_map(|(end, len)| Step::Read(end, len)),
        6 => end().prop_map(Step::Deliver),
        4 => end().prop_map(Step::Acknowledge),
        6 => end().prop_map(Step::Poll),
        4 => end().prop_map(Step::Pump),
        1 => (0..2000_u16).prop_map(Step::Elapse),
    ]
}

/// Windows from 1 byte, 1 to 3 buffers, send buffers from 1 byte, tight queues.
fn setup(role: Role, receives: impl Strategy<Value = u32>) -> impl Strategy<Value = Setup> {
    let len = || prop_oneof![2 => 1..4_u32, 2 => 4..50_u32, 1 => 50..300_u32];
    let keepalive = prop_oneof![Just(None), (1..3000_u64).prop_map(|ms| Some(Duration::from_millis(ms)))];
    let config = (len(), keepalive);
    let queues = (5..40_u32, receives, len());
    (len(), 1..4_u32, len(), queues, config).prop_map(
        move |(window, buffers, send_buffer, queues, config)| {
            let (send_depth, receives, max_message) = queues;
            let (max_piece, keepalive) = config;
            let config = Config {
                max_piece,
                keepalive,
                handshake_timeout: Duration::MAX,
                keepalive_misses: u32::MAX,
                ..Config::new(role)
            };
            Setup { config, window, buffers, send_buffer, receives, send_depth, max_message }
        },
    )
}

/// A client that may use as many credits as the server has receives, and not one more.
fn setups() -> impl Strategy<Value = (Setup, Setup)> {
    (4..40_u32).prop_flat_map(|limit| {
        (setup(Role::Client, 1..20_u32), setup(Role::Server, Just(limit))).prop_map(
            move |(client, server)| {
                let config = Config { credit_limit: limit, ..client.config };
                (Setup { config, ..client }, server)
            },
        )
    })
}

fn run(pair: &mut Pair, steps: &[Step]) {
    for &step in steps {
        match step {
            Step::Establish(end) => pair.establish(end),
            Step::Write(end, len) => drop(pair.write(end, len.into())),
            Step::Lend(end, len) => drop(pair.lend(end, len.into())),
            Step::Read(end, len) => drop(pair.read(end, len.into())),
            Step::Deliver(end) => drop(pair.deliver(end)),
            Step::Acknowledge(end) => drop(pair.acknowledge(end)),
            Step::Poll(end) => drop(pair.poll(end)),
            Step::Pump(end) => pair.pump(end),
            Step::Elapse(ms) => pair.expire(Duration::from_millis(ms.into())),
        }
        pair.check();
    }
}

fn events(pair: &Pair, end: End) -> (usize, usize) {
    let connected = pair[end].events.iter().filter(|event| **event == Event::Connected).count();
    (connected, pair[end].events.len() - connected)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// Whatever is delayed, and however late the cores are asked: every byte arrives once and in order, no
    /// server receive is ever missing, no write lands outside of a window, and both sides come to rest with
    /// nothing left (clauses W-1, W-4, C-1, I-1, H-3).
    #[test]
    fn every_byte_arrives_once_and_in_order_and_both_sides_come_to_rest(
        (client, server) in setups(),
        lazy: bool,
        steps in prop::collection::vec(step(), 0..400),
    ) {
        let mut pair = Pair::new(&client, &server);
        pair.lazy = lazy;
        run(&mut pair, &steps);
        pair.lazy = false;
        pair.establish(End::Client);
        pair.establish(End::Server);
        for end in End::BOTH {
            pair.transfer(end, 100);
        }
        for end in End::BOTH {
            pair.transfer(end.other(), 50);
            prop_assert_eq!(pair[end].read, pair[end.other()].written);
            prop_assert_eq!(events(&pair, end), (1, 0));
            let fate = pair[end].core.delivery_report();
            prop_assert_eq!(fate.unsent, 0);
            prop_assert_eq!(fate.delivered + fate.unknown, pair[end].written);
        }
        let counters = pair[End::Client].core.counters();
        prop_assert!(counters.credits_low_water.is_some());
    }

    /// Closed at any moment, by either side or both: each side gets one close reason; what the reader gets
    /// is the front of what was written; "closed, everything acknowledged" means that it has all of it
    /// (clauses ).
    #[test]
    fn a_close_at_any_moment_leaves_no_byte_in_doubt(
        (client, server) in setups(),
        before in prop::collection::vec(step(), 0..200),
        first in end(),
        between in prop::collection::vec(step(), 0..60),
        both: bool,
        after in prop::collection::vec(step(), 0..60),
    ) {
        let mut pair = Pair::new(&client, &server);
        pair.establish(End::Client);
        pair.establish(End::Server);
        run(&mut pair, &before);
        pair.close(first);
        let written = pair[first].written;
        run(&mut pair, &between);
        if both {
            pair.close(first.other());
        }
        run(&mut pair, &after);
        for _ in 0..1000 {
            for end in End::BOTH {
                pair.read(end, u64::MAX);
            }
            pair.settle();
        }
        pair.elapse(Duration::from_secs(3600));
        for end in End::BOTH {
            pair.read(end, u64::MAX);
            prop_assert_eq!(events(&pair, end).1, 1);
            let (fate, read) = (pair[end].core.delivery_report(), pair[end.other()].read);
            prop_assert!(fate.delivered <= read && read <= fate.delivered + fate.unknown);
            if pair.close_reason(end) == Some(CloseReason::Local) {
                prop_assert_eq!(read, pair[end].core.delivery_report().delivered);
                prop_assert_eq!(fate.unknown + fate.unsent, 0);
            }
        }
        prop_assert!(pair[first.other()].read <= written);
        if !both && pair.close_reason(first) == Some(CloseReason::Local) {
            prop_assert_eq!(pair[first.other()].read, written);
        }
        pair.check();
    }
}
