//! What is counted, and what is not.

use std::time::{SystemTime, UNIX_EPOCH};

use valkey_rdma_gateway::{Config, Limits, Share};
use valkey_rdma_mock::{Mock, MockCluster};

use crate::support::{Running, cluster_config, config, get, mock_with, start, text};

async fn counting(mut config: Config) -> Running {
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    start(&config).await
}

/// A counter, read without a client.
async fn count(gateway: &Running, name: &str) -> u64 {
    let metrics = get(gateway.gateway.metrics_addr().unwrap(), "/metrics").await;
    let start = format!("valkey_rdma_gateway_{name}_total{{");
    let value = metrics.lines().find_map(|line| line.strip_prefix(&start)?.rsplit_once(' '));
    value.unwrap_or_else(|| panic!("no {name} in {metrics}")).1.parse().unwrap()
}

/// Two services: a cluster, and a server that will be lost.
#[tokio::test]
async fn services_count_apart() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let cluster_url = mocks.urls()[0].clone();
    let (server, url, _) = mock_with(Mock::new()).await;
    let mut limits = Limits::default();
    (limits.clients, limits.offline_ms) = (2, 100);
    let mut both = cluster_config(mocks.urls(), limits);
    both.routes.extend(config(&url, Share::Auto, Limits::default()).routes);
    let gateway = counting(both).await;
    let [mut of_cluster, mut of_server] = gateway.client_of_each_route().await.try_into().ok().unwrap();
    for key in 0..3 {
        assert_eq!(of_cluster.say(&format!("SET {key} v")).await, "OK");
    }
    assert_eq!(of_cluster.say("BLPOP queue 0.001").await, "(nil)");
    assert!(of_cluster.say("CLIENT TRACKING ON").await.starts_with('-'));
    assert_eq!(of_server.say("SET k v").await, "OK");
    assert_eq!(of_server.say("WATCH k").await, "OK");
    assert_eq!(of_server.say("UNWATCH").await, "OK");
    for _ in 0..2 {
        // The gateway is full. `client` uses the socket of the last route.
        assert!(text(&gateway.client().await.reply().await).starts_with("-ERR max number of clients"));
    }
    drop(server);
    while of_server.info("gateway_connect_failures").await == 0 {
        tokio::task::yield_now().await;
    }
    of_server.command("GET k").await;
    of_server.expect_end().await;
    // It has made room for itself.
    let mut of_server = gateway.owner().await;

    let metrics = get(gateway.gateway.metrics_addr().unwrap(), "/metrics").await;
    for (name, expected) in [
        ("commands_shared", [3, 1]),
        ("commands_private", [2, 2]),
        ("moves_to_private", [0, 1]),
        ("commands_refused", [1, 0]),
        ("commands_not_sent", [0, 1]),
        ("connections_lost", [0, 1]),
        ("clients_accepted", [1, 2]),
        ("clients_refused", [0, 2]),
        ("clients", [1, 1]),
    ] {
        for ((url, client), expected) in
            [(&cluster_url, &mut of_cluster), (&url, &mut of_server)].into_iter().zip(expected)
        {
            assert_eq!(client.info(&format!("gateway_{name}")).await, expected, "{name} of {url}");
            let sample = format!("\nvalkey_rdma_gateway_{name}_total{{server=\"{url}\"}} {expected}\n");
            assert!(name == "clients" || metrics.contains(&sample), "{sample} in {metrics}");
        }
    }
    for (url, commands) in [(&cluster_url, 3), (&url, 1)] {
        let sample = format!("\nvalkey_rdma_gateway_server_seconds_count{{server=\"{url}\"}} {commands}\n");
        assert!(metrics.contains(&sample), "{sample} in {metrics}");
    }
    for (url, name) in
        [&cluster_url, &url].into_iter().flat_map(|url| [(url, "clients"), (url, "unread_bytes")])
    {
        let value = u64::from(name == "clients");
        let sample = format!("\nvalkey_rdma_gateway_{name}{{server=\"{url}\"}} {value}\n");
        assert!(metrics.contains(&sample), "{sample} in {metrics}");
    }
    let help = "# HELP valkey_rdma_gateway_commands_shared_total ";
    assert_eq!(metrics.matches(help).count(), 1, "one head for the lines of both: {metrics}");
}

#[tokio::test]
async fn a_refused_login_is_no_failed_connect() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let gateway = counting(config(&url, Share::Auto, Limits::default())).await;
    let mut client = gateway.client().await;
    assert!(client.say("GET k").await.starts_with("-NOAUTH"));
    assert!(client.say("WATCH k").await.starts_with("-NOAUTH"));
    let without_login = count(&gateway, "logins_refused").await;
    assert!(without_login >= 2, "{without_login}");
    assert!(client.say("AUTH wrong").await.starts_with("-WRONGPASS"));
    assert!(text(&client.hello3(" AUTH default wrong").await).starts_with("-WRONGPASS"));
    assert_eq!(count(&gateway, "logins_refused").await, without_login + 2);
    assert_eq!(count(&gateway, "connect_failures").await, 0, "the server was reached each time");
    assert_eq!(count(&gateway, "commands_not_sent").await, 0, "no command missed a server");
}

#[tokio::test]
async fn a_database_that_a_client_chooses_and_the_server_lacks_is_no_failed_connect() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let refusal = "-ERR DB index is out of range";
    let gateway = counting(config(&url, Share::Auto, Limits::default())).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SELECT 99").await, refusal);
    assert_eq!(client.say("SET k v").await, "OK", "it stays in its database");
    assert!(count(&gateway, "databases_refused").await >= 1);
    for other in ["connect_failures", "logins_refused", "commands_not_sent"] {
        assert_eq!(count(&gateway, other).await, 0, "{other}");
    }
    // That of the URL fails all clients.
    let gateway = counting(config(&format!("{url}/99"), Share::Auto, Limits::default())).await;
    assert_eq!(gateway.client().await.say("GET k").await, refusal);
    assert!(count(&gateway, "connect_failures").await >= 1);
    assert_eq!(count(&gateway, "databases_refused").await, 0);
}

#[tokio::test]
async fn commands_behind_a_refused_login_of_the_url_are_counted_as_that_only() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let url = url.replace("://", "://:wrong@");
    let gateway = counting(config(&url, Share::Auto, Limits::default())).await;
    let mut client = gateway.client().await;
    assert!(client.say("GET k").await.starts_with("-WRONGPASS"));
    assert_eq!(client.say("MULTI").await, "OK");
    assert!(client.say("SET k v").await.starts_with("-WRONGPASS"));
    assert!(client.say("EXEC").await.contains("WRONGPASS"));
    assert!(count(&gateway, "logins_refused").await >= 2);
    for other in ["commands_not_sent", "commands_refused", "connect_failures"] {
        assert_eq!(count(&gateway, other).await, 0, "{other}");
    }
    // Clients that go on asking hear so at once, and the server not each time.
    let before = count(&gateway, "logins_refused").await;
    for _ in 0..100 {
        assert!(client.say("GET k").await.starts_with("-WRONGPASS"));
    }
    let tried = count(&gateway, "logins_refused").await - before;
    assert!(tried < 50, "{tried} attempts");
}

#[tokio::test]
async fn a_login_that_a_cluster_refuses_is_no_failed_connect() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let open = start(&cluster_config(mocks.urls(), Limits::default())).await;
    assert_eq!(open.client().await.say("CONFIG SET requirepass pw").await, "OK");
    let gateway = counting(cluster_config(mocks.urls(), Limits::default())).await;
    let mut client = gateway.client().await;
    assert!(client.say("GET k").await.starts_with("-NOAUTH"));
    let without_login = count(&gateway, "logins_refused").await;
    assert!(without_login >= 1, "{without_login}");
    assert!(client.say("AUTH wrong").await.starts_with("-WRONGPASS"));
    assert_eq!(count(&gateway, "logins_refused").await, without_login + 1);
    assert_eq!(count(&gateway, "connect_failures").await, 0, "the nodes were reached each time");
    assert_eq!(count(&gateway, "commands_not_sent").await, 0, "no command missed a node");
}

#[tokio::test]
async fn commands_that_a_cluster_refuses_are_counted_in_a_transaction_too() {
    let mocks = MockCluster::start(3).await.expect("free ports");
    let gateway = counting(cluster_config(mocks.urls(), Limits::default())).await;
    let mut client = gateway.client().await;
    let (one, other) = (mocks.key_of(0, 0), mocks.key_of(1, 0));
    let set = format!("SET {one} x");
    let crossing = format!("SET {other} x");
    let mut expected = 0;
    for refused in [
        &crossing[..],
        "SUBSCRIBE c",
        "MGET a b",
        "DBSIZE",
        "CLIENT ID",
        "MULTI",
        "WATCH k",
        "MONITOR",
        "CLUSTER SLOTS",
    ] {
        assert_eq!(client.say("MULTI").await, "OK");
        assert_eq!(client.say(&set).await, "QUEUED");
        assert!(client.say(refused).await.starts_with('-'), "{refused}");
        expected += 1;
        assert_eq!(count(&gateway, "commands_refused").await, expected, "{refused}");
        assert_eq!(client.say("DISCARD").await, "OK");
    }
    for refused in
        ["CLIENT TRACKING ON", "MONITOR", "WAIT 1 0", "OBJECT HELP", &format!("SUNION {one} {other}")]
    {
        let reply = client.say(refused).await;
        if reply.starts_with("-ERR the gateway") || reply.starts_with("-CROSSSLOT") {
            expected += 1;
        }
        assert_eq!(count(&gateway, "commands_refused").await, expected, "{refused}: {reply}");
    }
    assert!(expected >= 13, "{expected}");
}

#[tokio::test]
async fn metrics_tell_the_version_and_the_state_of_the_process() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let before = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let running = counting(config(&url, Share::Auto, Limits::default())).await;
    let metrics = get(running.gateway.metrics_addr().unwrap(), "/metrics").await;
    let info = concat!("\nvalkey_rdma_gateway_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1\n");
    assert!(metrics.contains(info), "{metrics}");
    let figure = |name: &str| -> f64 {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().unwrap()
    };
    let after = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((before..=after).contains(&figure("process_start_time_seconds")), "{metrics}");
    let (open, most) = (figure("process_open_fds"), figure("process_max_fds"));
    assert!(2.0 < open && open <= most, "{metrics}");
}

/// What follows the labels of a sample: `{name="value",...}` with `\\`, `\"` and `\n` in values. `None`: they are not well formed.
fn after_labels(text: &str) -> Option<&str> {
    let mut rest = text.strip_prefix('{')?;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_lowercase()).strip_prefix("=\"")?;
        loop {
            let (at, found) = rest.char_indices().find(|(_, c)| matches!(c, '\\' | '"'))?;
            rest = &rest[at + 1..];
            match (found, rest.chars().next()) {
                ('\\', Some('\\' | '"' | 'n')) => rest = &rest[1..],
                ('\\', _) => return None,
                _ => break,
            }
        }
        match rest.strip_prefix(',') {
            Some(next) => rest = next,
            None => return rest.strip_prefix('}'),
        }
    }
}

#[tokio::test]
async fn names_with_any_characters_keep_metrics_and_info_readable() {
    for (service, label) in
        [("a%22b", r#"a\"b"#), ("a%5Cb", r"a\\b"), ("a%0Ab", r"a\nb"), ("%22%5C%0D%0Ab", "b")]
    {
        let url = format!("valkey+sentinel://127.0.0.1:1/{service}");
        let mut limits = Limits::default();
        limits.offline_ms = 100;
        let running = counting(config(&url, Share::Auto, limits)).await;
        let mut client = running.client().await;
        // So that its connection is in the metrics.
        client.command("GET k").await;
        client.expect_end().await;
        let mut client = running.owner().await;
        let metrics = get(running.gateway.metrics_addr().unwrap(), "/metrics").await;
        let body = metrics.split_once("\r\n\r\n").expect("a head and a body").1;
        assert!(body.contains(&format!("{label}\"}}")), "{body}");
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let labels = line.find('{').map_or(line.find(' ').expect("a value"), |at| at);
            let value = if line[labels..].starts_with('{') {
                after_labels(&line[labels..])
            } else {
                Some(&line[labels..])
            };
            let number = value.and_then(|value| value.strip_prefix(' ')?.parse::<f64>().ok());
            assert!(number.is_some(), "{service}: {line:?} is not a sample");
        }
        let info = client.say("INFO gateway").await;
        for line in info.split("\r\n").filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(line.starts_with("gateway_") && !line.contains('\n'), "{service}: {line:?} in {info}");
        }
    }
}
