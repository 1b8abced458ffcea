//! A cluster looks like one server: what it says of itself, and of commands that it does not know.

use valkey_rdma_server::Reply;

use super::cluster::cluster;
use super::support::text;

/// Clients choose by it what a server can do.
#[tokio::test]
async fn hello_says_what_the_nodes_are() {
    let (mocks, gateway) = cluster().await;
    for hello in [gateway.client().await.call("HELLO").await, gateway.client().await.hello3("").await] {
        let hello = text(&hello);
        assert!(hello.contains("valkey") && hello.contains("standalone"), "{hello}");
    }
    let fields = [("server", "redis"), ("version", "7.0.15"), ("mode", "cluster"), ("role", "replica")];
    let mut fields: Vec<_> =
        fields.map(|(name, value)| (Reply::bulk(name), Reply::bulk(value))).into_iter().collect();
    fields.push((Reply::bulk("id"), Reply::Integer(4_711)));
    for node in 0..mocks.len() {
        mocks.answer(node, "hello", Some(Reply::Map(fields.clone())));
    }
    let mut client = gateway.client().await;
    let id = client.say("CLIENT ID").await;
    let hello = text(&client.call("HELLO").await);
    assert_eq!(hello, format!("[server redis version 7.0.15 mode standalone role master id {id}]"));
    let hello = text(&client.hello3("").await);
    for field in ["server=redis", "version=7.0.15", "mode=standalone", "role=master", &format!("id={id}")] {
        assert!(hello.contains(field), "{hello}");
    }
}

#[tokio::test]
async fn a_command_that_no_node_knows_has_one_answer() {
    let (mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    let answer = client.say("NOSUCH k").await;
    assert!(answer.starts_with("-ERR unknown command"), "{answer}");
    let one_node = client.say("BGSAVE").await;
    assert_eq!(client.say("MULTI").await, "OK");
    assert_eq!(client.say("SET k v").await, "QUEUED");
    assert_eq!(client.say("NOSUCH k").await.trim_end(), answer);
    // As real nodes, which know this one.
    for node in 0..mocks.len() {
        mocks.answer(node, "command|info", Some(Reply::array(["described"])));
    }
    assert_eq!(client.say("BGSAVE").await, one_node);
    assert!(client.say("EXEC").await.starts_with("-EXECABORT"));
    assert_eq!(client.say("GET k").await, "(nil)");
}
