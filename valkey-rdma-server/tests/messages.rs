//! The example `messages` does what it says.

mod support;

#[allow(dead_code, reason = "its main is for people")]
#[path = "../examples/messages.rs"]
mod example;

use support::{start, wires};
use valkey_rdma_server::Limits;

const HELLO: &str = "HELLO 2 AUTH ada lovelace SETNAME me\r\n";

#[tokio::test]
async fn users_log_in_subscribe_and_wait_until_the_end() {
    let server = start(example::Messages::default(), &Limits::default()).await;
    let [mut subscriber, mut waiting] = wires(&server).await.try_into().ok().expect("two transports");
    let noauth = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for wire in [&mut subscriber, &mut waiting] {
        wire.dialogue(&[
            ("SUBSCRIBE news", noauth),
            ("PING", noauth),
            ("HELLO 3", noauth),
            ("AUTH lovelace", wrong),
            ("HELLO 3 AUTH ada babbage", wrong),
            ("HELLO 9 AUTH ada lovelace", "-NOPROTO unsupported protocol version\r\n"),
            ("PING", noauth),
            ("AUTH ada lovelace", "+OK\r\n"),
            ("RESET", "+RESET\r\n"),
            ("PUBLISH news x", noauth),
        ])
        .await;
        wire.send(HELLO).await;
        wire.expect("*14\r\n$6\r\nserver\r\n$18\r\nvalkey-rdma-server\r\n").await;
        while wire.line().await != "*0" {}
        wire.dialogue(&[("CLIENT GETNAME", "$2\r\nme\r\n")]).await;
    }
    subscriber
        .dialogue(&[
            ("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("INFO", "$24\r\n# Messages\r\nchannels:1\r\n\r\n"),
        ])
        .await;
    waiting
        .dialogue(&[
            ("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("RESET", "+RESET\r\n"),
        ])
        .await;
    waiting.dialogue(&[("AUTH ada lovelace", "+OK\r\n")]).await;
    waiting.dialogue(&[("PUBLISH news hi", ":1\r\n"), ("PUBLISH other hi", ":0\r\n")]).await;
    subscriber.expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n").await;
    waiting.send("NEXT news\r\n").await;
    // Until both get it: the one that subscribes, and the one that waits.
    let mut receivers = String::new();
    while receivers != ":2" {
        subscriber.send("PUBLISH news more\r\n").await;
        receivers = subscriber.line().await;
        subscriber.expect("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\nmore\r\n").await;
    }
    waiting.expect("$4\r\nmore\r\n").await;
    // They arrive together, so that the reply to the first shows that the second runs.
    waiting.send("PING\r\nNEXT news\r\n").await;
    waiting.expect("+PONG\r\n").await;
    let (_, ()) = tokio::join!(server.shutdown(), async {
        waiting.expect("-UNBLOCKED the server is shutting down\r\n").await;
        waiting.expect_end().await;
        subscriber.expect_end().await;
    });
}
