//! Memory that bytes are sent from, that of the application too, and when it is free again: areas W and L.

use valkey_rdma_proto::work::{RegionId, SendOp, Slice};
use valkey_rdma_proto::{DeliveryReport, Role};

use crate::pair::{End, Pair, Setup};
use crate::scripted::Scripted;

const CLIENT: End = End::Client;

#[test]
fn a_value_lent_and_what_stands_around_it_are_one_message_i4() {
    let mut pair = Pair::usual();
    pair[CLIENT].write(30);
    assert_eq!(pair[CLIENT].lend(200), 200);
    pair[CLIENT].write(2);
    pair.pump(CLIENT);
    let sends: Vec<_> = pair[CLIENT].sends.iter().map(|send| send.request).collect();
    let [header, value, end] = sends[..] else { panic!("three work requests: {sends:?}") };
    for (send, len) in [(header, 30), (value, 200)] {
        assert!(matches!(send.op, SendOp::Write { .. }), "{send:?}");
        assert_eq!((send.local.len, send.signalled), (len, false));
    }
    assert!(matches!(end.op, SendOp::WriteWithImm { imm: 232, .. }), "{end:?}");
    assert!(end.signalled, "or the memory would not be given back before more is sent");
    pair.settle();
    assert_eq!(
        pair[CLIENT].core.delivery_report(),
        DeliveryReport { delivered: 232, ..DeliveryReport::default() }
    );
    assert_eq!(pair.read(End::Server, u64::MAX), 232);
}

#[test]
fn of_a_value_in_pieces_the_last_one_is_signalled_l2() {
    let mut client = Setup::new(Role::Client);
    client.max_message = 60;
    let mut pair = Pair::connected(&client, &Setup::new(Role::Server));
    assert_eq!(pair.lend(CLIENT, 200), 200);
    let sends: Vec<_> = pair[CLIENT].sends.iter().map(|send| send.request).collect();
    let sent: Vec<_> = sends.iter().map(|send| (send.local.len, send.signalled)).collect();
    assert_eq!(sent, [(60, false), (60, false), (60, false), (20, true)]);
}

#[test]
fn what_is_lent_waits_for_room_and_window_like_all_else_w4() {
    let (mut client, mut server) = (Setup::new(Role::Client), Setup::new(Role::Server));
    (client.send_buffer, server.window) = (64, 50);
    let mut pair = Pair::connected(&client, &server);
    pair.write(CLIENT, 4);
    assert_eq!(pair.lend(CLIENT, 5000), 60);
    assert_eq!((pair[CLIENT].core.room(), pair[CLIENT].core.reserve().len()), (0, 0));
    while pair[CLIENT].written < 5000 {
        pair.settle();
        pair.read(End::Server, u64::MAX);
        pair.settle();
        assert!(pair.lend(CLIENT, 5000) + pair.write(CLIENT, 7) > 0, "goes on");
    }
    pair.settle();
    pair.read(End::Server, u64::MAX);
    pair.settle();
    let fate = pair[CLIENT].core.delivery_report();
    assert_eq!((fate.delivered, fate.unsent), (pair[CLIENT].written, 0));
}

#[test]
fn nothing_is_lent_to_a_connection_that_closes_x1() {
    let mut pair = Pair::usual();
    pair.close(CLIENT);
    pair[CLIENT].core.lend(Slice { region: RegionId(9), offset: 0, len: 10 });
    assert_eq!(pair[CLIENT].core.delivery_report(), DeliveryReport::default());
}

#[test]
fn the_last_bytes_before_a_pause_are_acknowledged_on_request_l4() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.request_acknowledgement();
    assert!(scripted.data.is_empty(), "nothing was sent");
    scripted.write(10);
    scripted.acknowledge();
    assert_eq!(scripted.core.delivery_report().unknown, 10, "a short write is not signalled");
    let credits = scripted.core.counters().credits_low_water;
    for _ in 0..2 {
        scripted.request_acknowledgement();
        assert_eq!(scripted.data.len(), 2, "one write, and one fence for both requests");
    }
    let fence = scripted.data.last().unwrap();
    assert_eq!((fence.local.len, fence.signalled), (0, true));
    assert!(matches!(fence.op, SendOp::Write { .. }), "unseen by the peer");
    assert_eq!(scripted.core.counters().credits_low_water, credits, "it takes no receive of the peer's");
    scripted.acknowledge();
    assert_eq!(
        scripted.core.delivery_report(),
        DeliveryReport { delivered: 10, ..DeliveryReport::default() }
    );
    scripted.close();
    scripted.request_acknowledgement();
    assert_eq!(scripted.data.len(), 2, "no fence more, and none after the end");
}
