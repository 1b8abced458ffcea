//! Replays what the fuzzer has found, and checks that the stories still reach every end and every kind of work there is.

use std::collections::BTreeSet;

use super::decode;
use super::stories::stories;
use super::victim::Input::{Elapse, Register, Sent, Write};
use super::victim::Story;

/// Everything that the stories must reach: events, ends and work requests.
const REACHED: &[&str] = &[
    "Closed Device",
    "Closed Failed RemoteOperation",
    "Closed HandshakeTimeout",
    "Closed IdleTimeout",
    "Closed KeepaliveTimeout",
    "Closed Local",
    "Closed LocalUnfinished",
    "Closed Peer",
    "Closed Protocol EmptyWindow",
    "Closed Protocol ImmediateBeyondWindow",
    "Closed Protocol ImmediateTooSmall",
    "Closed Protocol MessageLength",
    "Closed Protocol Opcode",
    "Closed Protocol WindowReplaced",
    "Closed Protocol WindowTooLarge",
    "Connected",
    "Data Write",
    "Data WriteWithImm",
    "Disconnect",
    "Message Send",
    "Receive",
];

#[test]
fn stories_of_hostile_peers_end_in_data_nothing_or_one_typed_error_and_reach_every_state() {
    let mut reached = BTreeSet::new();
    for story in stories() {
        reached.extend(story.play());
    }
    assert_eq!(reached, REACHED.iter().map(|&name| name.to_owned()).collect());
}

/// The fuzzer had not found this end: no window arrives although data waits for one.
#[test]
fn a_peer_that_offers_no_next_window_is_given_up() {
    let register = Register { high: false, len: 5, key: 7 };
    let inputs = vec![register, Write(40), Sent(0), Sent(1), Elapse(31_000)];
    let reached = Story { server: false, early: false, inputs }.play();
    assert!(reached.contains("Closed StallTimeout"), "{reached:?}");
}

#[test]
fn bytes_of_any_length_and_any_opcode_are_decoded_or_refused_m1_m2() {
    for len in [0, 1, 31, 33, 64] {
        decode::check(&vec![0xff; len]);
    }
    for opcode in [0, 1, 2, 3, 4, 5, 0x00ff, 0x0100, 0xffff_u16] {
        let mut bytes = [0xa5; 32];
        bytes[..2].copy_from_slice(&opcode.to_be_bytes());
        decode::check(&bytes);
    }
}
