//! Windows, immediates and limits: areas W, I and L.

use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, XferMemory};
use valkey_rdma_proto::work::SendOp;
use valkey_rdma_proto::{CloseReason, Config, ProtocolError, Role};

use crate::pair::{End, Pair, Setup};
use crate::scripted::{PEER_MEMORY, Scripted, WINDOW};

fn register(memory: XferMemory) -> ControlMessage {
    ControlMessage::RegisterXferMemory(memory)
}

#[test]
fn writing_starts_at_the_front_of_every_window_and_is_contiguous_w1() {
    let mut scripted = Scripted::connected(Role::Client);
    for len in [100, 1, PEER_MEMORY.len - 101] {
        assert_eq!(scripted.write(len), len);
    }
    let elsewhere = XferMemory { addr: 0xc000_0000, key: 0xfeed, ..PEER_MEMORY };
    scripted.says(register(elsewhere));
    assert_eq!(scripted.write(7), 7);
    let mut next = PEER_MEMORY;
    for (index, send) in scripted.data.iter().enumerate() {
        if index == 3 {
            next = elsewhere;
        }
        let SendOp::WriteWithImm { addr, rkey, imm } = send.op else { panic!("a write with immediate") };
        assert_eq!((addr, rkey, imm), (next.addr, next.key, send.local.len));
        next.addr += u64::from(imm);
    }
    assert_eq!(scripted.data.len(), 4);
}

#[test]
fn empty_and_immense_windows_are_refused_w2() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::new(role, Config::new(role));
        scripted.establish();
        scripted.says(register(XferMemory { len: 0, ..PEER_MEMORY }));
        scripted.assert_refused(ProtocolError::EmptyWindow);

        let mut scripted = Scripted::new(role, Config::new(role));
        scripted.establish();
        scripted.says(register(XferMemory { len: u32::MAX, ..PEER_MEMORY }));
        let (addr, len, limit) = (PEER_MEMORY.addr, u32::MAX, 1 << 30);
        scripted.assert_refused(ProtocolError::WindowTooLarge { addr, len, limit });
    }
}

#[test]
fn windows_of_any_length_carry_values_of_three_times_that_length_w2() {
    for window in [1, 2, 3, 7, 100, 1001, 64 * 1024, 100_001] {
        let mut client = Setup::new(Role::Client);
        let mut server = Setup::new(Role::Server);
        (client.window, server.window) = (window + 5, window);
        (client.buffers, server.buffers) = (2, 1);
        let mut pair = Pair::connected(&client, &server);
        pair.transfer(End::Client, u64::from(window) * 3 + 1);
        pair.transfer(End::Server, u64::from(window) * 3 + 1);
    }
}

#[test]
fn the_own_length_never_changes_w3() {
    let mut scripted = Scripted::with_buffers(Role::Client, Config::new(Role::Client), 3).connect();
    for _ in 0..7 {
        scripted.writes(WINDOW);
        scripted.read();
    }
    let lengths = scripted.messages.iter().map(|message| match message {
        ControlMessage::RegisterXferMemory(memory) => memory.len,
        other => panic!("{other:?}"),
    });
    assert_eq!(lengths.collect::<Vec<_>>(), [WINDOW; 8]);
}

#[test]
fn another_length_in_a_later_register_is_accepted_w3() {
    let mut scripted = Scripted::connected(Role::Server);
    assert_eq!(scripted.write(PEER_MEMORY.len), PEER_MEMORY.len);
    scripted.says(register(XferMemory { len: 10, ..PEER_MEMORY }));
    scripted.acknowledge();
    assert_eq!(scripted.write(100), 100);
    assert_eq!(
        scripted.data.last().map(|send| send.local.len),
        Some(10),
        "no more than the new window takes"
    );
    assert_eq!(scripted.close_reason(), None);
}

#[test]
fn a_window_is_filled_to_its_last_byte_w4() {
    let mut scripted = Scripted::connected(Role::Client);
    assert_eq!(scripted.write(PEER_MEMORY.len - 1), PEER_MEMORY.len - 1);
    assert_eq!(scripted.write(10), 10);
    assert_eq!(scripted.data.last().map(|send| send.local.len), Some(1), "the tail, however short");
    scripted.says(register(PEER_MEMORY));
    assert_eq!(scripted.data.last().map(|send| send.local.len), Some(9));
}

#[test]
fn one_register_follows_a_full_window_and_none_a_window_one_byte_short_w5() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.writes(WINDOW - 1);
    assert_eq!(scripted.read(), WINDOW - 1);
    assert_eq!(scripted.messages.len(), 1, "the first one only");
    scripted.writes(1);
    assert_eq!(scripted.messages.len(), 1, "full, but not read");
    assert_eq!(scripted.read(), 1);
    assert_eq!(scripted.messages.len(), 2);
}

#[test]
fn a_partly_written_window_is_not_replaced_w5() {
    let mut scripted = Scripted::connected(Role::Server);
    assert_eq!(scripted.write(9), 9);
    scripted.says(register(PEER_MEMORY));
    scripted.assert_refused(ProtocolError::WindowReplaced { written: 9, len: PEER_MEMORY.len });
}

#[test]
fn registering_twice_before_anything_was_written_loses_nothing_w5() {
    let mut scripted = Scripted::connected(Role::Server);
    let elsewhere = XferMemory { addr: 0xc000_0000, key: 0xfeed, ..PEER_MEMORY };
    scripted.says(register(elsewhere));
    assert_eq!(scripted.write(9), 9);
    let op = SendOp::WriteWithImm { addr: elsewhere.addr, rkey: elsewhere.key, imm: 9 };
    assert_eq!(scripted.data.last().map(|send| send.op), Some(op));
    scripted.assert_usable();
}

#[test]
fn with_two_buffers_the_second_is_offered_before_the_first_is_read_w6() {
    let mut scripted = Scripted::with_buffers(Role::Client, Config::new(Role::Client), 2).connect();
    scripted.writes(WINDOW);
    assert_eq!(scripted.messages.len(), 2);
    scripted.writes(WINDOW);
    assert_eq!(scripted.messages.len(), 2, "both hold unread bytes");
    assert_eq!(scripted.read(), 2 * WINDOW);
    assert_eq!(scripted.messages.len(), 3);
}

#[test]
fn a_slow_register_holds_writes_back_and_nothing_else_w4() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(PEER_MEMORY.len);
    let before = scripted.data.len();
    scripted.write(100);
    assert_eq!(scripted.data.len(), before, "waits");
    assert!(scripted.core.poll_work(|| panic!("the wait began before")).is_none(), "and does not spin");
    scripted.writes(40);
    assert_eq!(scripted.read(), 40, "replies still arrive");
    assert_eq!(scripted.core.counters().window_stalls, 1);
}

#[test]
fn a_stall_lasts_from_the_wait_to_the_register_and_only_then_is_the_clock_read_w4() {
    let mut scripted = Scripted::connected(Role::Client);
    scripted.write(PEER_MEMORY.len - 1);
    scripted.core.commit(1);
    let work = scripted.core.poll_work(|| panic!("the window takes all of it"));
    assert!(work.is_some());
    scripted.now = scripted.now + Duration::from_secs(5);
    scripted.write(100);
    let nothing = scripted.core.poll_work(|| panic!("the wait began before"));
    assert_eq!(nothing, None);
    scripted.now = scripted.now + Duration::from_secs(2);
    scripted.says(register(PEER_MEMORY));
    assert_eq!(scripted.core.counters().window_stall_time, Duration::from_secs(2));
}

#[test]
fn a_peer_that_offers_no_next_window_is_given_up_though_its_keepalives_go_on_w4() {
    let limit = Duration::from_secs(30);
    let stalled = |limit| {
        let config = Config { stall_timeout: limit, ..Config::new(Role::Client) };
        let mut scripted = Scripted::new(Role::Client, config).connect();
        scripted.write(PEER_MEMORY.len);
        scripted.elapse(Duration::from_secs(100));
        assert_eq!(scripted.close_reason(), None, "nothing waits for the window");
        scripted.write(100);
        for _ in 0..29 {
            scripted.elapse(Duration::from_secs(1));
            scripted.says(ControlMessage::Keepalive);
        }
        assert_eq!(scripted.close_reason(), None);
        scripted
    };
    let mut scripted = stalled(Some(limit));
    scripted.elapse(Duration::from_secs(1));
    assert_eq!(scripted.close_reason(), Some(CloseReason::StallTimeout { after: limit }));

    let mut scripted = stalled(Some(limit));
    scripted.says(register(PEER_MEMORY));
    scripted.elapse(Duration::from_secs(86_400));
    assert_eq!(scripted.close_reason(), None, "a window in time");

    let mut scripted = stalled(None);
    scripted.elapse(Duration::from_secs(86_400));
    assert_eq!(scripted.close_reason(), None, "no limit");
}

#[test]
fn an_immediate_beyond_the_window_ends_the_connection_i2() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::connected(role);
        scripted.announces(1, WINDOW + 1);
        scripted.assert_refused(ProtocolError::ImmediateBeyondWindow { announced: WINDOW + 1, room: WINDOW });

        let mut scripted = Scripted::connected(role);
        scripted.writes(1);
        scripted.announces(1, u32::MAX);
        let (announced, room) = (u32::MAX, WINDOW - 1);
        scripted.assert_refused(ProtocolError::ImmediateBeyondWindow { announced, room });
        assert_eq!(scripted.read(), 1, "what was announced properly stays");
    }
}

#[test]
fn an_immediate_below_what_was_written_ends_the_connection_i3() {
    let mut scripted = Scripted::connected(Role::Server);
    scripted.announces(10, 9);
    scripted.assert_refused(ProtocolError::ImmediateTooSmall { announced: 9, written: 10 });
}

#[test]
fn plain_writes_are_announced_by_the_immediate_after_them_i4() {
    let mut scripted = Scripted::connected(Role::Server);
    // WRITE 128 and WRITE 256 leave no trace; then WRITE_WITH_IMM 128, immediate 512.
    scripted.announces(128, 512);
    assert_eq!(scripted.read(), 512);
    scripted.assert_usable();
}

#[test]
fn an_immediate_of_zero_is_nothing_i5() {
    for role in [Role::Client, Role::Server] {
        let mut scripted = Scripted::connected(role);
        let receives = scripted.receives_posted();
        scripted.announces(0, 0);
        assert_eq!(scripted.core.readable(), None);
        assert_eq!(scripted.receives_posted(), receives, "posted again");
        scripted.assert_usable();
    }
}

#[test]
fn a_reply_in_many_pieces_is_one_stream_i1() {
    for pieces in [1, 3, 1000] {
        let mut scripted = Scripted::connected(Role::Client);
        for _ in 0..pieces {
            scripted.writes(1);
        }
        assert_eq!(scripted.read(), pieces);
    }
}

#[test]
fn no_work_request_is_larger_than_the_device_takes_l2() {
    let mut client = Setup::new(Role::Client);
    (client.max_message, client.send_buffer) = (100, 4096);
    let mut pair = Pair::connected(&client, &Setup::new(Role::Server));
    pair.write(End::Client, 950);
    assert!(pair[End::Client].sends.iter().all(|send| send.request.local.len <= 100));
    assert_eq!(pair[End::Client].sends.len(), 10);
    pair.transfer(End::Client, 5000);
}

#[test]
fn replies_beyond_every_buffer_do_not_block_a_client_that_writes_all_before_it_reads_l1() {
    // The server reads on while its replies wait; here the replies exceed window and send buffer many times.
    let mut pair = Pair::usual();
    let (commands, replies) = (20_000, 200_000);
    let (mut wrote, mut replied) = (0, 0);
    while wrote < commands {
        wrote += pair.write(End::Client, commands - wrote);
        pair.settle();
        pair.read(End::Server, u64::MAX);
        replied += pair.write(End::Server, replies - replied);
        pair.settle();
    }
    while pair[End::Client].read < replies {
        replied += pair.write(End::Server, replies - replied);
        pair.settle();
        pair.read(End::Client, u64::MAX);
        pair.settle();
    }
    assert_eq!(pair[End::Server].read, commands);
}
