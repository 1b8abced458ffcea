use super::*;
use crate::command::words::encode;

fn bulk(text: &str) -> Value {
    Value::Bulk(Bytes::copy_from_slice(text.as_bytes()))
}

fn array(items: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(items.into_iter().collect())
}

fn numbers(items: impl IntoIterator<Item = i64>) -> Value {
    array(items.into_iter().map(Value::Int))
}

/// What the library returns for these replies of nodes.
fn by_node(replies: impl IntoIterator<Item = Value>) -> Value {
    Value::Map((1..).zip(replies).map(|(node, reply)| (bulk(&format!("n{node}")), reply)).collect())
}

fn event(name: &str, fields: &[i64]) -> Value {
    array([bulk(name)].into_iter().chain(fields.iter().copied().map(Value::Int)))
}

#[test]
fn commands_are_joined_by_their_first_words() {
    for (line, joined) in [
        ("latency latest", Some(Joined::Events)),
        ("LATENCY RESET", Some(Joined::Sum)),
        ("slowlog len", Some(Joined::Sum)),
        ("COMMANDLOG LEN slow", Some(Joined::Sum)),
        ("SLOWLOG RESET", None),
        ("LATENCY", None),
        ("MEMORY USAGE k", None),
        ("MEMORY doctor", Some(Joined::Texts)),
        ("randomkey", Some(Joined::Any)),
        ("SLOWLOG GET", Some(Joined::Newest(10))),
        ("SLOWLOG GET 3", Some(Joined::Newest(3))),
        ("SLOWLOG GET -1", Some(Joined::Newest(usize::MAX))),
        ("COMMANDLOG GET 2 slow", Some(Joined::Newest(2))),
        ("PUBSUB NUMSUB a", Some(Joined::Counts)),
        ("FUNCTION LIST", None),
        ("GET k", None),
    ] {
        assert_eq!(Joined::of(&encode(line.split(' '))), joined, "{line}");
    }
}

/// Two rows of one event would be two values of one metric.
#[test]
fn an_event_has_one_row_with_its_newest_spike_and_the_highest_of_all() {
    let replies = by_node([
        array([event("command", &[100, 7, 50, 80, 4]), event("fork", &[90, 1, 1, 1, 1])]),
        array([event("command", &[200, 5, 9, 20, 3])]),
        array([]),
    ]);
    let joined = array([event("command", &[200, 5, 50, 100, 7]), event("fork", &[90, 1, 1, 1, 1])]);
    assert_eq!(Joined::Events.join(replies), joined);
    let old = by_node([array([event("x", &[2, 5, 6])]), array([event("x", &[1, 9, 9])])]);
    assert_eq!(Joined::Events.join(old), array([event("x", &[2, 5, 9])]), "without sum and count");
    assert_eq!(Joined::Events.join(by_node([array([]), array([])])), array([]));
}

#[test]
fn samples_follow_each_other_in_time() {
    let replies = by_node([array([numbers([5, 1]), numbers([9, 2])]), array([numbers([7, 3])])]);
    let joined = array([numbers([5, 1]), numbers([7, 3]), numbers([9, 2])]);
    assert_eq!(Joined::Samples.join(replies), joined);
}

/// A node leaves out limits below which it has no more calls.
#[test]
fn distributions_are_added_at_every_limit() {
    let map = |steps: &[(i64, i64)]| {
        Value::Map(steps.iter().map(|&(limit, count)| (Value::Int(limit), Value::Int(count))).collect())
    };
    let of = |calls, steps: &[(i64, i64)]| {
        let fields = vec![(bulk("calls"), Value::Int(calls)), (bulk("histogram_usec"), map(steps))];
        Value::Map(vec![(bulk("get"), Value::Map(fields))])
    };
    let replies = by_node([of(6, &[(1, 2), (4, 6)]), of(5, &[(2, 5)]), Value::Map(Vec::new())]);
    assert_eq!(Joined::Histograms.join(replies), of(11, &[(1, 2), (2, 7), (4, 11)]));

    // RESP2.
    let flat = |calls, steps: &[i64]| {
        let fields = [bulk("calls"), Value::Int(calls), bulk("histogram_usec"), numbers(steps.to_vec())];
        array([bulk("get"), array(fields)])
    };
    let replies = by_node([flat(6, &[1, 2, 4, 6]), flat(5, &[2, 5])]);
    assert_eq!(Joined::Histograms.join(replies), of(11, &[(1, 2), (2, 7), (4, 11)]));
}

#[test]
fn texts_that_differ_follow_their_nodes() {
    let text = |text: &'static str| Value::Verbatim { format: *b"txt", text: text.into() };
    let fine = || text("fine\n");
    assert_eq!(Joined::Texts.join(by_node([fine(), fine()])), fine());
    let replies = by_node([fine(), text("ill")]);
    assert_eq!(Joined::Texts.join(replies), text("n1:\nfine\n\nn2:\nill\n\n"));
    let replies = by_node([bulk("a"), bulk("b")]);
    assert_eq!(Joined::Texts.join(replies), bulk("n1:\na\n\nn2:\nb\n\n"));
}

#[test]
fn the_node_where_a_function_runs_answers() {
    let stats = |script: Value| array([bulk("running_script"), script, bulk("engines"), array([])]);
    let running = stats(array([bulk("name"), bulk("f")]));
    let replies = by_node([stats(Value::Nil), running.clone()]);
    assert_eq!(Joined::Running.join(replies), running);
    assert_eq!(Joined::Running.join(by_node([stats(Value::Nil)])), stats(Value::Nil));
}

#[test]
fn a_node_without_keys_has_no_random_key() {
    assert_eq!(Joined::Any.join(by_node([Value::Nil, bulk("k"), Value::Nil])), bulk("k"));
    assert_eq!(Joined::Any.join(by_node([Value::Nil, Value::Nil])), Value::Nil);
}

#[test]
fn the_newest_rows_come_first_and_no_more_than_asked_for() {
    let rows = || array([numbers([1, 50]), numbers([0, 10]), numbers([7, 90])]);
    assert_eq!(Joined::Newest(2).join(rows()), array([numbers([7, 90]), numbers([1, 50])]));
    assert_eq!(Joined::Newest(0).join(rows()), array([]));
}

#[test]
fn subscribers_of_all_nodes_count() {
    let channels = array(["a", "b", "a"].map(bulk));
    assert_eq!(Joined::Distinct.join(channels), array(["a", "b"].map(bulk)));
    let counts = |a, b| array([bulk("a"), Value::Int(a), bulk("b"), Value::Int(b), bulk("a"), Value::Int(a)]);
    assert_eq!(
        Joined::Counts.join(by_node([counts(1, 0), counts(2, 4)])),
        counts(3, 4),
        "a name that is asked for twice"
    );
    assert_eq!(Joined::Sum.join(by_node([Value::Int(2), Value::Int(3)])), Value::Int(5));
}
