//! Direct transfers of a server, and a scripted client: area D.

use std::time::Duration;

use valkey_rdma_proto::wire::{ControlMessage, Features};
use valkey_rdma_proto::work::{FailureStatus, RegionId, SendOp, SendRequest, Slice};
use valkey_rdma_proto::{CloseReason, Config, Direction, FEATURE_SELECTOR, FeatureSet, Role, Transfer};

use crate::scripted::{PEER_MEMORY, Scripted, WINDOW};

const PIECE: u32 = 1000;
const MEMORY: RegionId = RegionId(9);
const ADDR: u64 = 0x7000;

/// A server whose client has chosen direct transfers.
fn server() -> Scripted {
    server_with(Config::new(Role::Server))
}

fn server_with(config: Config) -> Scripted {
    let mut scripted = before_the_clients_register(config);
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    scripted
}

fn before_the_clients_register(config: Config) -> Scripted {
    let config = Config { offers: FeatureSet::DIRECT, max_piece: PIECE, ..config };
    let mut scripted = Scripted::new(Role::Server, config);
    scripted.establish();
    let choice = Features { select: FEATURE_SELECTOR, bits: FeatureSet::DIRECT.bits() };
    scripted.says(ControlMessage::SetClientFeature(choice));
    scripted.acknowledge();
    assert!(scripted.core.may_transfer());
    scripted
}

fn transfer(direction: Direction, len: u32) -> Transfer {
    Transfer { direction, local: Slice { region: MEMORY, offset: 50, len }, addr: ADDR, rkey: 0xd1 }
}

fn start(scripted: &mut Scripted, direction: Direction, len: u32) -> u64 {
    let number = scripted.core.transfer(transfer(direction, len)).expect("open");
    scripted.pump();
    number
}

fn is_direct(send: &SendRequest) -> bool {
    matches!(send.op, SendOp::Write { rkey: 0xd1, .. } | SendOp::Read { rkey: 0xd1, .. })
}

#[test]
fn a_transfer_leaves_in_pieces_of_which_the_last_is_signalled_d3() {
    for direction in [Direction::Write, Direction::Read] {
        let mut scripted = server();
        assert_eq!(start(&mut scripted, direction, 2 * PIECE + 1), 1);
        let pieces: Vec<_> =
            scripted.data.iter().map(|send| (send.local.offset, send.local.len, send.signalled)).collect();
        assert_eq!(pieces, [(50, PIECE, false), (50 + PIECE, PIECE, false), (50 + 2 * PIECE, 1, true)]);
        let addresses: Vec<_> = scripted
            .data
            .iter()
            .map(|send| match (direction, send.op) {
                (Direction::Write, SendOp::Write { addr, rkey: 0xd1 }) => addr - ADDR,
                (Direction::Read, SendOp::Read { addr, rkey: 0xd1 }) => addr - ADDR,
                (_, op) => panic!("{op:?}"),
            })
            .collect();
        assert_eq!(addresses, [0, u64::from(PIECE), 2 * u64::from(PIECE)]);
        assert_eq!(scripted.core.transferred(), 0);
        scripted.acknowledge();
        assert_eq!(scripted.core.transferred(), 1);
        assert_eq!(scripted.core.counters().bytes_transferred, u64::from(2 * PIECE + 1));
    }
}

#[test]
fn nothing_is_transferred_too_d3() {
    let mut scripted = server();
    assert_eq!(start(&mut scripted, Direction::Write, 0), 1);
    let [send] = scripted.data[..] else { panic!("{:?}", scripted.data) };
    assert!(send.local.len == 0 && send.signalled);
    scripted.acknowledge();
    assert_eq!(scripted.core.transferred(), 1);
}

#[test]
fn what_is_written_after_a_transfer_leaves_after_it_d3() {
    let mut scripted = server();
    // Before, after, and all of it polled at once.
    scripted.core.commit(10);
    scripted.core.transfer(transfer(Direction::Write, PIECE + 1)).expect("open");
    scripted.core.commit(20);
    scripted.core.transfer(transfer(Direction::Read, 1)).expect("open");
    scripted.core.transfer(transfer(Direction::Write, 1)).expect("open");
    scripted.core.commit(30);
    scripted.pump();
    let lens: Vec<_> = scripted.data.iter().map(|send| (is_direct(send), send.local.len)).collect();
    let expected = [(false, 10), (true, PIECE), (true, 1), (false, 20), (true, 1), (true, 1), (false, 30)];
    assert_eq!(lens, expected);
    let announced: Vec<_> = scripted
        .data
        .iter()
        .filter_map(|send| match send.op {
            SendOp::WriteWithImm { imm, .. } => Some(imm),
            _ => None,
        })
        .collect();
    assert_eq!(announced, [10, 20, 30], "each is announced as soon as it may");
}

#[test]
fn a_transfer_needs_no_window_and_does_not_wait_for_bytes_that_do_d3() {
    let mut scripted = server();
    assert!(scripted.write(5000) == 5000, "more than the client's window");
    let posted = scripted.data.len();
    start(&mut scripted, Direction::Write, 10);
    assert!(is_direct(&scripted.data[posted]));
    // The reply stays behind the bytes before it.
    scripted.write(7);
    assert_eq!(scripted.data.len(), posted + 1);
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    let rest: u32 = scripted.data[posted + 1..].iter().map(|send| send.local.len).sum();
    assert_eq!(rest, 5000 - PEER_MEMORY.len + 7);
}

#[test]
fn transfers_leave_room_for_messages_and_go_on_as_the_queue_empties_l1() {
    let mut scripted = server();
    let pieces = 200;
    start(&mut scripted, Direction::Write, pieces * PIECE);
    assert_eq!(scripted.data.len(), 60, "of 64, four are for messages");
    scripted.write(1);
    let messages = scripted.messages.len();
    scripted.writes(WINDOW);
    scripted.read();
    assert_eq!(scripted.messages.len(), messages + 1, "a Register");
    while scripted.core.transferred() == 0 {
        scripted.acknowledge();
    }
    scripted.acknowledge();
    assert_eq!(scripted.data.len() as u32, pieces + 1);
    assert!(!is_direct(scripted.data.last().unwrap()), "the reply");
}

#[test]
fn an_acknowledgement_of_transfers_that_is_asked_for_before_the_clients_register_waits_for_it_l4() {
    let mut scripted = before_the_clients_register(Config::new(Role::Server));
    start(&mut scripted, Direction::Write, 100 * PIECE);
    scripted.request_acknowledgement();
    scripted.acknowledge();
    assert_eq!((scripted.data.len(), scripted.core.transferred()), (100, 1), "there is no place for a fence");
    scripted.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    assert_eq!(scripted.data.len(), 101);
    let fence = scripted.data.last().unwrap();
    assert_eq!((fence.local.len, fence.signalled), (0, true));
}

#[test]
fn an_orderly_close_completes_transfers_first_d6() {
    let mut scripted = server();
    scripted.core.transfer(transfer(Direction::Write, 100 * PIECE)).expect("open");
    scripted.close();
    assert_eq!(scripted.core.transfer(transfer(Direction::Write, 1)), None, "closing");
    while scripted.core.transferred() == 0 {
        assert_eq!(scripted.close_reason(), None);
        scripted.acknowledge();
    }
    assert_eq!(scripted.data.len(), 100);
    scripted.acknowledge();
    scripted.elapse(Duration::from_millis(100));
    assert_eq!(scripted.close_reason(), Some(CloseReason::Local));
}

#[test]
fn transfers_that_the_end_interrupts_are_never_complete_d6() {
    let ends: [fn(&mut Scripted); 3] = [
        |scripted| scripted.fail(FailureStatus::RemoteAccess),
        |scripted| scripted.disconnect(),
        |scripted| {
            scripted.core.handle_device_failure(scripted.now);
            scripted.pump();
        },
    ];
    for end in ends {
        let mut scripted = server();
        start(&mut scripted, Direction::Write, 1);
        scripted.acknowledge();
        start(&mut scripted, Direction::Read, 70 * PIECE);
        start(&mut scripted, Direction::Write, 1);
        end(&mut scripted);
        assert!(scripted.core.is_closed() && scripted.disconnected);
        let posted = scripted.data.len();
        scripted.pump();
        assert_eq!(scripted.data.len(), posted, "nothing follows");
        assert_eq!(scripted.core.transferred(), 1);
        assert_eq!(scripted.core.transfer(transfer(Direction::Write, 1)), None);
    }
}

#[test]
fn an_address_at_the_end_of_all_memory_is_the_clients_devices_affair_d2() {
    let mut scripted = server();
    let local = Slice { region: MEMORY, offset: 0, len: 3 * PIECE };
    let transfer = Transfer { direction: Direction::Write, local, addr: u64::MAX - 1, rkey: 0xd1 };
    scripted.core.transfer(transfer).expect("open");
    scripted.pump();
    assert_eq!(scripted.data.len(), 3);
}

#[test]
#[should_panic(expected = "only a server starts transfers")]
fn a_transfer_that_was_not_agreed_on_is_a_bug_d1() {
    let mut scripted = Scripted::connected(Role::Server);
    let _ = scripted.core.transfer(transfer(Direction::Write, 1));
}

#[test]
fn a_client_exposes_and_starts_nothing_d1() {
    let config = Config { wants: FeatureSet::DIRECT, ..Config::new(Role::Client) };
    let mut client = Scripted::new(Role::Client, config);
    client.establish();
    client.says(ControlMessage::RegisterXferMemory(PEER_MEMORY));
    assert!(!client.core.may_expose(), "not yet");
    let answer = Features { select: FEATURE_SELECTOR, bits: FeatureSet::DIRECT.bits() };
    client.says(ControlMessage::GetServerFeature(answer));
    assert!(client.core.may_expose() && !client.core.may_transfer());
    assert!(!server().core.may_expose());
}

#[test]
fn a_server_does_not_take_a_client_for_idle_that_waits_for_a_transfer() {
    let limit = Duration::from_secs(1);
    let mut scripted = server_with(Config { idle_timeout: Some(limit), ..Config::new(Role::Server) });
    start(&mut scripted, Direction::Write, 2 * PIECE);
    scripted.elapse(limit / 10 * 9);
    assert!(!scripted.core.is_closed());
    scripted.acknowledge();
    scripted.elapse(limit / 10 * 9);
    assert!(!scripted.core.is_closed());
    scripted.elapse(limit);
    assert_eq!(scripted.close_reason(), Some(CloseReason::IdleTimeout { after: limit }));
}

#[test]
fn a_close_that_gives_up_transfers_says_so_d6() {
    let mut scripted = server();
    start(&mut scripted, Direction::Write, PIECE);
    scripted.close();
    scripted.elapse(Duration::from_secs(10));
    assert_eq!(scripted.close_reason(), Some(CloseReason::LocalUnfinished { bytes: PIECE.into() }));
}
