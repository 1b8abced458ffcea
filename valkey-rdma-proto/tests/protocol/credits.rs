//! Flow control of a client towards a server's receive queue: area C.

use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::work::SendOp;
use valkey_rdma_proto::{Config, ProtocolError, Role};

use crate::pair::{End, Fault, Pair, Setup};
use crate::scripted::{PEER_MEMORY, Scripted, WINDOW};

fn client(credit_limit: u32) -> Scripted {
    Scripted::new(Role::Client, Config { credit_limit, ..Config::new(Role::Client) }).connect()
}

fn sent(scripted: &Scripted) -> usize {
    let announced = scripted.data.iter().filter(|send| send.op.consumes_receive());
    announced.count() + scripted.messages.len()
}

#[test]
fn a_server_that_does_not_poll_gets_no_more_than_the_limit_c1() {
    for limit in [4, 8, 32] {
        let mut scripted = client(limit);
        for _ in 0..1000 {
            scripted.write(1);
            scripted.acknowledge();
        }
        let used = sent(&scripted) as u32;
        assert!((limit - 2..limit).contains(&used), "{used}: a Register, pieces of data, a question");
        // A window full of replies makes a Register due, whose credit no data may use. The reply proves the first
        // Register, which is worth one more piece at most.
        scripted.writes(WINDOW);
        scripted.read();
        assert!((used + 1..=limit).contains(&(sent(&scripted) as u32)));
        assert_eq!(scripted.core.counters().probes, 1);
    }
}

#[test]
fn what_waited_for_credits_leaves_as_one_message_c1() {
    let mut scripted = client(8);
    for _ in 0..1000 {
        scripted.write(1);
        scripted.acknowledge();
    }
    let before = scripted.data.len();
    scripted.says(ControlMessage::GetServerFeature(Features { select: 0, bits: 0 }));
    assert_eq!(scripted.data.len(), before + 1);
    assert_eq!(scripted.data.iter().map(|send| send.local.len).sum::<u32>(), 1000);
}

#[test]
fn a_busy_server_with_few_receives_loses_nothing_of_5000_small_commands_c1() {
    let mut setup = Setup::new(Role::Client);
    setup.config.credit_limit = 16;
    let mut server = Setup::new(Role::Server);
    (server.receives, server.window) = (16, 1 << 16);
    let mut pair = Pair::connected(&setup, &server);
    let mut wrote = 0;
    for step in 0..50_000 {
        wrote += pair.write(End::Client, 1.min(5000 - wrote));
        while pair.deliver(End::Client) {}
        while pair.acknowledge(End::Client) {}
        while pair.poll(End::Client) {}
        if step % 100 == 0 {
            // The server polls only now and then.
            while pair.poll(End::Server) | pair.deliver(End::Server) | pair.acknowledge(End::Server) {}
            pair.read(End::Server, u64::MAX);
        }
        pair.check();
    }
    pair.settle();
    pair.read(End::Server, u64::MAX);
    assert_eq!(pair[End::Server].read, 5000);
}

#[test]
fn more_credits_than_the_server_has_receives_are_seen_by_the_harness_c1() {
    let mut setup = Setup::new(Role::Client);
    setup.config.credit_limit = 16;
    let mut server = Setup::new(Role::Server);
    server.receives = 8;
    let mut pair = Pair::connected(&setup, &server);
    for _ in 0..16 {
        pair.write(End::Client, 1);
        while pair.deliver(End::Client) {}
    }
    assert_eq!(pair.faults(), [Fault::ReceiverNotReady]);
}

#[test]
fn bytes_in_our_window_and_a_new_window_are_proof_c2() {
    let mut scripted = client(32);
    for _ in 0..20 {
        scripted.write(1);
        scripted.acknowledge();
    }
    let low = scripted.core.counters().credits_low_water.unwrap();
    assert!(low <= 32 - 20);
    // The peer writes into a window whose Register was sent after the data: all of that is proven.
    scripted.writes(WINDOW);
    scripted.read();
    scripted.writes(1);
    for _ in 0..12 {
        scripted.write(1);
        scripted.acknowledge();
    }
    assert_eq!(scripted.core.counters().credits_low_water, Some(low));

    let mut scripted = client(8);
    scripted.write(1);
    scripted.write(1);
    assert_eq!(scripted.write(PEER_MEMORY.len - 2), PEER_MEMORY.len - 2);
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    for _ in 0..4 {
        scripted.write(1);
    }
    assert_eq!(scripted.core.counters().probes, 1, "the one asked before the proof");
}

#[test]
fn acknowledgements_of_the_device_are_no_proof_c2() {
    let mut scripted = client(8);
    for _ in 0..100 {
        scripted.write(1);
        scripted.acknowledge();
    }
    assert!(sent(&scripted) <= 8);
}

#[test]
fn one_question_at_a_time_is_asked_when_half_of_the_credits_are_used_c3() {
    let mut scripted = client(16);
    for _ in 0..6 {
        scripted.write(1);
        scripted.acknowledge();
    }
    assert_eq!(scripted.core.counters().probes, 0, "the Register and six pieces");
    scripted.write(1);
    scripted.write(1);
    assert_eq!(scripted.core.counters().probes, 1);
    assert_eq!(
        scripted.messages.last(),
        Some(&ControlMessage::GetServerFeature(Features { select: 0, bits: 0 }))
    );
    for _ in 0..100 {
        scripted.write(1);
        scripted.acknowledge();
    }
    assert_eq!(scripted.core.counters().probes, 1);
}

#[test]
fn an_answer_without_a_question_ends_the_connection_c3() {
    let mut scripted = client(16);
    scripted.says(ControlMessage::GetServerFeature(Features { select: 0, bits: 0 }));
    scripted.assert_refused(ProtocolError::Opcode { opcode: 0 });
}

#[test]
fn a_server_counts_no_credits_because_its_peer_is_asked_for_ever_h5() {
    let mut scripted = Scripted::connected(Role::Server);
    for _ in 0..3000 {
        assert_eq!(scripted.write(1), 1);
        scripted.acknowledge();
    }
    assert_eq!(scripted.core.counters().credits_low_water, None);
    assert_eq!(scripted.core.counters().probes, 0, "and asks nothing (clause F-3)");
}

#[test]
fn a_piece_that_wraps_around_the_send_buffer_is_one_message_c1() {
    let mut setup = Setup::new(Role::Client);
    (setup.send_buffer, setup.config.credit_limit) = (100, 1024);
    let mut server = Setup::new(Role::Server);
    server.window = 1 << 16;
    let mut pair = Pair::connected(&setup, &server);
    pair.transfer(End::Client, 70);
    let before = pair[End::Client].messages_out;
    // Two pieces of the ring are filled before either is posted.
    assert!(pair[End::Client].write(60) >= 45);
    pair.pump(End::Client);
    let ops: Vec<_> = pair[End::Client].sends.iter().map(|send| send.request.op).collect();
    let [SendOp::Write { .. }, SendOp::WriteWithImm { imm, .. }] = ops[..] else { panic!("{ops:?}") };
    assert!(imm >= 45);
    pair.settle();
    assert_eq!(pair[End::Client].messages_out, before + 1);
    assert_eq!(pair.read(End::Server, u64::MAX), u64::from(imm));
    pair.check();
}
