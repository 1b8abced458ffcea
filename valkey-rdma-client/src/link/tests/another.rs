//! Connections of their own, which are made while the client reconnects.

use futures_util::future::join_all;

use super::*;
use crate::config::Backoff;

/// As commands do.
#[tokio::test(start_paused = true)]
async fn another_connection_waits_for_a_server_that_reads_its_data() {
    let (client, door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    let waits = client.clone();
    let dedicated = tokio::spawn(async move { waits.dedicated().await.map(drop) });
    settle().await;
    let mut shared = door.admit();
    shared.greet().await;
    shared.expect(PING).await;
    // One that begins now asks on a connection of its own.
    let mut own = door.admit();
    let begins = client.clone();
    let another = tokio::spawn(async move { begins.dedicated().await.map(drop) });
    own.greet_again_with(b"-LOADING wait\r\n").await;
    shared.say(b"-LOADING wait\r\n").await;
    shared.expect(PING).await;
    settle().await;
    assert!(!dedicated.is_finished() && !another.is_finished());

    let mut last = door.admit();
    shared.say(b"+PONG\r\n").await;
    own.expect(PING).await;
    own.say(b"+PONG\r\n").await;
    another.await.expect("no panic").expect("the server has its data");
    assert!(client.is_connected());
    last.greet().await;
    dedicated.await.expect("no panic").expect("the server has its data");
}

/// As commands do.
#[tokio::test(start_paused = true)]
async fn another_connection_does_not_wait_for_a_server_that_refuses_the_login() {
    let (client, door, peer) = pair(&Config::default()).await;
    let begin = Instant::now();
    drop(peer);
    settle().await;
    let another = tokio::spawn({
        let client = client.clone();
        async move { client.dedicated().await.map(drop) }
    });
    for _ in 0..2 {
        let mut peer = door.admit();
        peer.expect(HELLO).await;
        peer.say(b"-WRONGPASS no\r\n-NOAUTH no\r\n-NOAUTH no\r\n").await;
    }
    let error = another.await.expect("no panic").expect_err("refused");
    assert_eq!(error.server().map(|error| &*error.code), Some("WRONGPASS"));
    assert!(begin.elapsed().as_secs() < 10);
}

/// As commands do: [`Config::offline_timeout`].
#[tokio::test(start_paused = true)]
async fn another_connection_waits_for_the_server_too() {
    let (client, door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let error = client.dedicated().await.expect_err("no server");
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert_eq!(begin.elapsed().as_secs(), 10);

    let begin = Instant::now();
    let (waits, subscribes) = (client.clone(), client.clone());
    let dedicated = tokio::spawn(async move { waits.dedicated().await.map(drop) });
    let subscriber = tokio::spawn(async move { subscribes.subscriber().await.map(drop) });
    settle().await;
    let mut peers = [door.admit(), door.admit(), door.admit()];
    join_all(peers.iter_mut().map(Peer::greet_any)).await;
    dedicated.await.expect("no panic").expect("the server is back");
    subscriber.await.expect("no panic").expect("the server is back");
    assert!(client.is_connected());
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn another_connection_that_is_made_brings_the_shared_one_back_at_once() {
    let (client, door, peer) = pair(&Config::default()).await;
    drop(peer);
    // Waits grow up to 5 s.
    sleep(Duration::from_secs(60)).await;
    let begin = Instant::now();
    let mut peers = [door.admit(), door.admit()];
    let (made, _) = tokio::join!(client.dedicated(), join_all(peers.iter_mut().map(Peer::greet_any)));
    made.expect("connected");
    settle().await;
    assert!(client.is_connected());
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_the_wait_for_another_connection() {
    let (client, _door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    let begin = Instant::now();
    let waits = client.clone();
    let dedicated = tokio::spawn(async move { waits.dedicated().await.map(drop) });
    settle().await;
    client.close().await;
    let error = dedicated.await.expect("no panic").expect_err("closed");
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

/// It finds the server gone before the shared connection does.
#[tokio::test(start_paused = true)]
async fn another_connection_waits_also_if_the_loss_is_noticed_later() {
    let (client, door, peer) = pair(&Config::default()).await;
    let begin = Instant::now();
    let error = client.dedicated().await.expect_err("refused, though the shared connection is well");
    assert!(error.to_string().contains("connection refused"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());

    let waits = client.clone();
    let dedicated = tokio::spawn(async move { waits.dedicated().await.map(drop) });
    settle().await;
    drop(peer);
    // Longer than a refusal takes to be believed.
    sleep(Duration::from_secs(5)).await;
    assert!(!dedicated.is_finished());
    let mut peers = [door.admit(), door.admit()];
    join_all(peers.iter_mut().map(Peer::greet_any)).await;
    dedicated.await.expect("no panic").expect("the server is back");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_server_within_its_own_limit() {
    for offline in [None, Some(Duration::from_secs(10))] {
        let config = Config::default().command_timeout(Duration::from_secs(2)).offline_timeout(offline);
        let (client, _door, peer) = pair(&config).await;
        drop(peer);
        settle().await;
        let pop = || Command::from_args(["BLPOP", "l", "0"]).timeout(Duration::from_secs(1));
        let calls = async {
            [
                client.blocking_command(pop()).await.map(drop),
                client.transaction().command(pop()).execute().await.map(drop),
                client.get_into("k", &mut [0; 8]).await.map(drop),
                client.stream_argument(Command::new("SET").arg("k"), 8).await.map(drop),
                client.watch(["k"]).await.map(drop),
                client.command(["FUNCTION", "STATS"]).await.map(drop),
            ]
        };
        // Each would take 10 s, or for ever.
        for outcome in timeout(Duration::from_secs(15), calls).await.expect("their limits") {
            let error = outcome.expect_err("no server");
            assert!(error.to_string().contains("connection refused"), "{error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_waited_for_the_server_has_the_rest_of_its_time() {
    let config = Config::default().reconnect(Backoff::default().max(Duration::from_millis(100)));
    let (client, door, peer) = pair(&config).await;
    drop(peer);
    settle().await;
    let waits = client.clone();
    let pop = Command::from_args(["BLPOP", "l", "0"]).timeout(Duration::from_secs(9));
    let call = tokio::spawn(async move { waits.blocking_command(pop).await });
    sleep(Duration::from_secs(6)).await;
    let mut peers = [door.admit(), door.admit()];
    join_all(peers.iter_mut().map(Peer::greet_any)).await;
    let outcome = timeout(Duration::from_secs(6), call).await.expect("not 9 s more").expect("no panic");
    let error = outcome.expect_err("no reply");
    assert_eq!(error.to_string(), "no reply from test:1 within 9s; the command may have run");
}
