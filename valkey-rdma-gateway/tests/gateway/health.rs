//! `/health` of a gateway that no client uses: it asks the server.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster, MockServer};

use crate::scripted::{Scripted, expect};
use crate::support::{
    Running, cluster_config, config, encode, get, mock_with, text, until, until_health, until_unhealthy,
    with_health,
};

async fn in_front_of(url: &str) -> (Running, SocketAddr) {
    with_health(config(url, Share::Auto, Limits::default())).await
}

async fn answer_ping(connection: &mut TcpStream) {
    expect(connection, &encode(["PING"])).await;
    connection.write_all(b"+PONG\r\n").await.unwrap();
}

#[tokio::test]
async fn an_idle_gateway_knows_whether_its_server_is_there() {
    for is_rdma in [true, false] {
        let (server, rdma, tcp) = mock_with(Mock::new()).await;
        let (_running, addr) = in_front_of(if is_rdma { &rdma } else { &tcp }).await;
        assert!(get(addr, "/health").await.ends_with("\r\n\r\nok\n"));
        drop(server);
        until_unhealthy(addr, "cannot reach ").await;
    }
}

#[tokio::test]
async fn a_server_that_reads_its_data_is_not_healthy() {
    let mock = MockServer::start().await;
    let loading = mock.on("PING").error("LOADING wait");
    let (gateway, addr) = in_front_of(mock.tcp_url()).await;
    until_unhealthy(addr, "LOADING wait").await;
    loading.times(0);
    until_health(addr, "200").await;

    // A replica that is connected reads the data of its primary again.
    let mut client = gateway.client().await;
    assert_eq!(client.say("GET k").await, "(nil)");
    mock.on("GET").error("LOADING wait").times(1);
    let loading = mock.on("PING").error("LOADING wait");
    assert_eq!(client.say("GET k").await, "-LOADING wait");
    until_unhealthy(addr, "LOADING wait").await;
    loading.times(0);
    // Without another command.
    until_health(addr, "200").await;
    assert_eq!(client.say("GET k").await, "(nil)");
}

#[tokio::test]
async fn a_server_that_comes_back_is_found_again() {
    let server = Scripted::start().await;
    let (_running, addr) = in_front_of(&server.url).await;
    let asked = tokio::spawn(get(addr, "/health"));
    // It closes the connection in place of an answer.
    drop(server.accept_raw().await);
    let answer = asked.await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 503 ") && answer.contains("cannot reach valkey://127.0.0.1:"),
        "{answer}"
    );
    let found = tokio::spawn(until_health(addr, "200"));
    let mut connection = server.accept_raw().await;
    answer_ping(&mut connection).await;
    found.await.unwrap();
}

#[tokio::test]
async fn probes_share_one_attempt_and_its_connection() {
    let server = Scripted::start().await;
    let (_running, addr) = in_front_of(&server.url).await;
    let probes: Vec<_> = (0..10).map(|_| tokio::spawn(get(addr, "/health"))).collect();
    let mut connection = server.accept_raw().await;
    // Another attempt, if a probe comes late, uses the same connection.
    let answers = tokio::spawn(async move {
        loop {
            answer_ping(&mut connection).await;
        }
    });
    for probe in probes {
        assert!(probe.await.unwrap().ends_with("\r\n\r\nok\n"));
    }
    assert!(server.accept_soon().await.is_none(), "one connection is enough");
    answers.abort();
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_not_healthy_while_it_is_asked() {
    let server = Scripted::start().await;
    let (_running, addr) = in_front_of(&server.url).await;
    let asked = tokio::spawn(get(addr, "/health"));
    let mut connection = server.accept_raw().await;
    answer_ping(&mut connection).await;
    assert!(asked.await.unwrap().ends_with("\r\n\r\nok\n"));

    // The next attempt is not answered. It uses the same connection.
    let asked = tokio::spawn(until_health(addr, "503"));
    expect(&mut connection, &encode(["PING"])).await;
    let answer = get(addr, "/health").await;
    assert!(answer.contains("did not answer within"), "{answer}");
    asked.await.unwrap();
}

/// Over TCP, a frozen server differs from a slow one only in this: it answers no other connection either.
#[tokio::test]
async fn a_server_that_owes_a_reply_for_long_is_asked_on_another_connection() {
    let server = Scripted::start().await;
    let (running, addr) = in_front_of(&server.url).await;
    let mut client = running.client().await;
    client.command("GET k").await;
    let mut shared = server.accept().await;
    expect(&mut shared, &encode(["GET", "k"])).await;
    let asked = tokio::spawn(until_health(addr, "503"));
    let mut probe = server.accept_raw().await;
    let answer = asked.await.unwrap();
    assert!(answer.contains("did not answer within"), "{answer}");
    answer_ping(&mut probe).await;
    shared.write_all(b"+V\r\n").await.unwrap();
    client.expect_bytes(b"+V\r\n").await;
    until_health(addr, "200").await;
}

#[tokio::test]
async fn a_server_that_requires_a_login_is_there() {
    let (_server, rdma, _) = mock_with(Mock::new().requirepass("secret")).await;
    let authority = rdma.split_once("://").unwrap().1;
    for (login, is_ok) in [("", true), (":secret@", true), (":wrong@", false)] {
        let (_running, addr) = in_front_of(&format!("emulated://{login}{authority}")).await;
        let answer = get(addr, "/health").await;
        assert_eq!(answer.ends_with("\r\n\r\nok\n"), is_ok, "{login}: {answer}");
        assert!(is_ok || answer.contains("WRONGPASS"), "{answer}");
        assert!(!answer.contains("wrong@") && !answer.contains("secret"), "{answer}");
    }
}

#[tokio::test]
async fn probes_do_not_show_in_the_counters() {
    let (server, rdma, _) = mock_with(Mock::new()).await;
    let (running, addr) = in_front_of(&rdma).await;
    until_health(addr, "200").await;
    drop(server);
    until_health(addr, "503").await;
    for counter in ["connects", "connect_failures", "connections_lost", "logins_refused", "commands_private"]
    {
        let metrics = get(addr, "/metrics").await;
        assert!(
            metrics.contains(&format!("\nvalkey_rdma_gateway_{counter}_total{{server=\"{rdma}\"}} 0\n")),
            "{counter}: {metrics}"
        );
    }
    drop(running);
}

#[tokio::test]
async fn a_probe_leaves_its_place_to_clients() {
    let (_server, rdma, _) = mock_with(Mock::new()).await;
    let mut limits = Limits::default();
    limits.upstreams = 2;
    let (running, addr) = with_health(config(&rdma, Share::Auto, limits)).await;
    until_health(addr, "200").await;
    let (mut plain, mut blocked) = (running.client().await, running.client().await);
    assert_eq!(plain.say("GET k").await, "(nil)");
    assert_eq!(blocked.say("WATCH k").await, "OK");
    assert!(
        get(addr, "/health").await.ends_with("\r\n\r\nok\n"),
        "all places are taken, and the server is there"
    );
}

#[tokio::test]
async fn a_probe_leaves_its_place_at_the_server_to_clients() {
    let server = Scripted::start().await;
    let (running, addr) = in_front_of(&server.url).await;
    let asked = tokio::spawn(get(addr, "/health"));
    let mut probe = server.accept_raw().await;
    answer_ping(&mut probe).await;
    asked.await.unwrap();

    let mut client = running.client().await;
    client.command("GET a").await;
    refuse_for_want_of_room(server.accept_raw().await).await;
    let mut connection = server.accept().await;
    assert_eq!(probe.read(&mut [0]).await.unwrap(), 0, "the probe's connection is closed");
    expect(&mut connection, &encode(["GET", "a"])).await;
    connection.write_all(b"+A\r\n").await.unwrap();
    client.expect_bytes(b"+A\r\n").await;
}

/// As a server that has `maxclients` connections.
async fn refuse_for_want_of_room(mut connection: TcpStream) {
    connection.write_all(FULL).await.unwrap();
}

const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

#[tokio::test]
async fn a_server_that_has_room_again_is_found_without_a_command() {
    let server = Scripted::start().await;
    let (running, addr) = in_front_of(&server.url).await;
    let mut client = running.owner().await;
    client.command("GET a").await;
    refuse_for_want_of_room(server.accept_raw().await).await;
    client.expect_bytes(FULL).await;
    let _connection = server.accept().await;
    until_health(addr, "200").await;
}

#[tokio::test]
async fn a_probe_of_a_cluster_leaves_its_place_to_clients() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut limits = Limits::default();
    limits.upstreams = 2;
    let (running, addr) = with_health(cluster_config(mocks.urls(), limits)).await;
    until_health(addr, "200").await;
    let (mut one, mut other) = (running.client().await, running.client().await);
    one.command("BLPOP one 0").await;
    running.until("gateway_connections", |connections| connections == 2).await;
    other.command("BLPOP other 0").await;
    for (client, queue) in [(&mut one, "one"), (&mut other, "other")] {
        running.client().await.say(&format!("RPUSH {queue} value")).await;
        assert_eq!(text(&client.reply().await), format!("[{queue} value]"));
    }
}

#[tokio::test]
async fn clients_with_connections_of_their_own_show_that_the_server_is_there() {
    let server = Scripted::start().await;
    let (running, addr) = with_health(config(&server.url, Share::Never, Limits::default())).await;
    let mut client = running.client().await;
    client.command("PING").await;
    let mut connection = server.accept_raw().await;
    expect(&mut connection, &encode(["PING"])).await;
    assert!(get(addr, "/health").await.ends_with("\r\n\r\nok\n"));
    assert!(server.accept_soon().await.is_none(), "the server was not asked");
}

#[tokio::test]
async fn an_idle_gateway_in_front_of_a_cluster_knows_whether_a_node_is_there() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let mut urls = mocks.urls();
    let (scheme, _) = urls[0].split_once("://").unwrap();
    urls.insert(0, format!("{scheme}://127.0.0.1:1"));
    let (running, addr) = with_health(cluster_config(urls, Limits::default())).await;
    assert!(get(addr, "/health").await.ends_with("\r\n\r\nok\n"), "one of the nodes given is enough");
    let mut client = running.client().await;
    assert_eq!(client.say("SET k v").await, "OK");
    drop(client);
    for node in 0..3 {
        mocks.kill(node).await;
    }
    until_unhealthy(addr, "cannot reach ").await;
}

#[tokio::test]
async fn a_node_that_closes_the_connection_is_not_the_last_one_asked() {
    let (silent, node) = (Scripted::start().await, Scripted::start().await);
    let urls = vec![silent.url.clone(), node.url.clone()];
    let (_running, addr) = with_health(cluster_config(urls, Limits::default())).await;
    let asked = tokio::spawn(get(addr, "/health"));
    drop(silent.accept_raw().await);
    let mut connection = node.accept_raw().await;
    answer_ping(&mut connection).await;
    assert!(asked.await.unwrap().ends_with("\r\n\r\nok\n"));

    // The error is that of the last one.
    let last = node.url.split_once("://").unwrap().1.to_owned();
    let asked = tokio::spawn(until_health(addr, "503"));
    drop(connection);
    drop(silent.accept_raw().await);
    drop(node.accept_raw().await);
    let answer = asked.await.unwrap();
    let (_, why) = answer.split_once("cannot reach ").unwrap();
    assert!(why.split_once(": ").unwrap().1.contains(&last), "{answer}");
}

/// Also if the gateway has a connection to the other one.
#[tokio::test]
async fn a_node_that_is_not_ready_is_not_the_last_one_asked() {
    let (first, second) = (Scripted::start().await, Scripted::start().await);
    let urls = vec![first.url.clone(), second.url.clone()];
    let (_running, addr) = with_health(cluster_config(urls, Limits::default())).await;
    let asked = tokio::spawn(get(addr, "/health"));
    let mut kept = first.accept_raw().await;
    answer_ping(&mut kept).await;
    assert!(asked.await.unwrap().ends_with("\r\n\r\nok\n"));

    let asks = tokio::spawn(until(addr, "/health", "asks until it is aborted"));
    let loading = async |connection: &mut TcpStream| {
        expect(connection, &encode(["PING"])).await;
        connection.write_all(b"-LOADING wait\r\n").await.unwrap();
    };
    loading(&mut kept).await;
    loading(&mut first.accept_raw().await).await;
    let mut connection = second.accept_raw().await;
    let answers = tokio::spawn(async move {
        loop {
            answer_ping(&mut connection).await;
        }
    });
    until_health(addr, "200").await;
    asks.abort();
    answers.abort();
}

#[tokio::test]
async fn a_server_that_refuses_connections_is_not_healthy() {
    let server = Scripted::start().await;
    let (_running, addr) = in_front_of(&server.url).await;
    let asked = tokio::spawn(get(addr, "/health"));
    let mut connection = server.accept_raw().await;
    connection.write_all(FULL).await.unwrap();
    drop(connection);
    let answer = asked.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("max number of clients"), "{answer}");
}

/// A readiness probe of one service must not depend on another.
#[tokio::test]
async fn each_server_is_asked_about_by_its_address() {
    let (server, _, there) = mock_with(Mock::new()).await;
    let (gone, _, away) = mock_with(Mock::new()).await;
    let mut both = config(&there, Share::Auto, Limits::default());
    both.routes.extend(config(&away, Share::Auto, Limits::default()).routes);
    let (_gateway, addr) = with_health(both).await;
    drop(gone);
    until_health(addr, "503").await;
    let path = |url: &str| format!("/health/{}", url.split_once("://").unwrap().1);
    assert!(get(addr, &path(&there)).await.ends_with("\r\n\r\nok\n"));
    assert!(get(addr, &path(&away)).await.starts_with("HTTP/1.1 503 "));
    for other in ["/health/127.0.0.1:1", "/health/", "/healthy", "/"] {
        assert!(get(addr, other).await.starts_with("HTTP/1.1 404 "), "{other}");
    }
    drop(server);
}

/// A balancer must send new clients elsewhere.
#[tokio::test]
async fn a_gateway_that_stops_is_not_healthy() {
    let mock = Mock::new();
    let slow = mock.on("GET").delay(Duration::from_secs(3600));
    let (_server, _, url) = mock_with(mock).await;
    let (running, addr) = in_front_of(&url).await;
    let mut client = running.client().await;
    client.command("GET k").await;
    while slow.matched() < 1 {
        tokio::task::yield_now().await;
    }
    assert!(get(addr, "/health").await.ends_with("\r\n\r\nok\n"));
    // It waits for the reply to GET.
    let stopping = tokio::spawn(running.gateway.shutdown());
    let answer = until(addr, "/health", "draining").await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(get(addr, "/metrics").await.starts_with("HTTP/1.1 200 "));
    stopping.abort();
}

#[tokio::test]
async fn connections_that_send_nothing_do_not_hold_up_a_probe() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (_running, addr) = in_front_of(&url).await;
    let mut idle = Vec::new();
    for _ in 0..16 {
        idle.push(TcpStream::connect(addr).await.unwrap());
    }
    // The time limit of the probe in docs/operations.md, on a clock that goes on whenever nothing is left to do.
    tokio::time::pause();
    let answer = timeout(Duration::from_secs(3), get(addr, "/")).await.expect("within its limit");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
