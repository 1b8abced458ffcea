//! Commands without state.

use tokio::io::AsyncWriteExt;
use valkey_rdma_client::Client;
use valkey_rdma_gateway::{Activation, Config, Gateway, Listen, RouteConfig, Share};
use valkey_rdma_mock::Mock;
use valkey_rdma_resp::Value;

use crate::scripted::{Scripted, expect};
use crate::support::{encode, gateway, mock_with, text};

#[tokio::test]
async fn clients_share_one_connection_over_any_transport() {
    let (_server, emulated, tcp) = mock_with(Mock::new()).await;
    for url in [emulated, tcp] {
        let gateway = gateway(&url, Share::Auto).await;
        let mut clients = Vec::new();
        for number in 0..20 {
            let mut client =
                if number % 2 == 0 { gateway.client().await } else { gateway.tcp_client().await };
            assert_eq!(client.say(&format!("SET key:{number} value:{number}")).await, "OK");
            clients.push(client);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            assert_eq!(client.say(&format!("GET key:{number}")).await, format!("value:{number}"));
        }
        assert_eq!(gateway.info("gateway_connections").await, 1, "{url}");
    }
}

#[tokio::test]
async fn pipelines_of_any_depth_keep_their_order() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    // More than may be in flight.
    const DEPTH: i64 = 5000;
    let pipeline: Vec<u8> = (0..DEPTH).flat_map(|_| encode(["INCR", "n"])).collect();
    let sender = client.send(pipeline);
    sender.await;
    for number in 1..=DEPTH {
        assert_eq!(client.reply().await, Value::Int(number));
    }
}

#[tokio::test]
async fn both_protocols_are_spoken_at_once() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let (mut old, mut new) = (gateway.client().await, gateway.client().await);
    let hello = new.hello3("").await;
    let pairs = hello.as_map().expect("a map");
    let id = pairs.iter().find(|(key, _)| key.as_bytes() == Some(b"id")).map(|(_, id)| id.clone());
    assert_eq!(id, Some(new.call("CLIENT ID").await), "the client's own number");
    old.call("HSET h f v").await;
    assert!(matches!(new.call("HGETALL h").await, Value::Map(_)));
    assert!(matches!(old.call("HGETALL h").await, Value::Array(_)));
    assert_eq!(text(&new.call("HELLO 4").await), "-NOPROTO unsupported protocol version");
}

#[tokio::test]
async fn inline_commands_and_empty_ones_are_understood() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    client
        .send("SET k \"a b\"\r\n\r\n*0\r\nGET k\nCLIENT GETNAME\r\nMULTI\r\nGET k\r\nEXEC\r\nPING\r\n")
        .await;
    client.expect_bytes(b"+OK\r\n$3\r\na b\r\n$-1\r\n+OK\r\n+QUEUED\r\n*1\r\n$3\r\na b\r\n+PONG\r\n").await;
    client.send("PING \"a\r\n").await;
    client.expect_bytes(b"-ERR Protocol error: unbalanced quotes in request\r\n").await;
    client.expect_end().await;
}

#[tokio::test]
async fn without_sharing_bytes_are_passed_on_unseen() {
    let (_server, emulated, tcp) = mock_with(Mock::new()).await;
    for url in [emulated, tcp] {
        let gateway = gateway(&url, Share::Never).await;
        let (mut one, mut other) = (gateway.client().await, gateway.tcp_client().await);
        assert_eq!(one.say("MULTI").await, "OK");
        assert_eq!(other.say("SET k v").await, "OK");
        assert_eq!(one.say("GET k").await, "QUEUED");
        assert_eq!(one.say("EXEC").await, "[v]");
        // Not a command: the server's own answer.
        one.send("*1\r\n:1\r\n").await;
        one.expect_bytes(b"-ERR Protocol error: expected '$', got ':'\r\n").await;
        one.expect_end().await;
        assert_eq!(other.say("PING").await, "PONG");
    }
}

#[tokio::test]
async fn a_client_that_closes_its_side_gets_its_last_replies() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    for share in [Share::Auto, Share::Never] {
        let gateway = gateway(&url, share).await;
        let mut client = gateway.client().await;
        client.send("SET k v\r\nGET k\r\n").await;
        client.stream.shutdown().await.expect("open");
        client.expect_bytes(b"+OK\r\n$1\r\nv\r\n").await;
        client.expect_end().await;
    }
}

#[tokio::test]
async fn rdma_clients_reach_a_server_without_rdma() {
    let (_server, _, server) = mock_with(Mock::new()).await;
    for (share, buffers) in [(Share::Auto, 1 << 20), (Share::Never, 65_536)] {
        let listen = vec!["emulated:127.0.0.1:0".parse().unwrap()];
        let mut config = Config::new(RouteConfig { share, ..RouteConfig::new(listen, server.clone()) });
        config.limits.client_buffer_bytes = buffers;
        let gateway = Gateway::start(&config, &Activation::default()).await.unwrap();
        let [Listen::Emulated(addr)] = gateway.listening()[..] else { panic!("one listener") };
        let client = Client::connect(format!("emulated://{addr}")).await.unwrap();
        assert_eq!(client.info().tx_window.map(|bytes| bytes as usize), Some(buffers));
        client.command(["SET", "k", "v"]).await.unwrap();
        assert_eq!(client.command(["GET", "k"]).await.unwrap().as_str(), Some("v"));
        let large = "x".repeat(3 << 20);
        client.command(["SET", "large", &large]).await.unwrap();
        assert_eq!(client.command(["GET", "large"]).await.unwrap().as_str(), Some(&*large));
        let many = (0..100).map(|number| client.command(["ECHO".to_owned(), number.to_string()]));
        let many: Vec<_> = many.collect();
        for (number, reply) in many.into_iter().enumerate() {
            assert_eq!(reply.await.unwrap().as_str(), Some(&*number.to_string()));
        }
        client.close().await;
    }
}

#[path = "../../examples/redis_rs.rs"]
#[allow(dead_code, reason = "its main is not used here")]
mod redis_rs;

#[tokio::test]
async fn redis_rs_works_unmodified() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    redis_rs::exchange(gateway.unix.to_str().unwrap()).await.unwrap();
}

#[tokio::test]
async fn small_replies_do_not_wait_behind_a_large_one_that_arrives() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut large, mut small) = (gateway.client().await, gateway.client().await);
    // Both use the shared connection.
    small.command("GET small").await;
    let mut connection = server.accept().await;
    expect(&mut connection, &encode(["GET", "small"])).await;
    connection.write_all(b"+S\r\n").await.unwrap();
    small.expect_bytes(b"+S\r\n").await;

    large.command("GET large").await;
    expect(&mut connection, &encode(["GET", "large"])).await;
    let header = format!("${}\r\n", 4 << 20);
    let part = [header.as_bytes(), &vec![b'x'; 2 << 20]].concat();
    connection.write_all(&part).await.unwrap();
    // The gateway has passed all of this on.
    large.expect_bytes(&part).await;
    small.command("GET small").await;
    let mut other = server.accept().await;
    expect(&mut other, &encode(["GET", "small"])).await;
    other.write_all(b"+S\r\n").await.unwrap();
    small.expect_bytes(b"+S\r\n").await;
    let rest = [&vec![b'x'; 2 << 20], &b"\r\n"[..]].concat();
    connection.write_all(&rest).await.unwrap();
    large.expect_bytes(&rest).await;
}
