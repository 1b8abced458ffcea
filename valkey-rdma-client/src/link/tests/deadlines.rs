//! Commands whose time is up.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_timeout_is_told_and_the_late_reply_is_dropped() {
    let config = Config::default().command_timeout(Duration::from_secs(2));
    let (client, _door, mut peer) = pair(&config).await;
    let begin = Instant::now();
    let late = start(&client, get("a"));
    peer.expect(&raw("a")).await;
    let error = late.await.expect("no panic").expect_err("too late");
    assert_eq!(begin.elapsed().as_secs(), 2);
    assert_eq!(error.to_string(), "no reply from test:1 within 2s; the command may have run");
    assert_eq!(error.fate(), Fate::MayHaveRun);

    let next = start(&client, get("b"));
    peer.expect(&raw("b")).await;
    peer.say(b"$1\r\nA\r\n$1\r\nB\r\n").await;
    assert_eq!(next.await.expect("no panic").expect("a reply").as_str(), Some("B"));
    assert_eq!(client.counters().timeouts, 1);
    assert_eq!(client.counters().reconnects, 0);
}

/// A program that computes its limits finds that there is no time left.
#[tokio::test(start_paused = true)]
async fn what_has_no_time_left_is_not_sent() {
    let (client, door, mut peer) = pair(&Config::default()).await;
    let mut own = door.admit();
    let (connection, ()) = tokio::join!(client.dedicated(), own.greet());
    let mut connection = connection.expect("connected");
    let late = || get("late").timeout(Duration::ZERO);
    for outcome in [
        client.command(late()).await.map(drop),
        client.pipeline().command(late()).command(late()).send().await.map(drop),
        client.pipeline().command(late()).send_each(|_, _| {}).await,
        client.transaction().command(late()).execute().await.map(drop),
        connection.execute(late()).await.map(drop),
    ] {
        let error = outcome.expect_err("too late");
        assert_eq!(error.to_string(), "no reply from test:1 within 0ns; the command was not sent");
        assert_eq!(error.fate(), Fate::NotSent);
    }
    assert_eq!(client.counters().timeouts, 4);
    let next = start(&client, get("a"));
    peer.expect(&raw("a")).await;
    peer.say(b"$1\r\nA\r\n").await;
    assert_eq!(next.await.expect("no panic").expect("a reply").as_str(), Some("A"));
    let (reply, ()) = tokio::join!(connection.execute(get("b")), async {
        own.expect(&raw("b")).await;
        own.say(b"$1\r\nB\r\n").await;
    });
    assert_eq!(reply.expect("it stays usable").as_str(), Some("B"));
}

/// Also where the server takes no more bytes, so that commands can neither be sent nor taken from the queue.
#[tokio::test(start_paused = true)]
async fn every_command_meets_its_deadline_though_nothing_moves() {
    let (client, _door, _peer) = pair(&Config::default()).await;
    let begin = Instant::now();
    let value = "v".repeat(1000);
    let tasks: Vec<_> = (0..3000)
        .map(|_| {
            let command = Command::new("SET").arg("k").arg(&value).timeout(Duration::from_secs(1));
            start(&client, command)
        })
        .collect();
    let mut unsent = 0;
    for task in tasks {
        let error = task.await.expect("no panic").expect_err("nothing moves");
        assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
        unsent += usize::from(error.fate() == Fate::NotSent);
    }
    assert_eq!(begin.elapsed().as_secs(), 1);
    assert!(unsent > 2000, "most never left the queue: {unsent}");
    assert_eq!(client.counters().timeouts, 3000);
}

/// What waited for a connection meets a server that takes nothing.
#[tokio::test(start_paused = true)]
async fn deadlines_hold_on_a_new_connection_that_blocks_at_once() {
    let config = Config::default().command_timeout(None).offline_timeout(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let endless = start(&client, Command::new("SET").arg("k").arg("v".repeat(64 * 1024)));
    settle().await;
    let limited = start(&client, get("a").timeout(Duration::from_secs(5)));
    settle().await;
    let mut peer = door.admit();
    peer.greet_again().await;
    let outcome = timeout(Duration::from_secs(60), limited).await.expect("its deadline");
    assert!(matches!(outcome.expect("no panic"), Err(Error::TimedOut(_))));
    assert_eq!(begin.elapsed().as_secs(), 5);
    assert!(!endless.is_finished());
}

/// However many wait before it, with all the time in the world.
#[tokio::test(start_paused = true)]
async fn a_short_deadline_holds_behind_many_long_ones() {
    let config = Config::default().command_timeout(None);
    let (client, _door, _peer) = pair(&config).await;
    let value = "v".repeat(1000);
    let endless: Vec<_> =
        (0..600).map(|_| start(&client, Command::new("SET").arg("k").arg(&value))).collect();
    settle().await;
    for _ in 0..2 {
        let begin = Instant::now();
        let limited = start(&client, get("a").timeout(Duration::from_secs(1)));
        let outcome = timeout(Duration::from_secs(60), limited).await.expect("its deadline");
        assert!(matches!(outcome.expect("no panic"), Err(Error::TimedOut(_))));
        assert_eq!(begin.elapsed().as_secs(), 1);
    }
    assert!(endless.iter().all(|task| !task.is_finished()));
}

/// Patience is for outages: what outlasted one waits for its turn.
#[tokio::test(start_paused = true)]
async fn patience_ends_with_the_outage() {
    let config = Config::default().command_timeout(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let first = start(&client, Command::new("SET").arg("k").arg("v".repeat(64 * 1024)));
    settle().await;
    let behind = start(&client, get("a"));
    // Its end makes the driver look at all that wait.
    let hurried = start(&client, get("b").timeout(Duration::from_secs(30)));
    settle().await;
    let mut peer = door.admit();
    peer.greet_again().await;
    sleep(Duration::from_secs(60)).await;
    assert!(matches!(hurried.await.expect("no panic"), Err(Error::TimedOut(_))));
    assert!(!first.is_finished() && !behind.is_finished());
}

/// While connected, only its own deadline ends a request, also one that came during an outage.
#[tokio::test(start_paused = true)]
async fn patience_with_an_outage_does_not_count_while_connected() {
    let config = Config::default().command_timeout(None);
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let large = start(&client, Command::new("SET").arg("k").arg("v".repeat(1 << 20)));
    settle().await;
    let waits = start(&client, get("a"));
    settle().await;
    assert_eq!(client.server().queued(), [2]);
    let mut peer = door.admit();
    peer.greet_again().await;
    settle().await;
    assert_eq!(client.server().queued(), [1], "the stream is full");
    sleep(Duration::from_secs(60)).await;
    assert!(!large.is_finished() && !waits.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_ones_own_says_that_a_call_took_too_long() {
    let (client, door, _peer) = pair(&Config::default()).await;
    let mut own = door.admit();
    let (connection, ()) = tokio::join!(client.dedicated(), own.greet());
    let mut connection = connection.expect("connected");
    let command = get("k").timeout(Duration::from_secs(1));
    let error = connection.execute(command).await.expect_err("no reply");
    assert!(matches!(error, Error::TimedOut(_)), "{error:?}");
    let error = connection.command(["PING"]).await.expect_err("useless");
    assert_eq!(
        error.to_string(),
        "connection to test:1 lost: a call on it got no reply within 1s; the command was not sent"
    );
}
