//! A mock in a test: replies, delays and lost connections by command, what was received, preloaded values.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::time::Duration;

use support::{Wire, until};
use valkey_rdma_mock::{Command, Mock, MockServer, Reply};
use valkey_rdma_server::{Listening, Transport};

/// A client of each URL.
async fn wires(mock: &MockServer) -> [Wire; 2] {
    let connect = async |url: &str, transport| {
        let (scheme, addr) = url.split_once("://").unwrap();
        let addr = addr.parse().unwrap();
        Wire::connect(&Listening { transport, tls: scheme.ends_with('s'), addr }).await
    };
    let emulated = Transport::Rdma(valkey_rdma_mock::DeviceKind::Emulated);
    [connect(mock.url(), emulated).await, connect(mock.tcp_url(), Transport::Tcp).await]
}

#[tokio::test]
async fn rules_decide_by_command_and_arguments_in_the_order_they_were_made() {
    let mock = MockServer::start().await;
    mock.set("k", "real");
    for wire in &mut wires(&mock).await {
        let loading = mock.on("get").with("k").error("LOADING wait").times(2);
        let other = mock.on("GET").with("other").reply(vec!["a", "b"]);
        let last = mock.on("GET").reply(7).times(1);
        wire.dialogue(&[
            ("GET k", "-LOADING wait\r\n"),
            ("GET other", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("get k", "-LOADING wait\r\n"),
            ("GET k", ":7\r\n"),
            ("GET k", "$4\r\nreal\r\n"),
        ])
        .await;
        assert_eq!((loading.matched(), other.matched(), last.matched()), (2, 1, 1));
        let counted = mock.on("EXISTS");
        wire.dialogue(&[("EXISTS k", ":1\r\n")]).await;
        assert_eq!(counted.matched(), 1, "a rule without an answer counts, and the command runs");
        mock.reset();
        wire.dialogue(&[("GET other", "$-1\r\n"), ("GET k", "$-1\r\n")]).await;
        mock.set("k", "real");
    }
}

#[tokio::test]
async fn a_rule_may_name_a_subcommand() {
    let mock = MockServer::start().await;
    for (wire, name) in wires(&mock).await.iter_mut().zip(["CONFIG GET", "config|get"]) {
        let refused = mock.on(name).with("maxmemory").error("NOPERM not now");
        wire.dialogue(&[
            ("config get maxmemory", "-NOPERM not now\r\n"),
            ("CONFIG GET", "-ERR wrong number of arguments for 'config|get' command\r\n"),
            ("CONFIG RESETSTAT", "+OK\r\n"),
        ])
        .await;
        assert_eq!(refused.matched(), 1);
        mock.reset();
    }
}

#[tokio::test]
async fn a_dropped_connection_ends_without_a_reply_and_others_stay() {
    let mock = MockServer::start().await;
    for (one, mut other) in wires(&mock).await.into_iter().zip(wires(&mock).await) {
        let mut one = one;
        mock.on("INCR").drop_connection().times(1);
        one.send("INCR n\r\nINCR n\r\n").await;
        one.expect_end().await;
        other.dialogue(&[("EXISTS n", ":0\r\n"), ("INCR n", ":1\r\n"), ("DEL n", ":1\r\n")]).await;
    }
}

#[tokio::test]
async fn a_killed_server_refuses_until_it_is_restarted_and_keeps_its_values() {
    let mut mock = MockServer::start().await;
    let urls = (mock.url().to_owned(), mock.tcp_url().to_owned());
    for _ in 0..3 {
        let [mut one, mut two] = wires(&mock).await;
        one.dialogue(&[("SET k v", "+OK\r\n")]).await;
        two.dialogue(&[("GET k", "$1\r\nv\r\n")]).await;
        mock.kill().await;
        mock.kill().await;
        one.expect_cut().await;
        two.expect_cut().await;
        for url in [mock.url(), mock.tcp_url()] {
            let addr = url.split_once("://").unwrap().1;
            let refused = tokio::net::TcpStream::connect(addr).await.unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        }
        mock.restart().await.unwrap();
        mock.restart().await.unwrap();
        assert_eq!((mock.url(), mock.tcp_url()), (&*urls.0, &*urls.1));
        for wire in &mut wires(&mock).await {
            wire.dialogue(&[("GET k", "$1\r\nv\r\n")]).await;
        }
    }
}

#[tokio::test]
async fn a_delay_comes_before_the_answer_whichever_it_is() {
    let mock = MockServer::start().await;
    let [mut slow, mut other] = wires(&mock).await;
    let hour = Duration::from_secs(3600);
    let delayed = mock.on("GET").with("slow").delay(hour);
    slow.send("GET slow\r\n").await;
    until("the delay has begun", async || delayed.matched() == 1).await;
    other.dialogue(&[("GET k", "$-1\r\n")]).await;
    mock.on("PING").reply("late").delay(Duration::from_millis(1));
    other.dialogue(&[("PING", "$4\r\nlate\r\n")]).await;
}

#[tokio::test]
async fn what_arrives_is_recorded_with_its_connection() {
    let mock = MockServer::start().await;
    let [mut one, mut two] = wires(&mock).await;
    one.dialogue(&[("SET k v", "+OK\r\n")]).await;
    two.dialogue(&[
        ("GET k", "$1\r\nv\r\n"),
        ("nonsense", "-ERR unknown command 'nonsense', with args beginning with: \r\n"),
    ])
    .await;
    mock.set("k", "not recorded");
    let received = mock.received();
    let commands: Vec<_> = received.iter().map(|received| received.command.clone()).collect();
    let none = [""; 0];
    assert_eq!(
        commands,
        [Command::new("SET", ["k", "v"]), Command::new("GET", ["k"]), Command::new("nonsense", none)]
    );
    assert_ne!(received[0].connection, received[1].connection);
    assert!(received[0].at <= received[2].at);
    mock.reset();
    assert!(mock.received().is_empty());
    assert!(Mock::new().received().is_empty(), "a mock without a record costs nothing");
}

#[tokio::test]
async fn values_are_prepared_and_inspected_without_a_client() {
    let mock = MockServer::start_with(Mock::new().requirepass("secret")).await.unwrap();
    mock.set("k", "v");
    assert_eq!(mock.execute(&Command::new("RPUSH", ["list", "a", "b"])), Reply::Integer(2));
    let nothing = mock.execute(&Command::new("BLPOP", ["none", "0"]));
    assert!(matches!(nothing, Reply::Null | Reply::NullArray), "{nothing:?}");
    for wire in &mut wires(&mock).await {
        wire.dialogue(&[
            ("GET k", "-NOAUTH Authentication required.\r\n"),
            ("AUTH secret", "+OK\r\n"),
            ("GET k", "$1\r\nv\r\n"),
            ("LLEN list", ":2\r\n"),
            ("APPEND k !", ":2\r\n"),
        ])
        .await;
        assert_eq!(mock.get("k").as_deref(), Some(&b"v!"[..]));
        assert_eq!((mock.get("list"), mock.get("none")), (None, None));
        mock.set("k", "v");
    }
}

/// A client that waits for the list is woken by what the test puts there.
#[tokio::test]
async fn what_a_test_prepares_wakes_waiting_clients() {
    let mock = MockServer::start().await;
    let [mut waiting, _] = wires(&mock).await;
    waiting.send("BLPOP jobs 0\r\n").await;
    let listed = Command::new("CLIENT", ["LIST"]);
    until("the client waits", async || {
        matches!(mock.execute(&listed), Reply::Bulk(text) | Reply::Verbatim { text, .. } if text.windows(9).any(|at| at == b"cmd=blpop"))
    })
    .await;
    mock.execute(&Command::new("RPUSH", ["jobs", "wash"]));
    waiting.expect("*2\r\n$4\r\njobs\r\n$4\r\nwash\r\n").await;
}

#[tokio::test]
async fn with_a_seed_random_choices_repeat() {
    let choices = || {
        let mock = Mock::new().seed(7);
        for member in 0..100 {
            mock.execute(&Command::new("SADD", ["set".to_owned(), format!("member:{member}")]));
            mock.set(format!("key:{member}"), "x");
        }
        let choose = |name: &str, args: &[&str]| {
            mock.execute(&Command::new(name.to_owned(), args.iter().map(|arg| arg.to_string())))
        };
        [
            choose("SPOP", &["set", "5"]),
            choose("SRANDMEMBER", &["set", "5"]),
            choose("SRANDMEMBER", &["set", "-5"]),
            choose("RANDOMKEY", &[]),
        ]
    };
    assert_eq!(choices(), choices());
}

#[tokio::test]
async fn the_record_of_large_values_is_limited() {
    let mock = MockServer::start().await;
    let [mut wire, _] = wires(&mock).await;
    let mut set = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1048576\r\n".to_vec();
    set.resize(set.len() + (1 << 20), b'v');
    set.extend_from_slice(b"\r\n");
    for _ in 0..70 {
        wire.send(&set).await;
        wire.expect("+OK\r\n").await;
    }
    let kept: usize = mock.received().iter().map(|received| received.command.args_len()).sum();
    assert!(((63 << 20)..=(64 << 20)).contains(&kept), "{kept} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_runs_after_the_server_was_killed() {
    let mut mock = MockServer::start().await;
    for _ in 0..20 {
        let before = mock.get("n");
        let mut wires = wires(&mock).await;
        for wire in &mut wires {
            wire.send(b"*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n".repeat(2000)).await;
        }
        until("commands run", async || mock.get("n") != before).await;
        mock.kill().await;
        let counted = mock.get("n");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(mock.get("n"), counted);
        mock.restart().await.unwrap();
    }
}
