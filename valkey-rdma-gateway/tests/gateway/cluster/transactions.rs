//! Transactions of local clients, which the gateway queues as a server would.

use super::cluster;

const ABORTED: &str = "-EXECABORT Transaction discarded because of previous errors.";

/// Replies of Valkey 9.1.2.
#[tokio::test]
async fn what_a_server_refuses_inside_a_transaction_aborts_it() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for (line, refusal) in [
        ("MULTI", "-ERR Command 'multi' not allowed inside a transaction"),
        ("WATCH a", "-ERR Command 'watch' not allowed inside a transaction"),
        ("WATCH", "-ERR wrong number of arguments for 'watch' command"),
        ("SUBSCRIBE", "-ERR wrong number of arguments for 'subscribe' command"),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command"),
        ("DISCARD x", "-ERR wrong number of arguments for 'discard' command"),
        ("unwatch x", "-ERR wrong number of arguments for 'unwatch' command"),
        ("RESET x", "-ERR wrong number of arguments for 'reset' command"),
    ] {
        assert_eq!(client.say("MULTI").await, "OK");
        assert_eq!(client.say(line).await, refusal);
        assert_eq!(client.say("SET a 10").await, "QUEUED", "{line}");
        assert_eq!(client.say("EXEC").await, ABORTED, "{line}");
        assert_eq!(client.say("GET a").await, "(nil)", "{line}");
    }
    for (line, expected) in [
        ("MULTI", "OK"),
        ("SET a 10", "QUEUED"),
        (
            "EXEC x",
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command",
        ),
        ("GET a", "(nil)"),
        ("MULTI x", "-ERR wrong number of arguments for 'multi' command"),
        ("GET a", "(nil)"),
        ("EXEC", "-ERR EXEC without MULTI"),
    ] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn watched_keys_stay_watched_after_an_unwatch_that_is_refused() {
    let (_mocks, gateway) = cluster().await;
    let (mut client, mut other) = (gateway.client().await, gateway.client().await);
    assert_eq!(client.say("WATCH a").await, "OK");
    assert!(client.say("UNWATCH x").await.starts_with("-ERR wrong number of arguments"));
    assert_eq!(other.say("SET a 1").await, "OK");
    for (line, expected) in [("MULTI", "OK"), ("SET a 2", "QUEUED"), ("EXEC", "(nil)"), ("GET a", "1")] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
}

/// As a server does, in and outside of a transaction.
#[tokio::test]
async fn exec_with_arguments_ends_what_is_watched() {
    let (_mocks, gateway) = cluster().await;
    let (mut client, mut other) = (gateway.client().await, gateway.client().await);
    for begin in ["WATCH a", "MULTI"] {
        assert_eq!(client.say("WATCH a").await, "OK");
        assert_eq!(client.say(begin).await, "OK");
        let refused = client.say("EXEC x").await;
        assert_eq!(
            refused,
            "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
        );
        assert_eq!(other.say("SET a 1").await, "OK");
        for (line, expected) in [("MULTI", "OK"), ("SET a 2", "QUEUED"), ("EXEC", "[OK]")] {
            assert_eq!(client.say(line).await, expected, "{begin}, {line}");
        }
    }
}

#[tokio::test]
async fn commands_that_change_nothing_are_answered_in_their_places() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for (line, expected) in [
        ("MULTI", "OK"),
        ("UNWATCH", "QUEUED"),
        ("SET a 1", "QUEUED"),
        ("SELECT 0", "QUEUED"),
        ("READONLY", "QUEUED"),
        ("INCR a", "QUEUED"),
        ("READWRITE", "QUEUED"),
        ("EXEC", "[OK OK OK OK :2 OK]"),
        ("MULTI", "OK"),
        ("UNWATCH", "QUEUED"),
        ("EXEC", "[OK]"),
        ("WATCH a", "OK"),
        ("MULTI", "OK"),
        ("UNWATCH", "QUEUED"),
        ("GET a", "QUEUED"),
        ("EXEC", "[OK 2]"),
    ] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
}

#[tokio::test]
async fn commands_of_a_module_run_in_a_transaction_on_the_node_of_their_keys() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let keys: Vec<_> = (0..3).map(|node| mocks.key_of(node, 0)).collect();
    for key in &keys {
        let (set, get) = (format!("BLOB.SET {key} v"), format!("BLOB.GET {key}"));
        let lines = ["MULTI", &set, &get, "EXEC"];
        for (line, expected) in lines.into_iter().zip(["OK", "QUEUED", "QUEUED", "[OK v]"]) {
            assert_eq!(client.say(line).await, expected, "{line}");
        }
    }
    assert_eq!(client.say("MULTI").await, "OK");
    assert_eq!(client.say(&format!("BLOB.SET {} w", keys[0])).await, "QUEUED");
    assert!(client.say(&format!("BLOB.SET {} w", keys[1])).await.starts_with("-CROSSSLOT"));
    assert_eq!(client.say("EXEC").await, ABORTED);
    assert_eq!(client.say(&format!("GET {}", keys[0])).await, "v");
}

#[tokio::test]
async fn what_no_single_node_can_run_in_a_transaction_is_refused_with_the_reason() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let refuses = "-ERR the gateway of a cluster refuses";
    for (line, refusal) in [
        ("SCAN 0", format!("{refuses} SCAN in a transaction: it goes through all nodes")),
        ("DBSIZE", format!("{refuses} DBSIZE in a transaction: it concerns several nodes")),
        ("SELECT 1", format!("{refuses} SELECT in a transaction: it is about a connection")),
        ("CLUSTERSCAN 0", "-ERR This instance has cluster support disabled".to_owned()),
    ] {
        assert_eq!(client.say("MULTI").await, "OK");
        let reply = client.say(line).await;
        assert!(reply.starts_with(&refusal), "{line}: {reply}");
        assert_eq!(client.say("EXEC").await, ABORTED, "{line}");
    }
}
