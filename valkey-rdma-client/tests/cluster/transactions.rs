//! Transactions in one slot.

use valkey_rdma_client::{AbortedTransaction, ClusterError, Error, Purpose, Value};

use crate::target::target;

#[tokio::test]
async fn a_transaction_runs_on_the_node_of_its_slot() {
    let target = target().await;
    let cluster = target.client().await;
    for tag in ["a", "b", "c", "d"] {
        let key = |name: &str| target.key(&format!("{{{tag}}}{name}"));
        let results = cluster
            .transaction()
            .command(["SET", &key("1"), "1"])
            .command(["INCRBY", &key("1"), "4"])
            .execute()
            .await
            .expect("executed");
        assert_eq!(results[1].clone().expect("a number").as_int(), Some(5));
    }
}

#[tokio::test]
async fn a_transaction_over_two_slots_is_refused() {
    let target = target().await;
    let cluster = target.client().await;
    let outcome = cluster.transaction().command(["SET", "a", "1"]).command(["SET", "b", "1"]).execute().await;
    let error = outcome.expect_err("two slots");
    assert!(matches!(error, Error::Cluster(ClusterError::CrossSlot { .. })), "{error:?}");
}

#[tokio::test]
async fn a_watched_key_that_changes_aborts_the_transaction() {
    let target = target().await;
    let cluster = target.client().await;
    let key = target.key("{w}atched");
    cluster.command(["SET", &key, "1"]).await.expect("set");
    let watch = cluster.watch([&key]).await.expect("watched");
    cluster.command(["SET", &key, "2"]).await.expect("set");
    let outcome = watch.transaction().command(["SET", &key, "3"]).execute().await;
    assert!(matches!(outcome, Err(Error::Aborted(AbortedTransaction::Watched))), "{outcome:?}");
    let watch = cluster.watch([&key]).await.expect("watched");
    watch.transaction().command(["SET", &key, "3"]).execute().await.expect("executed");
}

#[tokio::test]
async fn more_keys_of_the_slot_can_be_watched() {
    let target = target().await;
    let cluster = target.client().await;
    let (first, second) = (target.key("{w}first"), target.key("{w}second"));
    let mut watch = cluster.watch([&first]).await.expect("watched");
    watch.watch([&second]).await.expect("watched");
    cluster.command(["SET", &second, "2"]).await.expect("set");
    let outcome = watch.transaction().command(["SET", &first, "3"]).execute().await;
    assert!(matches!(outcome, Err(Error::Aborted(AbortedTransaction::Watched))), "{outcome:?}");
}

/// If the node refuses its MULTI, it blocks its connection.
#[tokio::test]
async fn a_transaction_with_a_command_that_blocks_has_a_connection_to_itself() {
    let target = target().await;
    let cluster = target.client().await;
    let list = target.key("{b}list");
    let idle = || cluster.connections().iter().filter(|status| status.purpose == Purpose::Idle).count();
    assert_eq!(idle(), 0);
    let transaction = cluster.transaction().command(["BLPOP", &list, "0"]).command(["RPUSH", &list, "x"]);
    let replies = transaction.execute().await.expect("executed");
    assert!(replies[0].as_ref().is_ok_and(Value::is_nil) && replies[1].is_ok(), "{replies:?}");
    assert_eq!(idle(), 1, "it waits for the next such call");
    cluster.command(["DEL", &list]).await.expect("deleted");
}

mod mocks_only {
    use super::*;
    use crate::target::{client_of, mocks, unhurried};

    /// The table of commands does not have them, and a server knows where their keys are.
    #[tokio::test]
    async fn commands_of_a_module_run_in_a_transaction_on_the_node_of_their_keys() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        for node in 0..3 {
            let key = mocks.key_of(node, 0);
            let transaction = cluster.transaction().command(["BLOB.SET", &key, "v"]);
            let results = transaction.command(["BLOB.GET", &key]).execute().await.expect("executed");
            assert_eq!(results[1].clone().expect("a value").as_str(), Some("v"));
        }
        let (one, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
        let transaction = cluster.transaction().command(["BLOB.SET", &one, "w"]);
        let outcome = transaction.command(["BLOB.SET", &other, "w"]).execute().await;
        assert!(matches!(outcome, Err(Error::Cluster(ClusterError::CrossSlot { .. }))), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_command_that_no_server_knows_aborts_a_transaction() {
        let mocks = mocks().await;
        let cluster = client_of(&mocks, &unhurried()).await;
        let transaction = cluster.transaction().command(["SET", "k", "v"]).command(["NOSUCH", "l"]);
        let error = transaction.execute().await.expect_err("aborted");
        assert!(matches!(error, Error::Aborted(AbortedTransaction::Refused { index: 1, .. })), "{error:?}");
        assert!(cluster.command(["GET", "k"]).await.expect("answered").is_nil());
    }
}
