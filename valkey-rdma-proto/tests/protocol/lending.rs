//! Bytes that are sent from where they lie: areas W and L.

use valkey_rdma_proto::work::SendOp;
use valkey_rdma_proto::{Fate, Role};

use crate::pair::{End, Pair, Setup};

const CLIENT: End = End::Client;

/// A command as a client sends it: what stands before its value, the value, what ends it.
fn command(pair: &mut Pair, value: u64) {
    pair[CLIENT].write(30);
    assert_eq!(pair[CLIENT].lend(value), value);
    pair[CLIENT].write(2);
    pair.pump(CLIENT);
}

#[test]
fn a_value_lent_and_what_stands_around_it_are_one_message_i4() {
    let mut pair = Pair::usual();
    command(&mut pair, 200);
    let sends: Vec<_> = pair[CLIENT].sends.iter().map(|send| send.request).collect();
    let [header, value, end] = sends[..] else { panic!("three work requests: {sends:?}") };
    for (send, len) in [(header, 30), (value, 200)] {
        assert!(matches!(send.op, SendOp::Write { .. }), "{send:?}");
        assert_eq!((send.local.len, send.signalled), (len, false));
    }
    assert!(matches!(end.op, SendOp::WriteWithImm { imm: 232, .. }), "{end:?}");
    assert!(end.signalled, "or the memory would not be given back before more is sent");
    pair.settle();
    assert_eq!(pair[CLIENT].core.fate(), Fate { delivered: 232, ..Fate::default() });
    assert_eq!(pair.read(End::Server, u64::MAX), 232);
}

#[test]
fn a_value_lent_may_be_longer_than_send_buffer_and_window_w4_l2() {
    let mut client = Setup::new(Role::Client);
    (client.staging, client.max_message) = (64, 100);
    let mut pair = Pair::connected(&client, &Setup::new(Role::Server));
    command(&mut pair, 5000);
    assert_eq!(pair[CLIENT].core.room(), 0, "it counts as if it were in the send buffer");
    assert!(pair[CLIENT].sends.iter().all(|send| send.request.local.len <= 100));
    while pair[End::Server].read < pair[CLIENT].written {
        pair.settle();
        assert!(pair.read(End::Server, u64::MAX) > 0, "goes on");
    }
    pair.settle();
    assert_eq!(pair[CLIENT].core.fate().delivered, pair[CLIENT].written);
    assert!(pair[CLIENT].core.room() > 0);
}

#[test]
fn nothing_is_lent_to_a_connection_that_closes_x1() {
    let mut pair = Pair::usual();
    pair.close(CLIENT);
    assert_eq!(pair.lend(CLIENT, 10), 0);
    let slice = pair[End::Server].core.readable();
    assert_eq!(slice, None);
}
