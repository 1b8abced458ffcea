//! Registers before the window is full, where both sides opted in: the exception to clause W-5.

use valkey_rdma_proto::wire::{ControlMessage, XferMemory};
use valkey_rdma_proto::{CloseReason, Config, ProtocolError, Role};

use crate::pair::{End, Fault, Pair, Setup};
use crate::scripted::{PEER_MEMORY, Scripted, WINDOW};

fn trusting() -> (Setup, Setup) {
    let (mut client, mut server) = (Setup::new(Role::Client), Setup::new(Role::Server));
    client.config.danger_early_register = true;
    server.config.danger_early_register = true;
    (client, server)
}

#[test]
fn a_quiet_client_gets_a_whole_window_again_w5() {
    for buffers in 1..=3 {
        let (mut client, server) = trusting();
        client.buffers = buffers;
        let mut pair = Pair::connected(&client, &server);
        for round in 0..20 {
            pair.transfer(End::Client, 30);
            pair.transfer(End::Server, 600 + round);
            assert!(pair[End::Client].core.renew_window());
            pair.pump(End::Client);
            // The next command follows the Register on the same queue pair, so its reply finds the new window.
        }
        assert_eq!(pair[End::Server].core.counters().window_stalls, 0);
    }
}

#[test]
fn it_is_not_offered_when_it_is_useless_or_not_allowed_w5() {
    let config = Config { danger_early_register: true, ..Config::new(Role::Client) };
    let mut scripted = Scripted::new(Role::Client, config);
    assert!(!scripted.core.renew_window(), "not established");
    let mut scripted = scripted.connect();
    assert!(!scripted.core.renew_window(), "nothing of it is used");
    scripted.writes(10);
    assert!(!scripted.core.renew_window(), "not read");
    scripted.read();
    assert!(scripted.core.renew_window());
    assert!(!scripted.core.renew_window(), "nothing of it is used again");
    scripted.writes(WINDOW);
    scripted.read();
    assert!(!scripted.core.renew_window(), "offered already");
    scripted.writes(1);
    scripted.read();
    scripted.close();
    assert!(!scripted.core.renew_window(), "closing");

    for (role, danger_early_register) in [(Role::Client, false), (Role::Server, true)] {
        let config = Config { danger_early_register, ..Config::new(role) };
        let mut scripted = Scripted::new(role, config).connect();
        scripted.writes(10);
        scripted.read();
        assert!(!scripted.core.renew_window(), "a client that opted in, and no other");
    }
}

#[test]
fn a_server_that_did_not_opt_in_refuses_it_w5() {
    let (client, mut server) = trusting();
    server.config.danger_early_register = false;
    let mut pair = Pair::connected(&client, &server);
    pair.transfer(End::Server, 600);
    assert!(pair[End::Client].core.renew_window());
    pair.pump(End::Client);
    pair.settle();
    let refused = ProtocolError::WindowReplaced { written: 600, len: 1024 };
    assert_eq!(pair.close_reason(End::Server), Some(CloseReason::Protocol(refused)));
}

#[test]
fn a_server_that_opted_in_starts_at_the_front_w5() {
    let config = Config { danger_early_register: true, ..Config::new(Role::Server) };
    let mut scripted = Scripted::new(Role::Server, config).connect();
    scripted.write(9);
    scripted.says(ControlMessage::RegisterXferMemory(XferMemory { addr: 0xc000_0000, ..PEER_MEMORY }));
    scripted.write(5);
    let valkey_rdma_proto::work::SendOp::WriteWithImm { addr, .. } = scripted.data[1].op else { panic!() };
    assert_eq!(addr, 0xc000_0000);
}

#[test]
fn a_client_that_is_not_quiet_loses_bytes_w5() {
    let (mut client, server) = trusting();
    client.buffers = 1;
    let mut pair = Pair::connected(&client, &server);
    pair.transfer(End::Server, 100);
    // A reply is under way, against the promise.
    pair.write(End::Server, 50);
    assert!(pair[End::Client].core.renew_window());
    pair.pump(End::Client);
    while pair.deliver(End::Client) | pair.poll(End::Server) {}
    pair.write(End::Server, 50);
    while pair.deliver(End::Server) {}
    while pair.poll(End::Client) {}
    pair.read(End::Client, u64::MAX);
    assert!(matches!(pair.faults()[..], [Fault::WrongByte { .. }, ..]), "{:?}", pair.faults());
}
