//! Clients that send all of a pipeline before they read its first reply, as most client libraries do: they have all replies, or are closed.

use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster};

use crate::support::{Client, PATIENCE, Running, cluster_config, config, encode, mock_with, start, text};

/// Replies of more than this may not wait.
const UNREAD: usize = 2 << 20;
/// Of each value.
const LONG: usize = 10_000;

fn limits() -> Limits {
    let mut limits = Limits::default();
    (limits.unread_bytes, limits.commands_in_flight) = (UNREAD, 64);
    limits
}

/// Sends a number of commands like `unit`, and then reads as many replies, each of which ends with `expected`. Neither the commands nor
/// the replies fit into the buffers of the sockets.
async fn sends_all_first(client: &mut Client, unit: &[u8], replies: usize, expected: &str) {
    let count = 20_000_000 / unit.len().max(LONG);
    client.send(unit.repeat(count)).await;
    for number in 0..count * replies {
        let reply = text(&client.reply().await);
        let is_last = (number + 1) % replies == 0;
        assert!(!is_last || reply.ends_with(expected), "{number}: {}", &reply[..reply.len().min(100)]);
    }
    assert_eq!(client.say("GET none").await, "(nil)");
}

/// One of each kind of pipeline.
async fn all_kinds(gateway: &Running) {
    let value = "v".repeat(LONG);
    let [set, swap, get] =
        [&["SET", "k", &value][..], &["SET", "k", &value, "GET"], &["GET", "k"]].map(encode);
    let echo = encode(["ECHO", &value]);
    let mut client = gateway.client().await;
    client.send(&set).await;
    client.reply().await;
    for (unit, replies) in [(swap.clone(), 1), (echo, 1), ([swap, get].concat(), 2)] {
        sends_all_first(&mut client, &unit, replies, &value).await;
    }
}

#[tokio::test]
async fn a_pipeline_that_is_sent_before_it_is_read_is_answered_g5() {
    let (_server, rdma, tcp) = mock_with(Mock::new()).await;
    for url in [&rdma, &tcp] {
        for share in [Share::Auto, Share::Never] {
            all_kinds(&start(&config(url, share, limits())).await).await;
        }
    }
}

#[tokio::test]
async fn a_pipeline_that_is_sent_before_it_is_read_is_answered_by_a_cluster_g5() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    all_kinds(&start(&cluster_config(mocks.urls(), limits())).await).await;
}

/// On a private connection, the server keeps the replies.
#[tokio::test]
async fn a_client_with_state_may_send_all_first_too_g5() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = start(&config(&url, Share::Auto, limits())).await;
    let value = "v".repeat(LONG);
    let mut client = gateway.client().await;
    assert_eq!(client.say("WATCH other").await, "OK");
    sends_all_first(&mut client, &encode(["SET", "k", &value, "GET"]), 1, "").await;
    let unit = [encode(["MULTI"]), encode(["ECHO", &value]), encode(["EXEC"])].concat();
    let mut client = gateway.client().await;
    sends_all_first(&mut client, &unit, 3, &format!("{value}]")).await;
    // Each of them is longer than a shared connection takes.
    let value = "v".repeat(100_000);
    let mut client = gateway.client().await;
    sends_all_first(&mut client, &encode(["ECHO", &value]), 1, &value).await;
    let mut client = gateway.client().await;
    client.hello3("").await;
    assert_eq!(client.say("SUBSCRIBE c").await, "[subscribe c :1]");
    sends_all_first(&mut client, &encode(["ECHO", &value]), 1, &value).await;
}

/// The gateway keeps these replies, and they are not counted with those of all clients: there may be less of them.
#[tokio::test]
async fn a_transaction_of_a_cluster_may_be_sent_before_it_is_read_g5() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut limits = limits();
    limits.unread_bytes = 64 << 20;
    let gateway = start(&cluster_config(mocks.urls(), limits)).await;
    let value = "v".repeat(LONG);
    let unit = [encode(["MULTI"]), encode(["SET", "k", &value, "GET"]), encode(["EXEC"])].concat();
    let mut client = gateway.client().await;
    sends_all_first(&mut client, &unit, 3, "]").await;
    let mut client = gateway.client().await;
    client.hello3("").await;
    assert_eq!(client.say("SUBSCRIBE c").await, "[subscribe c :1]");
    sends_all_first(&mut client, &encode(["ECHO", &value]), 1, &value).await;
}

/// It does not wait for ever, and the gateway keeps its replies for a limited time.
#[tokio::test]
async fn a_client_that_never_reads_is_closed_in_front_of_a_cluster_g5() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut limits = limits();
    limits.slow_reader_ms = 100;
    let gateway = start(&cluster_config(mocks.urls(), limits)).await;
    let value = "v".repeat(LONG);
    let swaps = encode(["SET", "k", &value, "GET"]).repeat(200);
    let transactions = [&encode(["MULTI"])[..], &swaps, &encode(["EXEC"])].concat().repeat(5);
    for (number, bytes) in [(1, swaps.repeat(3)), (2, transactions)] {
        let mut client = gateway.owner().await;
        assert_eq!(client.say(&format!("SET k {value}")).await, "OK");
        let _closed = client.stream_send(&bytes).await;
        gateway.until("gateway_clients_slow", |count| count == number).await;
        let mut rest = Vec::new();
        // It ends, with an error or not.
        let _ = timeout(PATIENCE, client.stream.read_to_end(&mut rest)).await.expect("in time");
    }
    assert_eq!(gateway.client().await.say("GET none").await, "(nil)");
}

/// The server would keep the replies, but the gateway has to know which ones are missing.
#[tokio::test]
async fn a_client_with_state_that_never_reads_is_closed_g5() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut limits = limits();
    limits.slow_reader_ms = 100;
    let gateway = start(&config(&url, Share::Auto, limits)).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("WATCH other").await, "OK");
    client.send(encode(["ECHO", &"v".repeat(LONG)]).repeat(2000)).await;
    // More than may be sent ahead. Nothing comes from either side when the last of them has gone to the server.
    let _closed = client.stream_send(&encode(["PING"]).repeat(1_100_000)).await;
    gateway.until("gateway_clients_slow", |count| count == 1).await;
    assert_eq!(gateway.client().await.say("GET none").await, "(nil)");
}

#[tokio::test]
async fn a_client_with_state_that_reads_no_answers_of_the_gateway_is_closed() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, limits());
    config.limits.slow_reader_ms = 1;
    let gateway = start(&config).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say(&format!("CLIENT SETNAME {}", "n".repeat(LONG))).await, "OK");
    assert_eq!(client.say("WATCH k").await, "OK");
    // Answers of some 20 MB. The client may be closed before it has sent all of that.
    let _closed = client.stream_send(&encode(["CLIENT", "LIST"]).repeat(2000)).await;
    gateway.until("gateway_clients_slow", |count| count == 1).await;
}

/// Neither counts with the replies of all clients, and a client that goes on sending is not closed for that.
#[tokio::test]
async fn a_client_that_reads_no_answers_of_the_gateway_may_not_send_on_for_ever() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, limits());
    config.limits.slow_reader_ms = 100;
    let gateway = start(&config).await;
    for (number, before) in [(1, "GET k"), (2, "WATCH k")] {
        let mut client = gateway.owner().await;
        assert_eq!(client.say(&format!("CLIENT SETNAME {}", "n".repeat(LONG))).await, "OK");
        client.say(before).await;
        // Answers of 200 MB. The buffers of the sockets have no room for that, nor for the commands.
        let sent = client.stream_send(&encode(["CLIENT", "GETNAME"]).repeat(20_000)).await;
        assert!(sent.is_none(), "after {before}, the gateway has read all of it");
        gateway.until("gateway_clients_slow", |count| count == number).await;
    }
}

#[tokio::test]
async fn answers_of_the_gateway_up_to_the_limit_may_be_read_after_all_is_sent() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = start(&config(&url, Share::Auto, limits())).await;
    let name = "n".repeat(LONG);
    let (set, get) = (encode(["CLIENT", "SETNAME", &name]), encode(["CLIENT", "GETNAME"]));
    for before in ["GET k", "WATCH k"] {
        let mut client = gateway.client().await;
        client.say(before).await;
        let count = UNREAD / LONG - 10;
        client.send([&set[..], &get].concat().repeat(count)).await;
        for _ in 0..count {
            assert_eq!(text(&client.reply().await), "OK");
            assert_eq!(text(&client.reply().await), name);
        }
    }
}
