//! Who is woken when, and what the device is armed for.

use super::*;

#[test]
fn one_event_and_one_request_for_the_next_serve_all_who_are_ready() {
    const ALL: usize = 16;
    let mut party = Party::of(ALL as u32);
    let ask = |party: &mut Party| (0..ALL).for_each(|place| party.arm(place));
    ask(&mut party);
    assert_eq!(party.demux.counts(), Counts { events: 0, arms: 1 });
    for round in 1..=10 {
        assert!((0..ALL).all(|place| !party.is_told(place)));
        (0..ALL as u32).for_each(|place| party.device.complete(100 + place));
        assert!(party.dispatcher.was_woken());
        party.porter_runs();
        for place in 0..ALL {
            assert!(party.members[place].1.was_woken() && party.is_told(place));
            assert_eq!(party.poll(place, 64).len(), 1);
        }
        ask(&mut party);
        // The dispatcher's second turn finds nothing more, and asks.
        assert_eq!(party.porter_runs_until_it_sleeps(), 1);
        assert_eq!(party.demux.counts(), Counts { events: round, arms: round + 1 });
    }
}

#[test]
fn while_there_is_more_each_time_no_event_is_asked_for() {
    let mut party = Party::of(2);
    party.asks_and_sleeps(0);
    party.device.complete(100);
    for _ in 0..100 {
        assert!(party.dispatcher.was_woken());
        party.porter_runs();
        assert!(party.is_told(0));
        assert_eq!(party.poll(0, 64).len(), 1);
        party.asks_and_sleeps(0);
        party.device.complete(100);
    }
    assert_eq!(party.demux.counts(), Counts { events: 1, arms: 1 });
}

#[test]
fn who_finds_what_is_another_s_leaves_waking_to_the_porter() {
    let mut party = Party::of(2);
    party.asks_and_sleeps(1);
    party.device.complete(101);
    party.poll(0, 64);
    assert!(!party.members[1].1.was_woken());
    assert!(party.dispatcher.was_woken());
    party.porter_runs();
    assert!(party.members[1].1.was_woken() && party.is_told(1));
}

#[test]
fn each_gets_its_own_in_order_and_no_more_than_asked() {
    let mut party = Party::of(2);
    [100, 101, 100, 101, 101].into_iter().for_each(|queue_pair| party.device.complete(queue_pair));
    assert_eq!(party.poll(1, 0), []);
    assert_eq!(party.poll(1, 2), [1, 3]);
    assert_eq!(party.poll(0, 64), [0, 2]);
    party.device.complete(101);
    assert_eq!(party.poll(1, 64), [4, 5], "what lay in the inbox, and what came since");
}

#[test]
fn what_came_before_an_event_was_asked_for_raises_none() {
    let mut party = Party::of(2);
    party.device.complete(100);
    party.arm(0);
    // Somebody else looks.
    party.poll(1, 64);
    assert!(!party.is_told(0));
    assert_eq!(party.poll(0, 64), [0]);
}

#[test]
fn who_asked_and_has_nothing_is_not_woken_and_keeps_its_request() {
    let mut party = Party::of(2);
    party.asks_and_sleeps(0);
    party.asks_and_sleeps(1);
    party.device.complete(100);
    party.porter_runs_until_it_sleeps();
    assert!(party.members[0].1.was_woken() && party.is_told(0));
    assert!(!party.members[1].1.was_woken() && !party.is_told(1));
    assert!(!party.is_told(0), "notified once for one request");
    party.device.complete(100);
    party.porter_runs_until_it_sleeps();
    assert!(!party.members[0].1.was_woken() && !party.is_told(0), "it has not armed again");
    party.device.complete(101);
    party.porter_runs_until_it_sleeps();
    assert!(party.members[1].1.was_woken() && party.is_told(1));
}

#[test]
fn while_some_are_served_no_event_is_asked_for_on_behalf_of_others() {
    let mut party = Party::of(2);
    party.asks_and_sleeps(0);
    party.asks_and_sleeps(1);
    for _ in 0..100 {
        party.device.complete(100);
        assert!(party.dispatcher.was_woken());
        party.porter_runs();
        assert!(party.is_told(0));
        assert_eq!(party.poll(0, 64).len(), 1);
        party.asks_and_sleeps(0);
    }
    assert_eq!(party.demux.counts(), Counts { events: 1, arms: 1 });
    party.porter_runs_until_it_sleeps();
    assert_eq!(party.demux.counts(), Counts { events: 1, arms: 2 });
    party.porter_runs();
    assert_eq!(party.demux.counts(), Counts { events: 1, arms: 2 }, "a turn without need asks for nothing");
}

#[test]
fn a_member_that_moved_to_another_task_is_woken_there() {
    let mut party = Party::of(1);
    party.asks_and_sleeps(0);
    let before = mem::take(&mut party.members[0].1);
    assert!(!party.is_told(0));
    party.device.complete(100);
    party.porter_runs_until_it_sleeps();
    assert!(party.members[0].1.was_woken() && !before.was_woken());
}

/// As the contract wants it of a queue of one's own: asking again makes good for an event that the device has lost.
#[test]
fn a_lost_event_is_made_good_by_whoever_asks_again() {
    let mut party = Party::of(2);
    party.asks_and_sleeps(0);
    party.asks_and_sleeps(1);
    party.device.complete_silently(101);
    assert!(!party.dispatcher.was_woken());
    party.arm(0);
    assert_eq!(party.porter_runs_until_it_sleeps(), 2);
    assert!(party.members[1].1.was_woken() && party.is_told(1));
    assert_eq!(party.poll(1, 64), [0]);
    party.device.complete(100);
    assert!(party.dispatcher.was_woken(), "an event was armed for");
}
