//! Members that leave, and queues that end.

use super::*;

#[test]
fn a_member_that_left_leaves_nothing_to_the_next_with_its_number() {
    let mut party = Party::of(2);
    party.device.complete(100);
    let (leaving, _) = party.members[0].clone();
    assert_eq!(party.demux.depth(leaving), DEPTH);
    assert!(party.demux.join(1).is_none(), "all room is taken");
    assert!(!party.with(|demux, wake| demux.leave(leaving, wake)), "one is left");
    assert!(party.device.0.borrow().lying.is_empty(), "what it left behind would take another's room");
    assert_eq!(party.demux.of_queue_pairs.len(), 1);
    let next = party.demux.join(DEPTH).expect("its room");
    party.with(|demux, wake| demux.bind_qp(next, 100, wake));
    party.members[0].0 = next;
    assert_eq!(party.demux.members.len(), 2, "its place too");
    assert_eq!(party.poll(0, 64), []);
    party.device.complete(100);
    assert_eq!(party.poll(0, 64), [1]);
}

#[test]
fn the_last_to_leave_wakes_the_porter() {
    let mut party = Party::of(2);
    let places = party.members.iter().map(|(place, _)| *place).collect::<Vec<_>>();
    let last = places.into_iter().map(|place| party.with(|demux, wake| demux.leave(place, wake)));
    assert_eq!(last.collect::<Vec<_>>(), [false, true]);
    assert!(party.dispatcher.was_woken());
}

#[test]
fn a_queue_pair_s_number_may_be_another_s_before_its_member_has_left() {
    let mut party = Party::of(2);
    party.device.complete(100);
    let (first, second) = (party.members[0].0, party.members[1].0);
    party.with(|demux, wake| demux.bind_qp(second, 100, wake));
    party.device.complete(100);
    assert_eq!(party.poll(1, 64), [1], "not what came before the number was its own");
    assert!(party.with(|demux, wake| !demux.leave(first, wake)));
    party.device.complete(100);
    assert_eq!(party.poll(1, 64), [2]);
}

#[test]
fn a_queue_that_fails_tells_every_member_and_takes_no_more() {
    let mut party = Party::of(2);
    assert!(!party.is_told(0) && !party.is_told(1));
    party.device.complete(101);
    party.poll(0, 64);
    party.device.fails_from_now_on(Call::Take);
    let (first, mut out) = (party.members[0].0, Vec::new());
    let error = party.with(|demux, wake| demux.poll(first, &mut out, 64, wake)).expect_err("gone");
    assert!(matches!(error, TransportError::DeviceRemoved), "the one who finds out has the cause: {error:?}");
    party.all_have_ended(SharedCqError::Failed);
    let second = party.members[1].0;
    party.with(|demux, wake| demux.poll(second, &mut out, 64, wake)).expect_err("gone");
    assert_eq!(out.len(), 1, "what had come before is its own all the same");
    party.device.0.borrow_mut().fails = None;
    party.with(|demux, wake| demux.poll(second, &mut out, 64, wake)).expect_err("gone for good");
    party.with(|demux, wake| demux.arm(second, wake)).expect_err("gone for good");
    party.porter_runs();
    assert!(!party.dispatcher.was_woken());
    party.with(|demux, wake| demux.end(SharedCqError::Runtime, wake));
    assert!(matches!(
        party.event(1),
        Some(Err(TransportError::SharedQueue { cause: SharedCqError::Failed }))
    ));
    assert!(party.with(|demux, wake| !demux.leave(first, wake)));
    assert!(party.demux.join(DEPTH).is_none());
}

#[test]
fn a_call_of_the_porter_that_fails_tells_every_member() {
    for call in [Call::Take, Call::Arm, Call::PollEvent] {
        let mut party = Party::of(2);
        party.arm(0);
        assert!(!party.is_told(0) && !party.is_told(1));
        party.device.complete(100);
        assert!(party.dispatcher.was_woken());
        party.porter_runs();
        assert!(party.members[0].1.was_woken() && party.is_told(0));
        party.asks_and_sleeps(0);
        assert!(party.dispatcher.was_woken(), "it will ask on behalf of that one");
        party.device.fails_from_now_on(call);
        party.porter_runs();
        assert!(!party.dispatcher.was_woken(), "{call:?}");
        party.all_have_ended(SharedCqError::Failed);
    }
}

#[test]
fn a_request_that_failed_is_not_taken_for_one_that_was_made() {
    let mut party = Party::of(2);
    party.device.fails_from_now_on(Call::Arm);
    let member = party.members[0].0;
    party.with(|demux, wake| demux.arm(member, wake)).expect_err("gone");
    party.device.0.borrow_mut().fails = None;
    party.asks_and_sleeps(1);
    party.device.complete(101);
    assert!(party.dispatcher.was_woken());
    party.porter_runs();
    assert!(party.is_told(1));
}

#[test]
fn members_of_a_queue_that_is_ended_keep_what_had_come_and_none_is_added() {
    let mut party = Party::of(2);
    assert!(!party.is_told(0) && !party.is_told(1));
    party.device.complete(100);
    party.with(|demux, wake| demux.end(SharedCqError::Runtime, wake));
    party.all_have_ended(SharedCqError::Runtime);
    let (member, mut out) = (party.members[0].0, Vec::new());
    party.with(|demux, wake| demux.poll(member, &mut out, 64, wake)).expect_err("nobody waits");
    assert_eq!(out.len(), 1);
    party.with(|demux, wake| demux.arm(member, wake)).expect_err("nobody waits");
    party.with(|demux, wake| demux.leave(member, wake));
    assert!(party.demux.join(DEPTH).is_none());
}
