//! Input that is not a command ends its sender alone: nothing of it reaches a connection that others share, and the sender has the text
//! of a server, at once.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster};
use valkey_rdma_resp::Value;

use crate::scripted::{Scripted, expect};
use crate::support::{Client, Running, cluster_config, config, encode, gateway, mock_with, start, text};

/// The texts of Valkey 9.1.
const NO_LINE_END: &str = "-ERR Protocol error: invalid CRLF in request";
const TOO_LONG: &str = "-ERR Protocol error: invalid bulk length";
const TOO_MANY: &str = "-ERR Protocol error: invalid multibulk length";

/// Sends `bytes` in two parts, and expects an answer to what comes before, then a refusal and the end.
async fn is_refused(mut client: Client, bytes: &[u8], at: usize, before: &[&str], expected: &str) {
    client.send(&bytes[..at]).await;
    tokio::task::yield_now().await;
    // The first part may be refused already.
    let _closed = client.stream_send(&bytes[at..]).await;
    for reply in before.iter().chain([&expected]) {
        assert_eq!(
            text(&client.reply().await),
            *reply,
            "{} | {}",
            bytes[..at].escape_ascii(),
            bytes[at..].escape_ascii()
        );
    }
    client.expect_end().await;
}

/// Commands with two other bytes where a string ends, and what a client of Valkey 9.1 reads before its end.
fn without_line_end() -> Vec<(Vec<u8>, &'static [&'static str])> {
    vec![
        (b"*1\r\n$4\r\nPINGxx".into(), &[]),
        (b"*1\r\n$4\r\nPING\rx".into(), &[]),
        (b"*1\r\n$4\r\nPING\n\r".into(), &[]),
        (b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nECHOxx$1\r\na\r\n".into(), &["PONG"]),
        (b"*2\r\n$3\r\nGET\r\n$1\r\nkxx".into(), &[]),
        (b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\nxx".into(), &[]),
        (b"*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nECHO\r\n$1\r\naxx".into(), &["OK"]),
        (b"*2\r\n$4\r\nAUTH\r\n$2\r\npwxx".into(), &[]),
        (b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$2\r\npwxx".into(), &[]),
        (b"*2\r\n$6\r\nSELECT\r\n$1\r\n1xx".into(), &[]),
        (b"*4\r\n$4\r\nEVAL\r\n$8\r\nreturn 1\r\n$1\r\n0xx$1\r\na\r\n".into(), &[]),
    ]
}

/// One client's string ended the connection that all clients share.
#[tokio::test]
async fn a_string_without_its_line_end_ends_its_sender_alone_g1() {
    let (server, _, url) = mock_with(Mock::new()).await;
    let mocks = MockCluster::start(3).await.expect("free ports");
    for config in
        [config(&url, Share::Auto, Limits::default()), cluster_config(mocks.urls(), Limits::default())]
    {
        let gateway = start(&config).await;
        let mut witness = gateway.client().await;
        for (bytes, before) in without_line_end() {
            for at in 0..bytes.len() {
                is_refused(gateway.client().await, &bytes, at, before, NO_LINE_END).await;
            }
            assert_eq!(witness.say("ECHO mine").await, "mine");
        }
        assert_eq!(gateway.info("gateway_connections_lost").await, 0, "no connection to the server was lost");
    }
    drop(server);
}

/// What arrives at the server, byte by byte: the commands before, and nothing of the malformed one.
#[tokio::test]
async fn nothing_of_a_malformed_command_is_sent_on_a_shared_connection_g1() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let mut witness = gateway.client().await;
    let get = encode(["GET", "k"]);
    witness.send(&get).await;
    let mut connection = server.accept().await;
    for (bytes, before) in without_line_end() {
        if !before.is_empty() || bytes.starts_with(b"*4\r\n$4\r\nEVAL") {
            continue;
        }
        // Not over TLS: the server is asked about newcomers after a second.
        is_refused(gateway.owner().await, &bytes, bytes.len() / 2, &[], NO_LINE_END).await;
    }
    witness.send(&get).await;
    expect(&mut connection, &[&get[..], &get].concat()).await;
    assert!(server.accept_soon().await.is_none(), "nor on another one");
}

/// A long string goes to the server before all of it has arrived, on a connection of its sender's own.
#[tokio::test]
async fn a_long_string_without_its_line_end_ends_its_sender_alone_g3() {
    let (_server, rdma, tcp) = mock_with(Mock::new()).await;
    for url in [rdma, tcp] {
        let gateway = gateway(&url, Share::Auto).await;
        let mut witness = gateway.client().await;
        for len in [65_000, 65_536, 70_000, 1 << 20] {
            let mut bytes = encode(["SET", "k", &"v".repeat(len)]);
            let end = bytes.len() - 2;
            bytes[end..].copy_from_slice(b"xx");
            let expected = NO_LINE_END;
            for at in [0, 30, len / 2, end, end + 1] {
                is_refused(gateway.client().await, &bytes, at, &[], expected).await;
            }
            let whole = [&encode(["ECHO", "a"])[..], &bytes].concat();
            is_refused(gateway.client().await, &whole, len, &["a"], expected).await;
            assert_eq!(witness.say("GET k").await, "(nil)");
        }
    }
}

/// A client that says what it will send, and waits.
async fn waiting(gateway: &Running, bytes: &[u8]) -> Client {
    let mut client = gateway.client().await;
    client.send(bytes).await;
    client
}

/// A server looks at an announced length when it comes, and so does the gateway.
#[tokio::test]
async fn a_string_that_is_longer_than_any_is_refused_before_it_comes_g4() {
    let (_server, rdma, tcp) = mock_with(Mock::new()).await;
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut configs: Vec<_> = [Share::Auto, Share::Never]
        .into_iter()
        .flat_map(|share| [&rdma, &tcp].map(|url| config(url, share, Limits::default())))
        .collect();
    configs.push(cluster_config(mocks.urls(), Limits::default()));
    for config in configs {
        let gateway = start(&config).await;
        let share = config.routes[0].share;
        for len in ["2000000000", "20000000000", "9223372036854775807", "536870913"] {
            for begin in [
                "*3\r\n$3\r\nSET\r\n$1\r\nx\r\n",
                "*2\r\n$3\r\nGET\r\n",
                "*1\r\n",
                "*2\r\n$4\r\nAUTH\r\n",
                "*3\r\n$8\r\nFUNCTION\r\n$4\r\nLOAD\r\n",
                "*3\r\n$4\r\nEVAL\r\n",
                "*2\r\n$5\r\nWATCH\r\n",
                "*2\r\n$9\r\nSUBSCRIBE\r\n",
                "*2\r\n$6\r\nCLIENT\r\n",
                "*4\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\non\r\n",
            ] {
                let mut client = waiting(&gateway, format!("{begin}${len}\r\n").as_bytes()).await;
                let reply = text(&client.reply().await);
                assert_eq!(reply, TOO_LONG, "{share:?} {begin:?} {len}");
                client.expect_end().await;
            }
        }
        let mut client = waiting(&gateway, b"*99999999999\r\n").await;
        assert_eq!(text(&client.reply().await), TOO_MANY);
        client.expect_end().await;
    }
}

#[tokio::test]
async fn a_string_that_is_too_long_ends_a_transaction_and_a_pipeline_where_it_comes_g4() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mocks = MockCluster::start(3).await.expect("free ports");
    for config in
        [config(&url, Share::Auto, Limits::default()), cluster_config(mocks.urls(), Limits::default())]
    {
        let gateway = start(&config).await;
        let long = b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$2000000000\r\n";
        for before in [&["MULTI", "SET k v"][..], &["WATCH k", "GET k"], &["GET k", "GET k", "GET k"]] {
            let mut bytes: Vec<u8> = before.iter().flat_map(|line| encode(line.split(' '))).collect();
            bytes.extend_from_slice(long);
            let mut client = waiting(&gateway, &bytes).await;
            for line in before {
                let reply = client.reply().await;
                assert!(!matches!(reply, Value::Error(_)), "{line}: {reply:?}");
            }
            assert_eq!(text(&client.reply().await), TOO_LONG, "{before:?}");
            client.expect_end().await;
        }
    }
}

/// It is longer than the gateway keeps, and shorter than a server takes.
#[tokio::test]
async fn a_long_command_is_refused_before_it_comes_and_its_client_goes_on_g4() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut limits = Limits::default();
    limits.cluster_command_bytes = 1 << 20;
    let gateway = start(&cluster_config(mocks.urls(), limits)).await;
    let long = encode(["SET", "k", &"v".repeat(2 << 20)]);
    let mut client = waiting(&gateway, &long[..40]).await;
    let reply = text(&client.reply().await);
    assert!(reply.contains("longer than limits."), "{reply}");
    client.send(&long[40..]).await;
    assert_eq!(client.say("GET k").await, "(nil)");
    // The same by the number of words.
    let mut client = waiting(&gateway, b"*1000000\r\n$4\r\nSADD\r\n$1\r\ns\r\n").await;
    let reply = text(&client.reply().await);
    assert!(reply.contains("longer than limits."), "{reply}");
}

/// Valkey 8.1.1 does not answer a wrong password while an earlier reply waits in it: logins of two clients must not be on their way at
/// the same time.
#[tokio::test]
async fn logins_are_checked_one_by_one_g2() {
    let server = Scripted::start().await;
    let gateway = gateway(&server.url, Share::Auto).await;
    let (mut one, mut other) = (gateway.client().await, gateway.client().await);
    let _shared = server.accept().await;
    one.command("AUTH one right").await;
    let mut checker = server.accept_checker().await;
    expect(&mut checker, &encode(["AUTH", "one", "right"])).await;
    other.command("AUTH other wrong").await;
    // The gateway has it, and would have sent it.
    assert_eq!(gateway.client().await.say("CLIENT GETNAME").await, "(nil)");
    let mut next = [0];
    let early = timeout(SOON, checker.read_exact(&mut next)).await;
    assert!(early.is_err(), "nothing before the first is answered: {}", next.escape_ascii());
    checker.write_all(b"+OK\r\n").await.unwrap();
    assert_eq!(text(&one.reply().await), "OK");
    expect(&mut checker, &encode(["AUTH", "other", "wrong"])).await;
    checker.write_all(b"-WRONGPASS invalid\r\n").await.unwrap();
    assert_eq!(text(&other.reply().await), "-WRONGPASS invalid");
}

/// Long enough for bytes on this machine.
const SOON: Duration = Duration::from_millis(50);
