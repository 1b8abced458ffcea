//! MULTI to EXEC, WATCH, and what an aborted one says.

use valkey_rdma_client::{AbortedTransaction, Error, Fate, Purpose};

use crate::target::target;

#[tokio::test]
async fn a_transaction_returns_each_reply() {
    let target = target().await;
    let client = target.client().await;
    let (n, text) = (target.key("n"), target.key("text"));
    let results = client
        .transaction()
        .command(["SET", &text, "x"])
        .command(["INCR", &text])
        .command(["INCR", &n])
        .execute()
        .await
        .expect("executed");
    assert!(results[0].as_ref().is_ok_and(|value| value.is_ok()));
    assert!(results[1].is_err(), "not a number; the others ran");
    assert_eq!(results[2].as_ref().expect("a number").as_int(), Some(1));
}

#[tokio::test]
async fn a_refused_command_aborts_the_transaction_and_is_named() {
    let target = target().await;
    let client = target.client().await;
    let n = target.key("n");
    let aborted = client.transaction().command(["INCR", &n]).command(["GET"]).execute().await;
    let error = aborted.expect_err("GET needs a key");
    assert_eq!(error.fate(), Fate::Answered);
    let Error::Aborted(AbortedTransaction::Refused { index: 1, error }) = error else { panic!("{error:?}") };
    assert!(error.message.starts_with("wrong number of arguments"), "{error}");
    assert!(client.command(["GET", &n]).await.expect("a reply").is_nil(), "nothing ran");
}

#[tokio::test]
async fn a_watched_key_that_changes_aborts_the_transaction() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("stock");
    client.command(["SET", &key, "10"]).await.expect("set");

    let mut watch = client.watch([&key]).await.expect("watching");
    let stock: i64 = watch.command(["GET", &key]).await.expect("a reply").convert().expect("a number");
    client.command(["SET", &key, "20"]).await.expect("somebody else");
    let aborted = watch.transaction().command(["SET", &key, &(stock - 1).to_string()]).execute().await;
    assert!(matches!(aborted, Err(Error::Aborted(AbortedTransaction::Watched))), "{aborted:?}");

    let mut watch = client.watch([&key]).await.expect("watching");
    let stock: i64 = watch.command(["GET", &key]).await.expect("a reply").convert().expect("a number");
    watch.transaction().command(["SET", &key, &(stock - 1).to_string()]).execute().await.expect("executed");
    assert_eq!(client.command(["GET", &key]).await.expect("a reply").as_str(), Some("19"));
}

/// Check-and-set that finds nothing to do, as often as it likes.
#[tokio::test]
async fn a_watch_that_ends_without_a_transaction_leaves_its_connection_to_the_next() {
    let target = target().await;
    let client = target.client().await;
    let key = target.key("stock");
    let idle = || client.connections().iter().filter(|status| status.purpose == Purpose::Idle).count();
    client.watch([&key]).await.expect("watching").unwatch().await.expect("unwatched");
    assert_eq!(idle(), 1);
    let watch = client.watch([&key]).await.expect("watching");
    assert_eq!(idle(), 0, "the same connection");
    client.command(["SET", &key, "1"]).await.expect("set");
    watch.unwatch().await.expect("unwatched");
    let watch = client.watch([&target.key("other")]).await.expect("watching");
    let executed = watch.transaction().command(["SET", &key, "2"]).execute().await;
    executed.expect("the change of a key watched before does not count");
    drop(client.watch([&key]).await.expect("watching"));
    assert_eq!(idle(), 0, "closed");
}

#[tokio::test]
async fn a_transaction_within_a_transaction_is_refused() {
    let target = target().await;
    let client = target.client().await;
    for inner in ["MULTI", "EXEC", "DISCARD", "WATCH", ""] {
        let error =
            client.transaction().command([inner].iter().filter(|name| !name.is_empty())).execute().await;
        assert!(matches!(error, Err(Error::Refused(_))), "{error:?}");
    }
    assert_eq!(client.command(["PING"]).await.expect("alive").as_str(), Some("PONG"));
}
