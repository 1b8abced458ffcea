//! A cluster looks like one server: what it says of itself, and of commands that it does not know.

use std::time::Duration;

use tokio::time::timeout;
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
    let answer = client.say("NOSUCH k").await.trim_end().to_owned();
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

/// A row of LATENCY LATEST: one spike.
fn spike(at: i64, milliseconds: i64) -> Reply {
    let numbers = [at, milliseconds, milliseconds, milliseconds, 1].map(Reply::Integer);
    Reply::Array([Reply::bulk("command")].into_iter().chain(numbers).collect())
}

/// Consoles and exporters know the replies of one server only.
#[tokio::test]
async fn what_several_nodes_say_has_the_shape_of_one_servers_reply() {
    let (mocks, gateway) = cluster().await;
    let answer = |command: &str, reply: &dyn Fn(i64) -> Reply| {
        for (number, node) in (1..).zip(0..mocks.len()) {
            mocks.answer(node, command, Some(reply(number)));
        }
    };
    answer("latency|latest", &|number| Reply::array([spike(100 - number, number)]));
    answer("latency|history", &|number| Reply::array([Reply::array([10 - number, number])]));
    answer("latency|doctor", &|_| Reply::Verbatim { format: *b"txt", text: "fine".into() });
    answer("latency|histogram", &|number| {
        let histogram = Reply::map([(Reply::Integer(1), Reply::Integer(number))]);
        let fields = [("calls", Reply::Integer(number)), ("histogram_usec", histogram)];
        Reply::map([("get", Reply::map(fields))])
    });
    answer("function|stats", &|_| {
        Reply::map([("running_script", Reply::Null), ("engines", Reply::Array(vec![]))])
    });
    answer("memory|stats", &|_| Reply::map([("keys.count", 1)]));
    answer("slowlog|get", &|number| Reply::array([Reply::array([number, 100 - number])]));
    answer("module|list", &|_| Reply::Array(Vec::new()));
    let mut client = gateway.client().await;
    for is_resp3 in [false, true] {
        if is_resp3 {
            client.hello3("").await;
        }
        let expected = [
            ("LATENCY LATEST", "[[command :99 :1 :6 :21 :6]]", None),
            ("LATENCY HISTORY command", "[[:4 :6] [:5 :5] [:6 :4] [:7 :3] [:8 :2] [:9 :1]]", None),
            ("LATENCY DOCTOR", "fine", None),
            (
                "LATENCY HISTOGRAM",
                "[get [calls :21 histogram_usec [:1 :21]]]",
                Some("{get={calls=:21 histogram_usec={:1=:21}}}"),
            ),
            (
                "FUNCTION STATS",
                "[running_script (nil) engines []]",
                Some("{running_script=(nil) engines=[]}"),
            ),
            ("MEMORY STATS", "[keys.count :1]", Some("{keys.count=:1}")),
            ("SLOWLOG GET 2", "[[:1 :99] [:2 :98]]", None),
            ("MODULE LIST", "[]", None),
            ("RANDOMKEY", "(nil)", None),
        ];
        for (line, resp2, resp3) in expected {
            let expected = resp3.filter(|_| is_resp3).unwrap_or(resp2);
            assert_eq!(client.say(line).await, expected, "{line}, RESP3: {is_resp3}");
        }
    }
    let key = mocks.key_of(1, 0);
    assert_eq!(client.say(&format!("SET {key} v")).await, "OK");
    assert_eq!(client.say("RANDOMKEY").await, key, "the only one");
    mocks.answer(4, "latency|latest", Some(Reply::error("NOPERM no")));
    assert!(client.say("LATENCY LATEST").await.starts_with("-NOPERM"));

    for node in 0..mocks.len() {
        mocks.answer(
            node,
            "latency|graph",
            Some(Reply::error("ERR No samples available for event 'command'")),
        );
    }
    assert_eq!(client.say("LATENCY GRAPH command").await, "-ERR No samples available for event 'command'");
    mocks.answer(4, "latency|graph", Some(Reply::bulk("___#")));
    assert_eq!(client.say("LATENCY GRAPH command").await, "___#");
}

/// A program that counts who has heard it asks for them on another connection.
#[tokio::test]
async fn subscribers_are_counted_at_all_nodes() {
    let (_mocks, gateway) = cluster().await;
    let mut subscribers = Vec::new();
    for number in 1..=9 {
        let mut subscriber = gateway.client().await;
        assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
        assert_eq!(
            subscriber.say(&format!("SSUBSCRIBE s{number}")).await,
            format!("[ssubscribe s{number} :1]")
        );
        assert_eq!(subscriber.say("PSUBSCRIBE p*").await, "[psubscribe p* :2]");
        subscribers.push(subscriber);
    }
    for _ in 0..3 {
        let mut client = gateway.client().await;
        assert_eq!(client.say("PUBSUB NUMSUB c none").await, "[c :9 none :0]");
        assert_eq!(client.say("PUBSUB CHANNELS").await, "[c]");
        assert_eq!(client.say("PUBSUB SHARDNUMSUB s1 s2").await, "[s1 :1 s2 :1]");
        assert_eq!(client.call("PUBSUB SHARDCHANNELS").await.as_slice().map(<[_]>::len), Some(9));
    }
}

/// Counters of another node would look as if the server had been restarted.
#[tokio::test]
async fn all_clients_are_told_of_the_same_node() {
    let (mocks, gateway) = cluster().await;
    for node in 0..mocks.len() {
        let text =
            format!("# Server\r\nrun_id:{node}\r\n\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n");
        mocks.answer(node, "info", Some(Reply::bulk(text)));
        mocks.answer(node, "config|get", Some(Reply::array(["port", &node.to_string()])));
    }
    for _ in 0..12 {
        let mut client = gateway.client().await;
        let info = client.say("INFO").await;
        assert!(info.contains("run_id:0\r\n") && info.contains("db0:keys=3,"), "{info}");
        assert_eq!(client.say("CONFIG GET port").await, "[port 0]");
    }
}

#[tokio::test]
async fn options_are_refused_as_a_server_refuses_them() {
    let (_mocks, gateway) = cluster().await;
    let mut client = gateway.client().await;
    for (line, expected) in [
        ("SCAN 0 COUNT 0", "-ERR syntax error"),
        ("SCAN 0 COUNT -1", "-ERR syntax error"),
        ("SCAN 0 MATCH x COUNT 0", "-ERR syntax error"),
        ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range"),
        ("SCAN 0 COUNT", "-ERR syntax error"),
        ("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN"),
        ("SCAN 0 NOSUCH 1", "-ERR syntax error"),
        ("READONLY", "OK"),
        ("readwrite", "OK"),
    ] {
        assert_eq!(client.say(line).await, expected, "{line}");
    }
    for line in ["CLUSTERSCAN 0", "ASKING"] {
        let reply = client.say(line).await;
        assert!(reply.starts_with("-ERR This instance has cluster support disabled"), "{line}: {reply}");
    }
}

/// As one server, which answers at once. INFO leaves such a node out too.
#[tokio::test]
async fn subscribers_are_counted_although_a_node_is_frozen() {
    let (mocks, gateway) = cluster().await;
    let mut subscriber = gateway.client().await;
    assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
    let mut client = gateway.client().await;
    assert_eq!(client.say("PUBSUB NUMSUB c").await, "[c :1]");
    let frozen = mocks.replicas_of(0)[0];
    mocks.freeze(frozen);
    let counted =
        timeout(Duration::from_secs(8), client.say("PUBSUB NUMSUB c none")).await.expect("not waited for");
    assert_eq!(counted, "[c :1 none :0]");
    assert_eq!(client.say("PUBSUB NUMPAT").await, ":0");
    mocks.thaw(frozen);
}
