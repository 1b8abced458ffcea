//! Commands that end others do not wait behind them (G-6), and replies of any form end no connection that others use (G-3).

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::{Mock, MockCluster, Reply};

use crate::scripted::{Scripted, expect};
use crate::support::{PATIENCE, cluster_config, encode, gateway, mock_with, start, text};

#[tokio::test]
async fn what_ends_others_does_not_wait_behind_them_g6() {
    let mock = Mock::new();
    let busy = [mock.on("EVAL").delay(HOUR), mock.on("KEYS").delay(HOUR)];
    for name in ["SCRIPT", "FUNCTION"] {
        mock.on(name).with("KILL").reply(Reply::OK);
    }
    let (_server, rdma, tcp) = mock_with(mock).await;
    for (number, url) in [rdma, tcp].iter().enumerate() {
        let gateway = gateway(url, Share::Auto).await;
        let mut waiting = Vec::new();
        for line in ["EVAL loop 0", "KEYS *"] {
            let mut client = gateway.client().await;
            client.command(line).await;
            waiting.push(client);
        }
        let all_wait = async {
            while busy.iter().any(|rule| rule.matched() <= number as u64) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, all_wait).await.expect("they run");
        for line in ["SCRIPT KILL", "FUNCTION KILL"] {
            assert_eq!(gateway.client().await.say(line).await, "OK", "{line}");
        }
    }
}

/// A script may nest its reply as deep as it likes, and one of a module may have RESP2's nulls in RESP3.
#[tokio::test]
async fn replies_of_any_form_reach_their_client_g3() {
    let deep = [&b"*1\r\n".repeat(7000)[..], b":1\r\n"].concat();
    for reply in
        [&deep[..], b"$-1\r\n", b"*-1\r\n", b"*2\r\n$-1\r\n*-1\r\n", b"_\r\n", b"*3\r\n_\r\n#t\r\n,1.5\r\n"]
    {
        let server = Scripted::start().await;
        let gateway = gateway(&server.url, Share::Auto).await;
        let (mut one, mut other) = (gateway.client().await, gateway.client().await);
        one.command("GET a").await;
        let mut connection = server.accept().await;
        expect(&mut connection, &encode(["GET", "a"])).await;
        other.command("INCR b").await;
        expect(&mut connection, &encode(["INCR", "b"])).await;
        for part in reply.chunks(1000) {
            connection.write_all(part).await.unwrap();
        }
        connection.write_all(b":7\r\n").await.unwrap();
        one.expect_bytes(reply).await;
        other.expect_bytes(b":7\r\n").await;
    }
}

/// In front of a cluster, replies are decoded.
#[tokio::test]
async fn a_deep_reply_of_a_cluster_ends_no_connection_g3() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = start(&cluster_config(mocks.urls(), Default::default())).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    let key = mocks.key_of(0, 0);
    for depth in [100, 129, 1000] {
        let deep = (0..depth).fold(Reply::from(1), |inner, _| Reply::Array(vec![inner]));
        mocks.answer(0, "GET", Some(deep));
        one.command(&format!("GET {key}")).await;
        other.command(&format!("STRLEN {key}")).await;
        assert_eq!(text(&other.reply().await), ":0");
        let reply = text(&one.reply().await);
        let innermost = if depth == 100 { ":1" } else { "-ERR the reply is nested too deeply" };
        assert_eq!(reply.trim_start_matches('[').trim_end_matches(']'), innermost, "{depth}");
    }
    assert_eq!(gateway.info("gateway_connections_lost").await, 0);
}

/// Longer than the test.
const HOUR: Duration = Duration::from_secs(3600);
