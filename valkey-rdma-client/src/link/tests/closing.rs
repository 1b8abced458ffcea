//! The end of a client that still waits for something.

use super::*;

#[tokio::test(start_paused = true)]
async fn closing_while_there_is_no_connection_tells_those_who_wait() {
    let (client, _door, peer) = pair(&Config::default()).await;
    drop(peer);
    settle().await;
    let waiting = start(&client, get("a"));
    settle().await;
    client.close().await;
    let error = waiting.await.expect("no panic").expect_err("closed");
    assert!(error.to_string().contains("closed by this program"), "{error}");
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn closing_begins_on_all_connections_at_once_and_refuses_new_ones() {
    let door = Door::default();
    let config = Config::default().connections(2);
    let (mut first, mut second) = (door.admit(), door.admit());
    let greet = async {
        second.greet().await;
        first.greet().await;
    };
    let (client, ()) = tokio::join!(door.connect(&config), greet);
    let mut idle = door.admit();
    let blocking = async {
        idle.greet().await;
        idle.expect("*3\r\n$5\r\nBLPOP\r\n$1\r\nl\r\n$1\r\n0\r\n").await;
        idle.say(b"_\r\n").await;
    };
    let (popped, ()) = tokio::join!(client.blocking_command(["BLPOP", "l", "0"]), blocking);
    assert!(popped.expect("a reply").is_nil());
    // The first connection owes a reply for ever.
    let unanswered = start(&client, get("a"));
    second.expect(&raw("a")).await;
    assert!(timeout(Duration::from_secs(1), client.close()).await.is_err());

    assert_eq!(first.0.read(&mut [0; 1]).await.expect("closed"), 0);
    assert_eq!(idle.0.read(&mut [0; 1]).await.expect("closed"), 0);
    let _never_used = door.admit();
    let refusals = [
        client.dedicated().await.map(drop),
        client.subscriber().await.map(drop),
        client.get_into("k", &mut []).await.map(drop),
        client.command(["PING"]).await.map(drop),
        client.command(["PING"]).await.map(drop),
    ];
    for refusal in refusals {
        let error = refusal.expect_err("closed");
        assert!(error.to_string().contains("closed by this program"), "{error}");
        assert_eq!(error.fate(), Fate::NotSent);
    }
    assert_eq!(door.tries(), 3);
    second.say(b"$1\r\nA\r\n").await;
    assert!(unanswered.await.expect("no panic").is_ok());
    client.close().await;
    assert!(client.is_closed());
}

#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_reply_that_never_comes() {
    // Of one command, and of more than a connection takes.
    for count in [1, 3000] {
        let (client, _door, mut peer) = pair(&Config::default()).await;
        let value = "v".repeat(1000);
        let unanswered: Vec<_> =
            (0..count).map(|_| start(&client, Command::new("SET").arg("k").arg(&value))).collect();
        peer.expect("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n").await;
        settle().await;
        let begin = Instant::now();
        timeout(Duration::from_secs(10), client.close()).await.expect("a deadline");
        assert_eq!(begin.elapsed().as_secs(), 3);
        let mut fates = Vec::new();
        for task in unanswered {
            let error = task.await.expect("no panic").expect_err("closed");
            assert!(error.to_string().contains("closed by this program"), "{error}");
            fates.push(error.fate());
        }
        assert!(fates.contains(&Fate::MayHaveRun) && (count == 1 || fates.contains(&Fate::NotSent)));
        assert!(client.is_closed());
    }
}
