use super::*;
use crate::command::words::encode;

/// Sends commands and receives their replies, one after the other. Returns whether it is plain then.
fn plain_after(dialogue: &[(&str, &[&str])]) -> bool {
    after(dialogue).is_plain()
}

fn after(dialogue: &[(&str, &[&str])]) -> Tracker {
    let mut tracker = Tracker::default();
    for (line, replies) in dialogue {
        let command = encode(line.split(' '));
        tracker.sent(Class::of(&command), &command);
        for reply in *replies {
            assert_eq!(tracker.received(reply.as_bytes(), true), Fate::PassOn);
        }
        let mark = tracker.mark().map(Mark::command);
        if let Some(mark) = mark.as_deref().and_then(|command| words(command).nth(2)) {
            let answer = [b"-ERR Syntax error in HELLO option '", mark, b"'\r\n"].concat();
            assert_eq!(tracker.received(&answer, true), Fate::Drop);
        }
    }
    tracker
}

const OK: &[&str] = &["+OK\r\n"];
const QUEUED: &[&str] = &["+QUEUED\r\n"];

#[test]
fn transactions_end_with_exec_and_discard() {
    assert!(!plain_after(&[("MULTI", OK), ("SET k v", QUEUED)]));
    assert!(plain_after(&[("MULTI", OK), ("SET k v", QUEUED), ("EXEC", &["*1\r\n+OK\r\n"])]));
    assert!(plain_after(&[("WATCH k", OK), ("MULTI", OK), ("EXEC", &["*-1\r\n"])]));
    assert!(plain_after(&[("MULTI", OK), ("NO", &["-ERR\r\n"]), ("EXEC", &["-EXECABORT\r\n"])]));
    assert!(plain_after(&[("WATCH k", OK), ("UNWATCH", OK)]));
    assert!(!plain_after(&[("WATCH k", OK), ("MULTI", OK), ("UNWATCH", QUEUED)]));
    assert!(!plain_after(&[("MULTI", &[])]), "a reply is missing");
    assert!(!plain_after(&[("MULTI", OK), ("SELECT 3", QUEUED), ("EXEC", &["*1\r\n+OK\r\n"])]));
}

#[test]
fn a_transaction_that_was_not_ended_is_not_forgotten() {
    let refused = &["-NOPERM\r\n"][..];
    assert!(!plain_after(&[("MULTI", OK), ("DISCARD", refused)]));
    assert!(!plain_after(&[("MULTI", OK), ("EXEC x", &["-ERR wrong number\r\n"])]));
    assert!(!plain_after(&[("WATCH k", OK), ("EXEC", &["-ERR EXEC without MULTI\r\n"])]));
    assert!(plain_after(&[("MULTI", OK), ("DISCARD", OK)]));
    assert!(plain_after(&[("MULTI", OK), ("EXEC", &["_\r\n"])]));
}

#[test]
fn what_follows_a_refused_multi_is_not_known() {
    let mut tracker = Tracker::default();
    let send = |tracker: &mut Tracker, line: &str| {
        let command = encode(line.split(' '));
        tracker.sent(Class::of(&command), &command);
    };
    send(&mut tracker, "MULTI");
    send(&mut tracker, "MULTI");
    tracker.received(b"-NOPERM\r\n", true);
    for line in ["SELECT 5", "SUBSCRIBE zz", "EXEC"] {
        send(&mut tracker, line);
    }
    for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*0\r\n"] {
        tracker.received(reply.as_bytes(), true);
    }
    assert!(!tracker.is_plain());
}

#[test]
fn a_confirmation_without_its_end_is_counted() {
    for kind in ['*', '>'] {
        let mut tracker = Tracker::default();
        let command = encode(["SUBSCRIBE", "long"]);
        tracker.sent(Class::of(&command), &command);
        tracker.received(format!("{kind}3\r\n$9\r\nsubscribe\r\n$20000\r\nxx").as_bytes(), false);
        assert!(tracker.is_subscribed() && !tracker.is_plain() && tracker.unanswered() == 0);
    }
}

#[test]
fn replies_that_look_like_messages_are_replies() {
    let like = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    assert!(plain_after(&[
        ("UNSUBSCRIBE a", &["*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"]),
        ("LRANGE l", &[like])
    ]));
}

#[test]
fn subscriptions_end_with_the_last_one() {
    for kind in ['*', '>'] {
        let confirm = |name: &str, count: u32| {
            format!("{kind}3\r\n${}\r\n{name}\r\n$1\r\na\r\n:{count}\r\n", name.len())
        };
        let subscribed = [confirm("subscribe", 1), confirm("subscribe", 2)];
        let subscribed = subscribed.each_ref().map(String::as_str);
        let pattern = confirm("psubscribe", 3);
        let message = format!("{kind}3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
        let left = [confirm("unsubscribe", 2), confirm("unsubscribe", 1)];
        let left = left.each_ref().map(String::as_str);
        let last = confirm("punsubscribe", 0);
        let begin: [(&str, &[&str]); 3] =
            [("SUBSCRIBE a b", &subscribed), ("PSUBSCRIBE a", &[&pattern, &message]), ("UNSUBSCRIBE", &left)];
        assert!(!plain_after(&begin), "a pattern is left");
        let last = [last.as_str()];
        let all = [&begin[..], &[("PUNSUBSCRIBE a", &last[..])]].concat();
        assert!(plain_after(&all));
        assert!(plain_after(&[("SUBSCRIBE a", &["-NOPERM\r\n"])]));
    }
}

#[test]
fn lasting_state_ends_with_reset() {
    assert!(!plain_after(&[("MONITOR", OK), ("GET k", &["$-1\r\n"])]));
    assert!(plain_after(&[("CLIENT REPLY OFF", &[]), ("RESET", &["+RESET\r\n"])]));
    assert!(plain_after(&[("CLIENT TRACKING ON", OK), ("CLIENT TRACKING OFF", OK)]));
    assert!(!plain_after(&[("CLIENT TRACKING ON", OK), ("GET k", &["$-1\r\n"])]));
    assert!(plain_after(&[("MULTI", &["-NOPERM\r\n"]), ("GET k", &["$-1\r\n"])]));
    assert!(plain_after(&[("RESET x", &["-ERR wrong number\r\n"]), ("GET k", &["$-1\r\n"])]));
}

/// After CLIENT REPLY SKIP, RESET has no reply. An error may be that to an earlier command then.
#[test]
fn reset_is_over_at_its_mark_where_replies_are_not_counted() {
    let reset = &["+RESET\r\n"][..];
    let refused = &["-ERR unknown command 'RESET'\r\n"][..];
    for (replies, was_reset) in [(reset, true), (&[], true), (refused, false)] {
        let tracker = after(&[("CLIENT REPLY SKIP", &[]), ("RESET", replies)]);
        assert_eq!((tracker.was_reset(), tracker.may_have_reset()), (was_reset, !was_reset), "{replies:?}");
        assert_eq!(tracker.is_plain(), was_reset, "{replies:?}");
    }
}

#[test]
fn a_reset_that_is_refused_changes_nothing_where_replies_are_counted() {
    let refused = &["-ERR unknown command 'RESET'\r\n"][..];
    for begin in [("WATCH k", OK), ("MULTI", OK)] {
        let tracker = after(&[begin, ("RESET", refused)]);
        assert!(!tracker.is_plain() && !tracker.is_resetting() && !tracker.was_reset(), "{begin:?}");
        assert!(after(&[begin, ("RESET x", refused), ("RESET", &["+RESET\r\n"])]).is_plain(), "{begin:?}");
    }
}

#[test]
fn what_reset_does_not_end_is_remembered_after_it() {
    for (line, outlives) in [
        ("CLIENT CAPA redirect", true),
        ("client import-source on", true),
        ("SCRIPT DEBUG YES", true),
        ("CLIENT REPLY OFF", false),
        ("READONLY", false),
    ] {
        let befores: [&[(&str, &[&str])]; 3] = [&[], &[("MULTI", OK)], &[("MONITOR", OK)]];
        let then: [(&str, &[&str]); 2] = [(line, &[]), ("RESET", &["+RESET\r\n"])];
        for before in befores {
            let tracker = after(&[before, &then].concat());
            assert_eq!((tracker.was_reset(), tracker.outlives_reset()), (true, outlives), "{line}");
        }
    }
}

#[test]
fn the_end_after_quit_is_expected() {
    for (before, replies) in [("GET k", &["$-1\r\n"][..]), ("MULTI", OK), ("MONITOR", OK)] {
        assert!(!after(&[(before, replies)]).has_quit());
        assert!(after(&[(before, replies), ("QUIT", OK)]).has_quit(), "{before}");
    }
    assert!(!after(&[("QUIT", &[])]).has_quit(), "it may not have arrived");
}

#[test]
fn changes_are_reported_when_the_server_confirms_them() {
    let mut tracker = Tracker::default();
    for reply in [&b"-ERR DB index is out of range\r\n"[..], b"+OK\r\n"] {
        let command = encode(["SELECT", "3"]);
        tracker.sent(Class::of(&command), &command);
        tracker.received(reply, true);
    }
    assert_eq!(tracker.take_events(), [Event::Database(3)]);
    tracker.sent_ours();
    assert_eq!((tracker.unanswered(), tracker.received(b"+OK\r\n", true)), (0, Fate::Drop));
    for (first, fate) in
        [(&b":0\r\n"[..], Fate::PassOn), (b"-NOPERM\r\n", Fate::Replace("-NOPERM\r\n".into()))]
    {
        tracker.sent_before_wait();
        tracker.sent(Class::Alone, b"");
        assert_eq!((tracker.received(first, true), tracker.received(b":1\r\n", true)), (Fate::Drop, fate));
    }
}

/// A client may send a million commands before it reads a reply, and all clients wait while its task counts.
#[test]
fn a_million_commands_without_a_reply_are_counted_at_once_g3() {
    let started = std::time::Instant::now();
    let (mut tracker, watch, get) = (Tracker::default(), encode(["WATCH", "k"]), encode(["GET", "k"]));
    tracker.sent(Class::of(&watch), &watch);
    for sent in 1..1 << 20 {
        assert_eq!((tracker.unanswered(), tracker.is_blocked()), (sent, false));
        tracker.sent(Class::of(&get), &get);
        assert!(started.elapsed().as_secs() < 60, "after {sent} commands");
    }
}

#[test]
fn commands_of_the_gateway_and_those_that_block_are_told_apart() {
    let mut tracker = Tracker::default();
    tracker.sent_ours();
    tracker.sent_before_wait();
    assert_eq!((tracker.unanswered(), tracker.is_blocked()), (0, false));
    for line in ["WAIT 1 0", "GET k"] {
        let command = encode(line.split(' '));
        tracker.sent(Class::of(&command), &command);
    }
    assert_eq!((tracker.unanswered(), tracker.is_blocked(), tracker.blocks_now()), (2, true, false));
    for (reply, left) in [("+OK\r\n", 2), (":0\r\n", 2), (":1\r\n", 1), ("$-1\r\n", 0)] {
        tracker.received(reply.as_bytes(), true);
        assert_eq!((tracker.unanswered(), tracker.is_blocked()), (left, left == 2), "{reply}");
    }
}
