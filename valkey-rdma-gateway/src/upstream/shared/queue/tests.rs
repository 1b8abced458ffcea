use super::*;
use crate::command::words::encode;

fn filled() -> (Queue, Arc<Inbox>) {
    let inbox = Arc::new(Inbox::default());
    let mut queue = Queue::default();
    for command in ["aaaa", "bbbb", "cccc"] {
        queue.push(&inbox, command.as_bytes(), 1, Instant::now(), false);
    }
    (queue, inbox)
}

fn escaped(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn what_was_not_sent_is_sent_again() {
    for (written, again) in [(0, "aaaabbbbccccdddd"), (1, ""), (5, ""), (12, "")] {
        let (mut queue, inbox) = filled();
        let cx = Context::from_waker(Waker::noop());
        let mut batch = Vec::new();
        assert_eq!(queue.take(&mut batch, &cx).expect("commands").1, 3);
        queue.wrote(written);
        queue.push(&inbox, b"dddd", 1, Instant::now(), false);
        let lost = queue.lose(&batch);
        // Of a client that is closed, nothing more runs.
        let is_closed = written > 0;
        assert_eq!(lost.clients.len(), 4 * usize::from(is_closed), "{written} bytes written");
        assert_eq!(lost.may_have_run, written.div_ceil(4) as u64, "{written} bytes written");
        assert_eq!(lost.may_have_run + lost.not_sent, 4 * u64::from(is_closed), "{written} bytes written");
        batch.clear();
        queue.take(&mut batch, &cx);
        assert_eq!(escaped(&batch), again, "{written} bytes written");
    }
}

#[test]
fn reads_are_sent_again_once_unless_their_client_is_closed() {
    let clients: [Arc<Inbox>; 3] = Default::default();
    let [one, other, third] = &clients;
    let (mut queue, mut batch) = (Queue::default(), Vec::new());
    let cx = Context::from_waker(Waker::noop());
    let push = |queue: &mut Queue, inbox, lines: &[&str]| {
        let bytes: Vec<_> = lines.iter().map(|line| encode(line.split(' '))).collect();
        queue.push(inbox, &bytes.concat(), lines.len() as u32, Instant::now(), false);
        bytes
    };
    push(&mut queue, one, &["GET a", "INCR b", "GET c"]);
    let read = push(&mut queue, third, &["INCR a", "GET a"]);
    queue.take(&mut batch, &cx);
    queue.wrote(batch.len());
    let second = push(&mut queue, other, &["GET d"]);
    push(&mut queue, one, &["GET e"]);
    queue.take(&mut batch, &cx);
    queue.answered(1, None);
    queue.wrote(second[0].len() + 1);
    let last = push(&mut queue, other, &["INCR f"]);
    push(&mut queue, one, &["GET g"]);

    // `third` has its first reply, but it comes behind those of `one`, which are missing.
    let lost = queue.lose(&batch);
    let is_closed = |inbox: &Arc<Inbox>| lost.clients.iter().any(|client| Arc::ptr_eq(client, inbox));
    assert_eq!(clients.each_ref().map(is_closed), [true, false, true]);
    assert_eq!((lost.may_have_run, lost.not_sent, lost.sent_again), (5, 1, 1));
    batch.clear();
    queue.take(&mut batch, &cx);
    assert_eq!(escaped(&batch), escaped(&[&second[0][..], &last[0]].concat()));
    assert_eq!(queue.total.load(Ordering::Relaxed), batch.len());

    // The connection is lost again.
    queue.wrote(batch.len());
    let lost = queue.lose(&batch);
    assert!(lost.clients.iter().all(|client| Arc::ptr_eq(client, other)));
    assert_eq!((lost.may_have_run, lost.sent_again), (2, 0));
    assert_eq!((queue.in_flight(), queue.total.load(Ordering::Relaxed)), (0, 0));

    // Only the read has no reply.
    batch.clear();
    push(&mut queue, third, &["INCR a", "GET a"]);
    queue.take(&mut batch, &cx);
    queue.wrote(batch.len());
    queue.answered(1, None);
    assert_eq!(queue.lose(&batch).sent_again, 1);
    batch.clear();
    queue.take(&mut batch, &cx);
    assert_eq!(escaped(&batch), escaped(&read[1]));
    // A part of its reply was passed on.
    queue.wrote(batch.len());
    queue.answered(0, Some(1));
    assert_eq!((queue.lose(&batch).clients.len(), queue.in_flight()), (1, 0));
}

#[test]
fn what_has_waited_for_too_long_is_taken_out() {
    let (mut queue, inbox) = filled();
    let limit = Instant::now();
    queue.push(&inbox, b"dddd", 1, limit + Duration::from_secs(1), false);
    assert_eq!(queue.take_older(limit).len(), 3);
    let mut batch = Vec::new();
    queue.take(&mut batch, &Context::from_waker(Waker::noop()));
    assert_eq!(batch, b"dddd");
}

/// Before, commands waited behind others: only from then on, for a connection.
#[test]
fn the_wait_for_a_connection_begins_when_one_is_lost() {
    let minute = Duration::from_secs(60);
    let (mut queue, inbox) = (Queue::default(), Arc::new(Inbox::default()));
    let earlier = Instant::now().checked_sub(minute).expect("the machine is up for longer");
    queue.push(&inbox, b"aaaa", 1, earlier, false);
    queue.lose(&[]);
    assert!(queue.take_older(Instant::now().checked_sub(minute / 2).expect("likewise")).is_empty());
    assert_eq!(queue.in_flight(), 1);
}

#[test]
fn replies_belong_to_the_oldest_command_that_was_sent() {
    let (mut queue, _inbox) = filled();
    assert!(queue.first().is_none(), "nothing was sent");
    let mut batch = Vec::new();
    queue.take(&mut batch, &Context::from_waker(Waker::noop()));
    queue.wrote(1);
    assert!(queue.first().is_some());
    let now = Instant::now();
    assert!(!queue.is_stalled(now) && queue.is_stalled(now + 2 * STALL));
    queue.answered(1, None);
    assert!(queue.first().is_none(), "the second command was not sent");
    assert!(!queue.is_stalled(now + 2 * STALL), "a command that was not sent waits for the connection");
    assert!(!queue.close());
}

#[test]
fn bytes_count_until_their_commands_are_answered() {
    let (mut queue, _inbox) = filled();
    let mut batch = Vec::new();
    let count = |queue: &Queue| queue.total.load(Ordering::Relaxed);
    queue.take(&mut batch, &Context::from_waker(Waker::noop()));
    queue.wrote(8);
    queue.answered(1, None);
    assert_eq!(count(&queue), 8);
    queue.push(&Arc::default(), b"dddd", 1, Instant::now(), false);
    assert_eq!(queue.lose(&batch).may_have_run, 1);
    assert_eq!((queue.in_flight(), count(&queue)), (1, 4));
    assert_eq!((queue.abandon().len(), count(&queue)), (1, 0));
}

#[test]
fn others_do_not_wait_behind_a_large_reply_while_it_arrives() {
    let (mut queue, _inbox) = filled();
    let (mut batch, now) = (Vec::new(), Instant::now());
    queue.take(&mut batch, &Context::from_waker(Waker::noop()));
    queue.wrote(batch.len());
    queue.answered(0, Some(LARGE / 2));
    assert!(!queue.is_stalled(now));
    queue.answered(0, Some(LARGE / 2));
    assert!(queue.is_stalled(now));
    queue.answered(1, Some(LARGE / 2));
    assert!(!queue.is_stalled(now), "of the next reply half is there");
    queue.answered(0, Some(LARGE));
    assert!(queue.is_stalled(now));
    queue.answered(1, None);
    assert!(!queue.is_stalled(now));
}

#[test]
fn a_command_that_must_be_alone_has_none_beside_it() {
    let (mut queue, inbox) = filled();
    let (cx, mut batch) = (Context::from_waker(Waker::noop()), Vec::new());
    for (bytes, is_alone) in [(b"AAAA", true), (b"BBBB", true), (b"dddd", false), (b"eeee", false)] {
        queue.push(&inbox, bytes, 1, Instant::now(), is_alone);
    }
    for (expected, replies) in [("aaaabbbbcccc", 3), ("AAAA", 1), ("BBBB", 1), ("ddddeeee", 2)] {
        queue.take(&mut batch, &cx).expect("commands");
        assert_eq!(String::from_utf8_lossy(&batch), expected);
        for _ in 0..replies {
            queue.wrote(batch.len() / replies as usize);
            assert!(queue.take(&mut Vec::new(), &cx).is_none(), "not before all are answered");
            queue.answered(1, None);
        }
    }
    assert!(queue.take(&mut batch, &cx).is_none());
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_command_that_must_be_alone_is_sent_again_alone() {
    let (mut queue, inbox, lost) = (Queue::default(), Arc::default(), Arc::default());
    let (cx, mut batch) = (Context::from_waker(Waker::noop()), Vec::new());
    let push = |queue: &mut Queue, inbox: &Arc<Inbox>, bytes: &[u8], is_alone| {
        queue.push(inbox, bytes, 1, Instant::now(), is_alone);
    };
    push(&mut queue, &lost, b"AAAA", true);
    push(&mut queue, &inbox, b"BBBB", true);
    push(&mut queue, &inbox, b"cccc", false);
    queue.take(&mut batch, &cx).expect("a command");
    queue.wrote(2);
    assert_eq!(queue.lose(&batch).clients.len(), 1);
    for expected in ["BBBB", "cccc"] {
        batch.clear();
        queue.take(&mut batch, &cx).expect("a command");
        assert_eq!(String::from_utf8_lossy(&batch), expected);
        queue.wrote(4);
        queue.answered(1, None);
    }
}

#[test]
fn the_memory_of_batches_is_used_again() {
    let (mut queue, inbox, mut batch) = (Queue::default(), Arc::new(Inbox::default()), Vec::new());
    let cx = Context::from_waker(Waker::noop());
    for _ in 0..10 {
        inbox.expect(1);
        queue.push(&inbox, &encode(["GET", "k"]), 1, Instant::now(), false);
        queue.take(&mut batch, &cx).unwrap();
        queue.wrote(batch.len());
        queue.answered(1, None);
    }
    assert!(queue.bytes.capacity() > 0);
}
