//! redis-rs's commands on a client of a cluster.

use redis::{AsyncCommands, ErrorKind};

use crate::target::{client_of, mocks, unhurried};

/// Programs may look at the kind.
#[tokio::test]
async fn keys_of_different_slots_are_redis_rs_own_kind_of_error() {
    let mocks = mocks().await;
    let mut con = client_of(&mocks, &unhurried()).await;
    let error = con.sunionstore::<_, _, i64>("a", &["b", "c"]).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::CrossSlot));
    assert_eq!(error.code(), Some("CROSSSLOT"));
    assert!(error.to_string().contains("hash tag"), "{error}");
}

/// As on the client of one server.
#[tokio::test]
async fn an_aborted_transaction_is_the_servers_error() {
    let mocks = mocks().await;
    let mut con = client_of(&mocks, &unhurried()).await;
    let aborted = redis::pipe().atomic().cmd("INCR").arg("n").cmd("GET").exec_async(&mut con).await;
    let error = aborted.expect_err("GET needs a key");
    assert_eq!(error.kind(), ErrorKind::Server(redis::ServerErrorKind::ExecAbort));
    assert_eq!(error.code(), Some("EXECABORT"));
    let text = error.to_string();
    assert!(
        text.contains("Transaction aborted: [(Index 1, error: ResponseError: wrong number of arg"),
        "{text}"
    );
}
