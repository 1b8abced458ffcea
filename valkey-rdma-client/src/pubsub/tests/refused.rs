//! Subscriptions that the server refuses when they are restored.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_restoration_is_told_and_concerns_nobody_else() {
    let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a", "b"]).await;
    let ordering = subscriber.subscribe(Subscription::Channel, ["c"]);
    let lose = async {
        events.expect(&subscribe(&["c"])).await;
        drop(events);
        let mut events = door.admit();
        events.greet().await;
        events.expect(&(subscribe(&["a", "b"]) + &subscribe(&["c"]))).await;
        events.say(&[NO, &confirmed("c")].concat()).await;
        events.expect(&(subscribe(&["a"]) + &subscribe(&["b"]))).await;
        events
    };
    let (outcome, mut events) = tokio::join!(ordering, lose);
    outcome.expect("its own answer");
    events.say(&confirmed("a")).await;
    events.say(&published("a")).await;
    assert!(is_message(&next(&mut subscriber).await, "a"), "not all hold yet");
    events.say(NO).await;
    let refused = next(&mut subscriber).await;
    assert!(matches!(&refused, Event::Refused { name, error, .. } if name == "b" && error.code == "NOPERM"));
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);

    // It is asked for again.
    drop(events);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a", "b", "c"])).await;
}

/// As while a script runs: the server takes the same subscriptions a little later.
#[tokio::test(start_paused = true)]
async fn subscriptions_come_back_when_the_server_is_no_longer_busy() {
    for refusal in ["BUSY a script runs", "LOADING x", "MASTERDOWN x"] {
        let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
        hold(&subscriber, &mut events, &["a", "b"]).await;
        drop(events);
        for _ in 0..3 {
            let mut busy = door.admit();
            busy.greet().await;
            busy.expect(&subscribe(&["a", "b"])).await;
            busy.say(format!("-{refusal}\r\n").as_bytes()).await;
            assert_eq!(busy.0.read(&mut [0; 1]).await.expect("closed"), 0, "{refusal}");
        }
        let mut events = door.admit();
        events.greet().await;
        events.expect(&subscribe(&["a", "b"])).await;
        events.say(&[confirmed("a"), confirmed("b")].concat()).await;
        assert_eq!(next(&mut subscriber).await, Event::Reconnected, "and nothing was refused");
    }
}

/// The server has no node for the slot of the shard channel. That says nothing of other subscriptions.
#[tokio::test(start_paused = true)]
async fn a_slot_without_a_node_keeps_no_other_subscription_from_coming_back() {
    for refusal in ["CLUSTERDOWN Hash slot not served", "TRYAGAIN x"] {
        let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
        hold(&subscriber, &mut events, &["a"]).await;
        let ssubscribe = String::from_utf8(shard("ssubscribe", "s", false)).expect("text");
        let confirm = async {
            events.expect(&ssubscribe).await;
            events.say(&shard("ssubscribe", "s", true)).await;
        };
        let (outcome, ()) = tokio::join!(subscriber.subscribe(Subscription::Shard, ["s"]), confirm);
        outcome.expect("confirmed");
        drop(events);
        let mut events = door.admit();
        events.greet().await;
        events.expect(&(subscribe(&["a"]) + &ssubscribe)).await;
        events.say(&[confirmed("a"), format!("-{refusal}\r\n").into_bytes()].concat()).await;
        let refused = next(&mut subscriber).await;
        assert!(matches!(&refused, Event::Refused { name, .. } if name == "s"), "{refused:?}");
        assert_eq!(next(&mut subscriber).await, Event::Reconnected);
        events.say(&published("a")).await;
        assert!(is_message(&next(&mut subscriber).await, "a"), "on the same connection");
    }
}

/// A script runs for ever. The subscription is `a`.
pub(super) async fn serve_busily(door: &Door) {
    loop {
        let mut busy = door.admit();
        busy.greet().await;
        busy.expect(&subscribe(&["a"])).await;
        busy.say(b"-BUSY a script runs\r\n").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_not_hurried_and_is_why_changes_fail() {
    let (_client, subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    drop(events);
    let change = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        subscriber.subscribe(Subscription::Channel, ["b"]).await
    };
    let served = async { tokio::join!(timeout(Duration::from_secs(60), serve_busily(&door)), change) };
    let (_served, outcome) = served.await;
    assert!(door.tries() < 60, "{} connections within 60 s", door.tries());
    let error = outcome.expect_err("not taken");
    assert_eq!(error.server().map(|error| &*error.code), Some("BUSY"), "{error}");
}

/// Its command is refused for another name.
#[tokio::test(start_paused = true)]
async fn what_was_unsubscribed_meanwhile_is_not_restored_one_by_one() {
    let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a", "b"]).await;
    drop(events);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a", "b"])).await;
    let refuse = async {
        events.expect("*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\na\r\n").await;
        events.say(&[NO, b">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"].concat()).await;
        events.expect(&subscribe(&["b"])).await;
        events.say(&confirmed("b")).await;
        events
    };
    let (outcome, mut events) = tokio::join!(subscriber.unsubscribe(Subscription::Channel, ["a"]), refuse);
    outcome.expect("confirmed");
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);
    assert!(timeout(Duration::from_secs(9), events.0.read(&mut [0; 1])).await.is_err(), "nothing else");
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_what_was_unsubscribed_meanwhile_is_not_reported() {
    let (_client, mut subscriber, door, _peer, mut events) = subscribed(10, SlowConsumer::Drop).await;
    hold(&subscriber, &mut events, &["a"]).await;
    drop(events);
    let mut events = door.admit();
    events.greet().await;
    events.expect(&subscribe(&["a"])).await;
    let refuse = async {
        events.expect("*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\na\r\n").await;
        events.say(&[NO, b">3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n:0\r\n"].concat()).await;
    };
    let (outcome, ()) = tokio::join!(subscriber.unsubscribe(Subscription::Channel, ["a"]), refuse);
    outcome.expect("confirmed");
    assert_eq!(next(&mut subscriber).await, Event::Reconnected);
}
