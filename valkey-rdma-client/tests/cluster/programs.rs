//! Scripts, functions and commands of modules: their own errors may have the form of the server's.

use valkey_rdma_client::cluster::ReadFrom;
use valkey_rdma_client::{Client, Command};
use valkey_rdma_mock::MockCluster;
use valkey_rdma_resp::Reply;

use crate::target::{client_of, mocks, unhurried};

const SCRIPTS: [&str; 6] = ["EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO"];
/// An address outside of the cluster.
const STRANGER: &str = "127.0.0.1:1";

fn script(name: &str, key: &str) -> Command {
    Command::from_args([name, "script", "1", key])
}

/// The code of the error that a command ends with.
async fn code(cluster: &Client, command: Command) -> String {
    let error = cluster.command(command).await.expect_err("an error reply");
    error.server().unwrap_or_else(|| panic!("{error:?}")).code.clone()
}

/// Lets every node answer COMMAND INFO with the description of a command whose first argument is a key.
fn describe(mocks: &MockCluster, name: &str) {
    let flags = Reply::Array(vec![Reply::simple("write")]);
    let (first, step) = (Reply::Integer(1), Reply::Integer(1));
    let fields = vec![Reply::bulk(name.to_owned()), Reply::Integer(-2), flags, first.clone(), first, step];
    for node in 0..mocks.len() {
        mocks.answer(node, "command|info", Some(Reply::Array(vec![Reply::Array(fields.clone())])));
    }
}

#[tokio::test]
async fn a_redirection_that_a_script_returns_is_its_answer_and_the_script_runs_once() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let (key, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    for (kind, slot, address) in [
        ("MOVED", MockCluster::slot(&key), STRANGER.to_owned()),
        ("MOVED", MockCluster::slot(&key), mocks.announced(1)),
        ("MOVED", MockCluster::slot(&key), "?:1".to_owned()),
        ("MOVED", MockCluster::slot(&other), mocks.announced(1)),
        ("ASK", MockCluster::slot(&key), STRANGER.to_owned()),
        ("ASK", MockCluster::slot(&key), mocks.announced(1)),
    ] {
        for name in SCRIPTS {
            let calls = || mocks.calls_everywhere(&name.to_ascii_lowercase());
            let before = calls();
            mocks.answer(0, name, Some(Reply::error(format!("{kind} {slot} {address}"))));
            assert_eq!(code(&cluster, script(name, &key)).await, kind, "{name}: {kind} {slot} {address}");
            let replies = cluster.pipeline().command(script(name, &key)).send().await.expect("sent");
            let error = replies[0].as_ref().expect_err("its answer");
            assert!(error.server().is_some_and(|error| error.code == kind), "{error}");
            assert_eq!(calls(), before + 2, "{name}: {kind} {slot} {address}");
        }
    }
    let counters = cluster.cluster().expect("a cluster").status().counters;
    assert_eq!((counters.moved, counters.ask), (0, 0));
}

#[tokio::test]
async fn a_script_without_keys_is_never_redirected() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let moved =
        Reply::error(format!("MOVED {} {}", MockCluster::slot(mocks.key_of(1, 0)), mocks.announced(1)));
    for node in 0..mocks.len() {
        mocks.answer(node, "eval", Some(moved.clone()));
    }
    assert_eq!(code(&cluster, Command::from_args(["EVAL", "script", "0"])).await, "MOVED");
    assert_eq!(mocks.calls_everywhere("eval"), 1);
}

#[tokio::test]
async fn a_script_follows_its_slot() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    let eval = async || assert_eq!(code(&cluster, script("EVAL", &key)).await, "ERR", "the mock has no Lua");
    let calls = || [0, 1, 2].map(|node| mocks.calls(node, "eval"));
    eval().await;
    mocks.move_slots(slot..=slot, 1);
    eval().await;
    assert_eq!(calls(), [2, 1, 0]);
    mocks.begin_migration(slot..=slot, 2);
    eval().await;
    assert_eq!(calls(), [2, 2, 1]);
    let counters = cluster.cluster().expect("a cluster").status().counters;
    assert_eq!((counters.moved, counters.ask), (1, 1));
}

/// The node answers reads as a replica, and redirects what may write.
#[tokio::test]
async fn a_function_finds_the_new_primary_although_the_old_one_is_read() {
    let mocks = mocks().await;
    let config = unhurried().read_from(ReadFrom::PreferReplica).refresh_interval(None);
    let cluster = client_of(&mocks, &config).await;
    let key = mocks.key_of(0, 0);
    cluster.command(["SET", &key, "x"]).await.expect("its primary is connected");
    mocks.fail_over(3);
    let moved = format!("MOVED {} {}", MockCluster::slot(&key), mocks.announced(3));
    mocks.answer(0, "fcall", Some(Reply::error(moved)));
    assert_eq!(code(&cluster, script("FCALL", &key)).await, "ERR", "the mock has no functions");
    assert_eq!((mocks.calls(0, "fcall"), mocks.calls(3, "fcall")), (1, 1));
}

/// Nothing says then whether the node or the script redirects.
#[tokio::test]
async fn a_script_of_a_user_who_may_not_ask_for_keys_goes_to_nodes_of_the_cluster_only() {
    let mocks = mocks().await;
    for node in 0..mocks.len() {
        mocks.answer(node, "exists", Some(Reply::error("NOPERM User app has no permissions")));
    }
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    cluster.command(["GET", &key]).await.expect("its node is known");
    mocks.move_slots(slot..=slot, 1);
    assert_eq!(code(&cluster, script("EVAL", &key)).await, "ERR", "the mock has no Lua");
    assert_eq!(mocks.calls(1, "eval"), 1);
    mocks.answer(1, "eval", Some(Reply::error(format!("MOVED {slot} {STRANGER}"))));
    assert_eq!(code(&cluster, script("EVAL", &key)).await, "MOVED");
}

/// It has its first slot since the map was read.
#[tokio::test]
async fn a_script_of_a_user_who_may_not_ask_for_keys_finds_a_node_that_has_joined() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    for slots in mocks.slots_of(1) {
        mocks.move_slots(slots, 2);
    }
    for node in 0..mocks.len() {
        mocks.answer(node, "exists", Some(Reply::error("NOPERM User app has no permissions")));
    }
    let cluster = client_of(&mocks, &unhurried().refresh_interval(None)).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    mocks.move_slots(slot..=slot, 1);
    assert_eq!(code(&cluster, script("EVAL", &key)).await, "ERR", "the mock has no Lua");
    assert_eq!([0, 1].map(|node| mocks.calls(node, "eval")), [1, 1]);
}

#[tokio::test]
async fn a_script_is_sent_again_for_texts_of_the_server_only() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    for text in ["TRYAGAIN busy", "LOADING x", "CLUSTERDOWN x", "MASTERDOWN x", "READONLY x"] {
        mocks.answer_next(0, "eval", [Reply::error(text)]);
        let before = mocks.calls(0, "eval");
        let expected = text.split(' ').next().expect("a code");
        assert_eq!(code(&cluster, script("EVAL", &key)).await, expected);
        assert_eq!(mocks.calls(0, "eval"), before + 1, "{text}");
    }
    for text in [
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "LOADING Valkey is loading the dataset in memory",
        "CLUSTERDOWN Hash slot not served",
        "READONLY You can't write against a read only replica. script: 1f, on @user_script:1.",
    ] {
        mocks.answer_next(0, "eval", [Reply::error(text)]);
        let before = mocks.calls(0, "eval");
        assert_eq!(code(&cluster, script("EVAL", &key)).await, "ERR", "the mock has no Lua");
        assert_eq!(mocks.calls(0, "eval"), before + 2, "{text}");
    }
}

#[tokio::test]
async fn a_command_of_a_module_follows_its_slot_and_not_its_own_words() {
    let mocks = mocks().await;
    describe(&mocks, "x.run");
    let cluster = client_of(&mocks, &unhurried()).await;
    let key = mocks.key_of(0, 0);
    let slot = MockCluster::slot(&key);
    let run = || Command::from_args(["X.RUN", &key]);
    let moved = |address: &str| Some(Reply::error(format!("MOVED {slot} {address}")));
    for address in [STRANGER, &mocks.announced(1)] {
        mocks.answer(0, "x.run", moved(address));
        assert_eq!(code(&cluster, run()).await, "MOVED");
    }
    assert_eq!(mocks.calls_everywhere("x.run"), 2);
    mocks.move_slots(slot..=slot, 1);
    assert_eq!(code(&cluster, run()).await, "ERR", "node 1 does not know it");
    assert_eq!(mocks.calls(1, "x.run"), 1);
}

/// No node redirects a command because of another key than its own.
#[tokio::test]
async fn a_redirection_of_another_slot_is_an_answer() {
    let mocks = mocks().await;
    let cluster = client_of(&mocks, &unhurried()).await;
    let (key, other) = (mocks.key_of(0, 0), MockCluster::slot(mocks.key_of(1, 0)));
    for kind in ["MOVED", "ASK"] {
        mocks.answer_next(0, "get", [Reply::error(format!("{kind} {other} {}", mocks.announced(1)))]);
        assert_eq!(code(&cluster, Command::from_args(["GET", &key])).await, kind);
    }
    assert_eq!(mocks.calls_everywhere("get"), 2);
}
