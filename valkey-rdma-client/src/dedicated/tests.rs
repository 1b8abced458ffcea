use std::future::{pending, ready};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::*;
use crate::client::Client;
use crate::config::Config;
use crate::error::{AbortedTransaction, Fate};
use crate::link::tests::{Door, PING, Peer, pair};

const BLPOP: &str = "*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n";

/// A call that blocks, and the server's ends of the shared connection and its own.
async fn blocked(
    config: &Config,
) -> (tokio::task::JoinHandle<Result<Value, Error>>, Client, Door, Peer, Peer) {
    let (client, door, shared) = pair(config).await;
    let mut own = door.admit();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.blocking_command(["BLPOP", "l", "0"]).await }
    });
    own.greet().await;
    own.expect(BLPOP).await;
    (call, client, door, shared, own)
}

/// Over TCP, the kernel of a frozen server keeps the connection of the call alive.
#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_ends_when_its_server_answers_nothing() {
    let (call, _client, _door, mut shared, mut own) = blocked(&Config::default()).await;
    shared.expect(PING).await;
    let error = call.await.expect("no panic").expect_err("a frozen server");
    let text =
        "connection to test:1 lost: its server did not answer PING within 20s; the command may have run";
    assert_eq!((error.to_string().as_str(), error.fate()), (text, Fate::MayHaveRun));
    assert_eq!(own.0.read(&mut [0; 1]).await.expect("closed"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_goes_on_while_its_server_answers_others() {
    let (mut call, _client, _door, mut shared, mut own) = blocked(&Config::default()).await;
    for answer in [&b"+PONG\r\n"[..], b"-NOPERM this user may not run PING\r\n", b"+PONG\r\n"] {
        shared.expect(PING).await;
        assert!(timeout(Duration::from_secs(19), &mut call).await.is_err(), "less than the limit");
        shared.say(answer).await;
    }
    own.say(b"*2\r\n$1\r\nl\r\n$1\r\nx\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

const GET: &str = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

/// The answer to PING comes behind the value, whose end comes later than a silent server is left.
#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_goes_on_while_its_server_sends_others_a_large_value() {
    let (mut call, client, _door, mut shared, mut own) = blocked(&Config::default()).await;
    let get =
        tokio::spawn(async move { client.command(Command::new("GET").arg("k").timeout(FOREVER)).await });
    shared.expect(GET).await;
    shared.say(b"$30\r\n").await;
    for _ in 0..30 {
        assert!(timeout(Duration::from_secs(9), &mut call).await.is_err(), "its server is there");
        shared.say(b"x").await;
    }
    shared.say(b"\r\n").await;
    get.await.expect("no panic").expect("a value");
    own.say(b"_\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

/// What came before it was asked does not count.
#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_ends_when_its_server_stops_in_the_middle_of_a_value() {
    let (mut call, client, _door, mut shared, _own) = blocked(&Config::default()).await;
    let get =
        tokio::spawn(async move { client.command(Command::new("GET").arg("k").timeout(FOREVER)).await });
    shared.expect(GET).await;
    shared.say(b"$30\r\n").await;
    for _ in 0..6 {
        assert!(timeout(Duration::from_secs(9), &mut call).await.is_err(), "its server is there");
        shared.say(b"x").await;
    }
    let error = call.await.expect("no panic").expect_err("a frozen server");
    assert!(
        matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Silent { .. })),
        "{error}"
    );
    get.abort();
}

/// True if the server gets another byte within this time.
async fn hears_more(peer: &mut Peer, within: Duration) -> bool {
    timeout(within, peer.0.read(&mut [0; 1])).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn calls_that_block_at_the_same_time_share_the_questions_to_their_server() {
    let (first, client, door, mut shared, _own) = blocked(&Config::default()).await;
    assert!(!hears_more(&mut shared, Duration::from_secs(3)).await);
    let mut more = Vec::new();
    for _ in 0..3 {
        let client = client.clone();
        let call = tokio::spawn(async move { client.blocking_command(["BLPOP", "l", "0"]).await });
        let mut own = door.admit();
        own.greet().await;
        own.expect(BLPOP).await;
        more.push((call, own));
    }
    shared.expect(PING).await;
    shared.say(b"+PONG\r\n").await;
    assert!(!hears_more(&mut shared, Duration::from_secs(9)).await, "the others see the answer");
    shared.expect(PING).await;
    // Whichever call has asked: the question is that of all.
    first.abort();
    assert!(!hears_more(&mut shared, Duration::from_secs(19)).await);
    for (call, _own) in more {
        let error = call.await.expect("no panic").expect_err("a frozen server");
        assert!(
            matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Silent { .. })),
            "{error}"
        );
    }
    assert!(!hears_more(&mut shared, Duration::from_secs(3600)).await, "asked once");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_outlives_the_client_that_is_closed() {
    let (mut call, client, _door, shared, mut own) = blocked(&Config::default()).await;
    client.close().await;
    drop(shared);
    assert!(timeout(Duration::from_secs(3600), &mut call).await.is_err());
    own.say(b"_\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_for_silence_no_server_is_asked() {
    let (mut call, _client, _door, mut shared, mut own) =
        blocked(&Config::default().keepalive_timeout(None)).await;
    assert!(timeout(Duration::from_secs(3600), &mut call).await.is_err());
    assert!(timeout(Duration::ZERO, shared.0.read(&mut [0; 1])).await.is_err(), "nothing was sent");
    own.say(b"_\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

/// The server is asked on a new one.
#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_does_not_end_with_the_shared_connection() {
    let (mut call, _client, door, shared, mut own) = blocked(&Config::default().reconnect(None)).await;
    drop(shared);
    for answer in [None, Some(&b"-WRONGPASS changed\r\n"[..])] {
        let mut asked = door.admit();
        match answer {
            None => asked.greet().await,
            Some(refusal) => asked.say(refusal).await,
        }
        assert!(timeout(Duration::from_secs(9), &mut call).await.is_err(), "it is there");
    }
    own.say(b"_\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_blocks_ends_when_its_server_cannot_be_asked() {
    let (call, _client, _door, shared, _own) = blocked(&Config::default().reconnect(None)).await;
    drop(shared);
    let error = call.await.expect("no panic").expect_err("it cannot be reached");
    assert!(
        matches!(&error, Error::Lost(lost) if matches!(lost.cause(), LostCause::Silent { .. })),
        "{error}"
    );
}

/// A call without a time limit, on a connection of its own whose server may be replaced.
async fn of_a_node(
    replaced: impl Fn() -> BoxFuture<'static, ()> + Send + Sync + 'static,
) -> (tokio::task::JoinHandle<Result<Value, Error>>, Peer, Peer) {
    let (client, door, shared) = pair(&Config::default().keepalive_timeout(None)).await;
    let mut own = door.admit();
    let call = tokio::spawn(async move {
        client
            .server()
            .checkout_until_replaced(Purpose::Call, Duration::from_secs(1), replaced)
            .await?
            .command(["GET", "k"])
            .await
    });
    own.greet().await;
    own.expect("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n").await;
    (call, shared, own)
}

#[tokio::test(start_paused = true)]
async fn a_call_leaves_a_server_that_was_replaced_and_answers_nothing() {
    let (call, mut shared, mut own) = of_a_node(|| Box::pin(ready(()))).await;
    shared.expect(PING).await;
    let error = call.await.expect("no panic").expect_err("it was replaced");
    let text =
        "connection to test:1 lost: its server did not answer PING within 1s; the command may have run";
    assert_eq!((error.to_string().as_str(), error.fate()), (text, Fate::MayHaveRun));
    assert_eq!(own.0.read(&mut [0; 1]).await.expect("closed"), 0);
}

#[tokio::test(start_paused = true)]
async fn no_connection_is_waited_for_to_a_server_that_was_replaced_and_answers_nothing() {
    let (client, door, mut shared) = pair(&Config::default().keepalive_timeout(None)).await;
    let _accepted = door.admit();
    let connecting = client
        .server()
        .checkout_until_replaced(Purpose::Call, Duration::from_secs(1), || Box::pin(ready(())));
    let (connected, ()) = tokio::join!(connecting, shared.expect(PING));
    let error = connected.expect_err("it was replaced");
    let text =
        "connection to test:1 lost: its server did not answer PING within 1s; the command was not sent";
    assert_eq!((error.to_string().as_str(), error.fate()), (text, Fate::NotSent));
}

/// A value may take its time.
#[tokio::test(start_paused = true)]
async fn a_call_stays_with_a_server_that_was_replaced_and_answers_others() {
    let (call, mut shared, mut own) = of_a_node(|| Box::pin(ready(()))).await;
    for _ in 0..3 {
        shared.expect(PING).await;
        shared.say(b"+PONG\r\n").await;
    }
    own.say(b"$1\r\nv\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_stays_with_a_server_that_answers_nothing_and_was_not_replaced() {
    let (mut call, _shared, mut own) = of_a_node(|| Box::pin(pending())).await;
    assert!(timeout(Duration::from_secs(3600), &mut call).await.is_err());
    own.say(b"$1\r\nv\r\n").await;
    assert!(call.await.expect("no panic").is_ok());
}

#[tokio::test(start_paused = true)]
async fn calls_on_a_node_that_may_be_replaced_share_the_questions_to_it() {
    let (client, door, mut shared) = pair(&Config::default().keepalive_timeout(None)).await;
    let mut peers = [door.admit(), door.admit()];
    let calls = [(); 2].map(|()| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut own = client
                .server()
                .checkout_until_replaced(Purpose::Call, Duration::from_secs(1), || Box::pin(pending()))
                .await?;
            own.command(["GET", "k"]).await
        })
    });
    for peer in &mut peers {
        peer.greet().await;
    }
    for _ in 0..3 {
        shared.expect(PING).await;
        shared.say(b"+PONG\r\n").await;
        assert!(!hears_more(&mut shared, Duration::from_millis(900)).await, "asked once each second");
    }
    for peer in &mut peers {
        peer.say(b"$1\r\nv\r\n").await;
    }
    for call in calls {
        call.await.expect("no panic").expect("answered");
    }
}

/// If its MULTI is refused, it blocks its connection.
#[tokio::test(start_paused = true)]
async fn a_transaction_with_a_command_that_blocks_leaves_the_shared_connection_to_others() {
    let (client, door, mut shared) = pair(&Config::default()).await;
    let mut own = door.admit();
    let transaction = client.transaction().command(["BLPOP", "l", "0"]).execute();
    let serve = async {
        own.greet().await;
        own.expect(&["*1\r\n$5\r\nMULTI\r\n", BLPOP, "*1\r\n$4\r\nEXEC\r\n"].concat()).await;
        own.say(b"-NOPERM no permissions to run the 'multi' command\r\n").await;
        let pong = async {
            shared.expect(PING).await;
            shared.say(b"+PONG\r\n").await;
        };
        let (reply, ()) = tokio::join!(client.command(["PING"]), pong);
        reply.expect("not behind it");
        own.say(b"_\r\n-ERR EXEC without MULTI\r\n").await;
    };
    let both = timeout(FOREVER, async { tokio::join!(transaction, serve) }).await;
    let error = both.expect("no hang").0.expect_err("not begun");
    assert!(matches!(error, Error::Aborted(AbortedTransaction::NotBegun { .. })), "{error:?}");
}

/// Whether the server is in a transaction when it reads one cannot be known before.
#[tokio::test(start_paused = true)]
async fn a_pipeline_takes_no_command_that_blocks_also_behind_multi() {
    let (client, _door, _shared) = pair(&Config::default()).await;
    for (lines, instead) in [
        (&["MULTI", "BLPOP l 0", "EXEC"][..], "Transaction"),
        (&["MULTI x", "BLPOP l 0", "EXEC"], "Transaction"),
        (&["MULTI", "SET a 1", "EXEC x", "XREAD BLOCK 0 STREAMS s $", "EXEC"], "Transaction"),
        (&["MULTI", "WAIT 1 0", "EXEC"], "Transaction"),
        (&["BLPOP l 0"], "Client::blocking_command"),
        (&["MULTI", "SET a 1", "EXEC x"], "add EXEC"),
    ] {
        let mut pipeline = client.pipeline();
        for line in lines {
            pipeline.push(line.split(' '));
        }
        let error = pipeline.send().await.expect_err("refused");
        assert!(matches!(error, Error::Refused(_)) && error.to_string().contains(instead), "{error}");
    }
    let ends_early = client.transaction().command(["EXEC", "x"]).command(["SET", "a", "1"]).execute().await;
    assert!(matches!(ends_early, Err(Error::Refused(_))), "{ends_early:?}");
}
