//! What operators do: reload, stop, look.

use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use valkey_rdma_gateway::{Activation, Gateway, Limits, Listen, Share};
use valkey_rdma_mock::Mock;

use crate::scripted::{Scripted, expect};
use crate::support::{
    Client, PATIENCE, advance, ask_over_http, config, encode, gateway, get, mock_with, socket_path, start,
    text, until,
};

#[tokio::test]
async fn a_new_configuration_keeps_the_clients() {
    let (_one, first, _) = mock_with(Mock::new()).await;
    let (_two, second, _) = mock_with(Mock::new()).await;
    let before = config(&first, Share::Auto, Limits::default());
    let mut running = start(&before).await;
    let mut old = running.client().await;
    assert_eq!(old.say("SET k first").await, "OK");
    let mut after = before.clone();
    after.routes[0].servers = vec![second];
    after.routes[0].listen.remove(1);
    running.gateway.reload(&after, &Activation::default()).await.expect("valid");
    assert_eq!(running.gateway.listening().len(), after.routes[0].listen.len());
    assert_eq!(old.say("GET k").await, "first");
    assert_eq!(running.client().await.say("GET k").await, "(nil)", "new clients have the new server");
    after.routes[0].servers = vec!["valkey://".to_owned()];
    assert!(running.gateway.reload(&after, &Activation::default()).await.is_err());
    assert_eq!(running.client().await.say("PING").await, "PONG", "nothing has changed");
}

#[tokio::test]
async fn listeners_on_any_port_keep_their_server_and_their_port() {
    let (_one, first, _) = mock_with(Mock::new()).await;
    let (_two, second, _) = mock_with(Mock::new()).await;
    let [mut both, other] = [first, second].map(|url| config(&url, Share::Auto, Limits::default()));
    both.routes.extend(other.routes);
    for route in &mut both.routes {
        route.listen = vec!["tcp:127.0.0.1:0".parse().unwrap()];
        route.tls = None;
    }
    let mut gateway = Gateway::start(&both, &Activation::default()).await.expect("starts");
    let addresses = gateway.listening();
    let clients = async || {
        let mut clients = Vec::new();
        for address in &addresses {
            let Listen::Tcp(addr) = address else { panic!("{address}") };
            clients.push(Client::new(TcpStream::connect(addr).await.expect("listens")));
        }
        clients
    };
    for (client, name) in clients().await.iter_mut().zip(["first", "second"]) {
        assert_eq!(client.say(&format!("SET k {name}")).await, "OK");
    }
    gateway.reload(&both, &Activation::default()).await.expect("valid");
    assert_eq!(gateway.listening(), addresses);
    for (client, name) in clients().await.iter_mut().zip(["first", "second"]) {
        assert_eq!(client.say("GET k").await, name);
    }
    both.routes.pop();
    gateway.reload(&both, &Activation::default()).await.expect("valid");
    assert_eq!(gateway.listening(), addresses[..1]);
}

#[tokio::test]
async fn metrics_on_any_port_keep_it() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert_eq!(running.gateway.metrics_addr(), Some(addr));
    assert!(get(addr, "/health").await.contains("\r\n\r\n"));
}

/// The tests and the gateway are of the same user.
#[tokio::test]
async fn the_owner_of_the_gateway_looks_at_it_without_a_server_and_a_user_of_the_server_does_not() {
    let server = Scripted::start().await;
    let mut limits = Limits::default();
    limits.offline_ms = 100;
    let gateway = start(&config(&server.url, Share::Auto, limits)).await;
    let (mut owner, _stranger) = (gateway.owner().await, gateway.tcp_client().await);
    // The server accepts connections and does not answer.
    let info = owner.say("INFO gateway").await;
    assert!(info.contains("gateway_clients:2") && info.contains("not connected"), "{info}");
    assert_eq!(owner.say("CLIENT LIST").await.lines().count(), 2);
    for line in ["INFO gateway", "CLIENT LIST"] {
        let mut stranger = gateway.tcp_client().await;
        stranger.command(line).await;
        stranger.expect_end().await;
    }

    let mock = Mock::new().requirepass("secret");
    mock.on("info").error("NOPERM User default has no permissions to run the 'info' command");
    let (_server, url, _) = mock_with(mock).await;
    let gateway = start(&config(&url, Share::Auto, Limits::default())).await;
    let mut user = gateway.owner().await;
    assert!(!user.say("INFO gateway").await.starts_with('-'), "not logged in yet");
    assert_eq!(user.say("AUTH secret").await, "OK");
    assert!(user.say("INFO gateway").await.starts_with("-NOPERM "), "the server's rules hold for its users");
}

#[tokio::test]
async fn a_server_that_left_the_configuration_is_shown_until_its_clients_have_gone() {
    let (first_server, first, _) = mock_with(Mock::new()).await;
    let (_two, second, _) = mock_with(Mock::new()).await;
    let mut before = config(&first, Share::Auto, Limits::default());
    before.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut after = before.clone();
    after.routes[0].servers = vec![second];
    let mut running = start(&before).await;
    // The same port after each reload.
    let addr = running.gateway.metrics_addr().unwrap();
    (before.metrics, after.metrics) = (Some(addr), Some(addr));
    let (mut one, mut two) = (running.client().await, running.client().await);
    assert_eq!((one.say("PING").await, two.say("PING").await), ("PONG".to_owned(), "PONG".to_owned()));
    let shown = format!("\nvalkey_rdma_gateway_former_clients{{server=\"{first}\"}} ");
    assert!(get(addr, "/metrics").await.contains(&format!("{shown}0\n")));

    running.gateway.reload(&after, &Activation::default()).await.expect("valid");
    assert!(get(addr, "/metrics").await.contains(&format!("{shown}2\n")));
    running.gateway.reload(&before, &Activation::default()).await.expect("valid");
    assert!(
        get(addr, "/metrics").await.contains(&format!("{shown}0\n")),
        "it is back, with the same connection"
    );
    assert_eq!(running.client().await.say("PING").await, "PONG");
    assert_eq!(running.info("gateway_connects").await, 1);

    running.gateway.reload(&after, &Activation::default()).await.expect("valid");
    drop((one, first_server));
    until(addr, "/metrics", &format!("{shown}1\n")).await;
    until(addr, "/health", &format!("not connected to {first} ")).await;
    drop(two);
    until(addr, "/health", "\r\n\r\nok\n").await;
    assert!(!get(addr, "/metrics").await.contains(&shown));
}

#[tokio::test]
async fn a_reload_that_fails_is_in_the_metrics_until_one_succeeds() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    config.metrics = Some(addr);
    let failed = async |value: u8| {
        let line = format!("\nvalkey_rdma_gateway_reload_failed {value}\n");
        get(addr, "/metrics").await.contains(&line)
    };
    assert!(failed(0).await);

    let missing = socket_path().with_extension("toml");
    running.gateway.reload_file(&missing, &Activation::default()).await.expect_err("there is no such file");
    assert!(failed(1).await);
    running.gateway.reload(&config, &Activation::default()).await.expect("valid");
    assert!(failed(0).await);
    let mut wrong = config.clone();
    wrong.limits.clients = 0;
    running.gateway.reload(&wrong, &Activation::default()).await.expect_err("out of range");
    assert!(failed(1).await);
    assert_eq!(running.client().await.say("PING").await, "PONG", "the configuration before it holds");
}

#[tokio::test]
async fn a_server_that_left_is_not_connected_to_again_when_its_clients_have_gone() {
    let first = Scripted::start().await;
    let (_two, _, second) = mock_with(Mock::new()).await;
    let mut before = config(&first.url, Share::Auto, Limits::default());
    before.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut running = start(&before).await;
    let addr = running.gateway.metrics_addr().unwrap();
    let mut after = before.clone();
    (after.routes[0].servers, after.metrics) = (vec![second], Some(addr));
    let mut old = running.client().await;
    old.command("PING").await;
    let mut connection = first.accept().await;
    expect(&mut connection, &encode(["PING"])).await;
    connection.write_all(b"+PONG\r\n").await.unwrap();
    old.expect_bytes(b"+PONG\r\n").await;
    running.gateway.reload(&after, &Activation::default()).await.expect("valid");
    drop(old);
    while get(addr, "/metrics").await.contains(&first.url) {
        tokio::task::yield_now().await;
    }
    drop(connection);
    assert!(first.accept_soon().await.is_none(), "it is not connected to again");
    assert_eq!(running.client().await.say("PING").await, "PONG");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_seen_in_the_metrics() {
    let mock = Mock::new();
    let slow = mock.on("GET").delay(Duration::from_secs(3600));
    let (_server, _, url) = mock_with(mock).await;
    let mut config = config(&url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    let mut client = running.client().await;
    assert_eq!(client.say("PING").await, "PONG");
    let owed = async || {
        let metrics = get(addr, "/metrics").await;
        let line =
            metrics.lines().find(|line| line.starts_with("valkey_rdma_gateway_shared_reply_owed_seconds{"));
        line.expect("a sample").rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(owed().await, 0.0);
    client.command("GET k").await;
    while slow.matched() < 1 {
        tokio::task::yield_now().await;
    }
    assert!(owed().await > 0.0);
}

#[tokio::test]
async fn clients_of_a_server_that_left_are_closed_when_its_time_is_over_unless_it_is_back() {
    let mock = Mock::new();
    let slow = mock.on("GET").with("slow").delay(Duration::from_secs(65));
    mock.on("GET").with("never").delay(Duration::from_secs(3600));
    let (_one, _, first) = mock_with(mock).await;
    let (_two, _, second) = mock_with(Mock::new()).await;
    let mut before = config(&first, Share::Auto, Limits::default());
    before.limits.former_ms = Some(60_000);
    let mut after = before.clone();
    after.routes[0].servers = vec![second];
    let mut running = start(&before).await;
    let (mut idle, mut waits, mut stuck) =
        (running.client().await, running.client().await, running.client().await);
    for client in [&mut idle, &mut waits, &mut stuck] {
        assert_eq!(client.say("PING").await, "PONG");
    }
    let mut reload = async |config| {
        running.gateway.reload(config, &Activation::default()).await.expect("valid");
        running.client().await
    };
    reload(&after).await;
    reload(&before).await;
    advance(61).await;
    assert_eq!(idle.say("PING").await, "PONG", "the server is back");

    let mut new = reload(&after).await;
    assert_eq!(new.say("PING").await, "PONG");
    waits.command("GET slow").await;
    while slow.matched() < 1 {
        tokio::task::yield_now().await;
    }
    stuck.command("GET never").await;
    advance(45).await;
    assert_eq!(idle.say("CLIENT GETNAME").await, "(nil)", "not yet");
    advance(16).await;
    idle.expect_end().await;
    advance(5).await;
    assert_eq!(text(&waits.reply().await), "(nil)", "its command was passed on");
    waits.expect_end().await;
    advance(6).await;
    stuck.expect_end().await;
    assert_eq!(new.say("PING").await, "PONG", "its server is in the configuration");
}

#[tokio::test]
async fn a_stop_lets_clients_have_their_replies() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let running = gateway(&url, Share::Auto).await;
    let (mut asks, mut idle, mut subscribed) =
        (running.client().await, running.client().await, running.client().await);
    assert_eq!(idle.say("PING").await, "PONG");
    subscribed.say("SUBSCRIBE a").await;
    asks.command("DEBUG SLEEP 0.2").await;
    running.until("gateway_commands_shared", |count| count >= 2).await;
    running.gateway.shutdown().await;
    assert_eq!(text(&asks.reply().await), "OK");
    for mut client in [asks, idle, subscribed] {
        client.expect_end().await;
    }
}

#[tokio::test]
async fn after_a_stop_commands_that_come_are_not_passed_on() {
    for begin in ["GET a", "WATCH a"] {
        let server = Scripted::start().await;
        let running = gateway(&server.url, Share::Auto).await;
        let mut client = running.client().await;
        client.command(begin).await;
        let mut connection = server.accept().await;
        if begin.starts_with("WATCH") {
            connection = server.accept_as("", 8).await;
        }
        expect(&mut connection, &encode(begin.split(' '))).await;
        let stopped = tokio::spawn(running.gateway.shutdown());
        // Its socket goes first.
        while running.unix.exists() {
            tokio::task::yield_now().await;
        }
        client.command("GET b").await;
        connection.write_all(b"+A\r\n").await.unwrap();
        assert_eq!(text(&client.reply().await), "A");
        client.expect_end().await;
        timeout(PATIENCE, stopped).await.expect("in time").unwrap();
        // It is closed if it was private.
        assert_eq!(connection.try_read(&mut [0; 64]).unwrap_or(0), 0, "{begin}");
    }
}

#[tokio::test]
async fn figures_are_served_over_http() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let running = start(&config).await;
    let addr = running.gateway.metrics_addr().unwrap();
    assert_eq!(running.client().await.say("SET k v").await, "OK");
    let metrics = get(addr, "/metrics").await;
    for part in [
        "200 OK",
        &format!("\nvalkey_rdma_gateway_commands_shared_total{{server=\"{url}\"}} 1\n"),
        &format!("\nvalkey_rdma_gateway_request_seconds_count{{server=\"{url}\"}} 1\n"),
        &format!("\nvalkey_rdma_gateway_request_seconds{{server=\"{url}\",quantile=\"0.99\"}} "),
        "transport=\"emulated\"} 1\n",
    ] {
        assert!(metrics.contains(part), "{part} in {metrics}");
    }
    assert!(get(addr, "/health").await.ends_with("ok\n"));
    assert!(get(addr, "/").await.starts_with("HTTP/1.1 404"));
    // As curl -I and some load balancers ask, and scrapers with `params`.
    let head = ask_over_http(addr, "HEAD", "/health").await;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("Content-Length: 3\r\n"), "{head}");
    assert!(head.ends_with("\r\n\r\n"), "no body: {head}");
    assert!(get(addr, "/metrics?a=b").await.contains("\nvalkey_rdma_gateway_clients{"));
    assert!(ask_over_http(addr, "POST", "/metrics").await.starts_with("HTTP/1.1 405"));
}

#[tokio::test]
async fn routes_to_one_server_have_one_series() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("a")).await;
    let authority = url.split_once("://").unwrap().1;
    // A login may change, and its server stays the same.
    let [mut both, other] = [":a", "default:a"]
        .map(|login| config(&format!("emulated://{login}@{authority}"), Share::Auto, Limits::default()));
    both.routes.extend(other.routes);
    both.metrics = Some("127.0.0.1:0".parse().unwrap());
    let mut running = start(&both).await;
    let addr = running.gateway.metrics_addr().unwrap();
    for mut client in running.client_of_each_route().await {
        assert_eq!(client.say("GET k").await, "(nil)");
    }
    let metrics = get(addr, "/metrics").await;
    let series = metrics.lines().filter(|line| line.starts_with("valkey_rdma_gateway_"));
    let mut names: Vec<_> = series.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{metrics}");
    let connections = format!("valkey_rdma_gateway_connections{{server=\"{url}\"}} 2\n");
    assert!(metrics.contains(&connections), "{connections} in {metrics}");
    let commands = format!("\nvalkey_rdma_gateway_commands_shared_total{{server=\"{url}\"}} 2\n");
    assert!(metrics.contains(&commands), "{commands} in {metrics}");

    let mut one = both.clone();
    one.metrics = Some(addr);
    one.routes.pop();
    running.gateway.reload(&one, &Activation::default()).await.expect("valid");
    until(addr, "/metrics", &format!("\nvalkey_rdma_gateway_clients{{server=\"{url}\"}} 0\n")).await;
    let metrics = get(addr, "/metrics").await;
    assert!(metrics.contains(&commands), "a counter does not shrink: {metrics}");
}

#[tokio::test]
async fn clients_that_have_not_logged_in_are_not_a_lost_server() {
    let (_server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let authority = url.split_once("://").unwrap().1;
    let wrong = format!("emulated://:wrong@{authority}");
    let down = format!("not connected to emulated://:***@{authority} (user=- db=0 resp2): -WRONGPASS ");
    for (url, refusal, health) in [(&url, "-NOAUTH", "ok\n"), (&wrong, "-WRONGPASS", &down)] {
        let mut config = config(url, Share::Auto, Limits::default());
        config.metrics = Some("127.0.0.1:0".parse().unwrap());
        let running = start(&config).await;
        let addr = running.gateway.metrics_addr().unwrap();
        let (mut user, mut stranger) = (running.client().await, running.client().await);
        assert!(stranger.say("GET k").await.starts_with(refusal));
        assert_eq!(user.say("AUTH secret").await, "OK");
        assert_eq!(user.say("GET k").await, "(nil)");
        assert_eq!(user.say("SELECT 99").await, "-ERR DB index is out of range");
        let answer = get(addr, "/health").await;
        assert!(answer.contains(&format!("\r\n\r\n{health}")), "{answer}");
        let metrics = get(addr, "/metrics").await;
        let up = metrics.lines().filter(|line| line.starts_with("valkey_rdma_gateway_shared_up{"));
        let down = up.filter(|line| line.ends_with("} 0")).count();
        assert_eq!(down, usize::from(health != "ok\n"), "{metrics}");
    }
}

#[tokio::test]
async fn a_database_that_the_server_refuses_leaves_no_connection_behind() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let running = start(&config(&url, Share::Auto, Limits::default())).await;
    let mut client = running.client().await;
    assert_eq!(client.say("SELECT 1").await, "OK");
    for database in 100..120 {
        assert_eq!(client.say(&format!("SELECT {database}")).await, "-ERR DB index is out of range");
    }
    // Their tasks share a thread with this one, and have run after a few commands. Unused connections of other kinds stay for 30 s.
    let mut info = String::new();
    for _ in 0..100 {
        info = client.say("INFO gateway").await;
        if !info.contains("db=10") && !info.contains("db=11") {
            break;
        }
    }
    assert!(info.contains("db=1 ") && !info.contains("db=10") && !info.contains("db=11"), "{info}");
}

/// Every name of a metric in a text.
fn metric_names(text: &str) -> Vec<&str> {
    let is_part = |character: char| character.is_ascii_lowercase() || character == '_';
    let starts = text.match_indices("valkey_rdma_gateway_").map(|(start, _)| &text[start..]);
    starts.map(|rest| &rest[..rest.find(|character| !is_part(character)).unwrap_or(rest.len())]).collect()
}

#[tokio::test]
async fn dashboard_and_alerts_name_metrics_that_exist() {
    let (_server, url, _) = mock_with(Mock::new()).await;
    let mut config = config(&url, Share::Auto, Limits::default());
    config.metrics = Some("127.0.0.1:0".parse().unwrap());
    let running = start(&config).await;
    assert_eq!(running.client().await.say("SET k v").await, "OK");
    let metrics = get(running.gateway.metrics_addr().unwrap(), "/metrics").await;
    let samples: Vec<&str> = metrics.lines().filter(|line| !line.starts_with('#')).collect();
    let dashboard = include_str!("../../monitoring/grafana-dashboard.json");
    let alerts = include_str!("../../monitoring/prometheus-alerts.yml");
    for (file, text, least) in [("the dashboard", dashboard, 20), ("the alerts", alerts, 8)] {
        let names = metric_names(text);
        assert!(names.len() >= least, "{file}: {names:?}");
        for name in names {
            let exists = samples.iter().any(|line| line.split(['{', ' ']).next() == Some(name));
            assert!(exists, "{file} names {name}, which is not in {metrics}");
        }
    }
    let parsed: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    let panels = parsed["panels"].as_array().unwrap();
    assert!(panels.iter().all(|panel| panel["targets"][0]["expr"].is_string()), "{panels:?}");
    // The dashboard shows all there is.
    for name in metric_names(&metrics) {
        let name = name.trim_end_matches("_sum").trim_end_matches("_count");
        assert!(dashboard.contains(name), "{name} is on no panel");
    }
}

// What systemd does for a socket unit: the socket is bound already, and passed as descriptor 3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_serves_a_socket_that_was_passed_to_it() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let socket = socket_path();
    let listener = UnixListener::bind(&socket).unwrap();
    let inode = |path: &std::path::Path| std::fs::metadata(path).unwrap().ino();
    let bound = inode(&socket);
    // No process accepts yet: the connection waits in the socket, as it does before systemd starts the service.
    let early = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\"";
    let mut command = tokio::process::Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_valkey-rdma-gateway")]);
    command.args(["--listen", &format!("unix:{}", socket.display()), "--server", &url]);
    command.stdin(OwnedFd::from(listener)).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut client = Client::new(early);
    assert_eq!(client.say("SET k v").await, "OK");
    child.kill().await.unwrap();
    assert_eq!(inode(&socket), bound, "the gateway has not bound another one");
    std::fs::remove_file(&socket).unwrap();
}
