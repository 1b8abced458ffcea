//! A gateway in front of a server at a Unix socket: `--server unix:///path`.

use std::path::PathBuf;

use valkey_rdma_gateway::{Config, Limits, Share};
use valkey_rdma_mock::Mock;

use crate::support::{
    UnixServer, config, gateway, get, socket_path, start, text, until_health, until_unhealthy, with_health,
};

/// The path of a server's socket, which goes with the test.
struct Socket(PathBuf);

impl Socket {
    fn new() -> Self {
        Self(socket_path())
    }

    fn url(&self) -> String {
        format!("unix://{}", self.0.display())
    }

    async fn serve(&self) -> UnixServer {
        UnixServer::start(&self.0, Mock::new()).await
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn clients_are_served() {
    let socket = Socket::new();
    let _server = socket.serve().await;
    for share in [Share::Auto, Share::Never] {
        let running = gateway(&socket.url(), share).await;
        let (mut one, mut other) = (running.client().await, running.client().await);
        assert_eq!(one.say("SET k v").await, "OK");
        assert_eq!(other.say("GET k").await, "v");
        assert_eq!(other.say("SUBSCRIBE news").await, "[subscribe news :1]");
        assert_eq!(one.say("PUBLISH news hi").await, ":1");
        assert_eq!(text(&other.reply().await), "[message news hi]");
        // A client with state has a private connection.
        assert_eq!(one.say("MULTI").await, "OK");
        assert_eq!(one.say("INCR n").await, "QUEUED");
        assert!(one.say("EXEC").await.starts_with("[:"));
    }
}

#[tokio::test]
async fn the_login_and_the_database_are_those_of_the_url() {
    let socket = Socket::new();
    let _server = UnixServer::start(&socket.0, Mock::new().requirepass("s%cret")).await;
    let url = format!("unix://:s%25cret@{}?db=3", socket.0.display());
    let (running, addr) = with_health(config(&url, Share::Auto, Limits::default())).await;
    assert_eq!(running.client().await.say("SET k of-url").await, "OK");
    let plain = gateway(&socket.url(), Share::Auto).await;
    let mut client = plain.client().await;
    assert!(client.say("GET k").await.starts_with("-NOAUTH"));
    assert_eq!(client.say("AUTH s%cret").await, "OK");
    assert_eq!(client.say("GET k").await, "(nil)");
    assert_eq!(client.say("SELECT 3").await, "OK");
    assert_eq!(client.say("GET k").await, "of-url");
    // The operator sees the path and no login.
    let info = running.owner().await.say("INFO gateway").await;
    let path = socket.0.display();
    assert!(info.contains(&format!("gateway_server:unix://:***@{path}?db=3")), "{info}");
    assert!(info.contains("transport=unix"), "{info}");
    let metrics = get(addr, "/metrics").await;
    assert!(metrics.contains(&format!("server=\"unix://{path}?db=3\"")), "{metrics}");
    assert!(metrics.contains("transport=\"unix\"") && !metrics.contains("cret"), "{metrics}");
}

#[tokio::test]
async fn a_server_that_starts_again_at_the_same_path_is_found() {
    let socket = Socket::new();
    let (running, addr) = with_health(config(&socket.url(), Share::Auto, Limits::default())).await;
    until_unhealthy(addr, "there is no such file").await;
    let server = socket.serve().await;
    until_health(addr, "200").await;
    let mut client = running.client().await;
    assert_eq!(client.say("SET k v").await, "OK");
    server.kill().await;
    until_unhealthy(addr, "no server listens there").await;
    // This command waits for the server.
    client.command("GET k").await;
    let _again = socket.serve().await;
    assert_eq!(text(&client.reply().await), "(nil)");
    until_health(addr, "200").await;
}

#[tokio::test]
async fn a_path_that_is_no_socket_is_named() {
    let socket = Socket::new();
    std::fs::write(&socket.0, "a file").unwrap();
    let (_running, addr) = with_health(config(&socket.url(), Share::Auto, Limits::default())).await;
    until_unhealthy(addr, &socket.0.display().to_string()).await;
}

#[test]
fn what_makes_no_sense_at_a_unix_socket_is_refused() {
    let long = format!("unix:///{}", "x".repeat(107));
    for (url, part) in [
        ("unix:///s?fallback=tcp", "server \"unix://***\": fallback makes no sense at a Unix socket"),
        ("unix:///s?ca=/ca.crt", "ca makes no sense at a Unix socket"),
        ("unix+sentinel:///s/m", "Sentinel makes no sense at a Unix socket"),
        ("unix+cluster:///s", "a cluster makes no sense at a Unix socket"),
        ("unixs:///s", "TLS makes no sense at a Unix socket"),
        ("unix:/run/valkey.sock", "unix:///path"),
        ("unix://run/valkey.sock", "unix:///run/valkey.sock"),
        (&long, "has at most 107"),
    ] {
        let error = config(url, Share::Auto, Limits::default()).check().unwrap_err().to_string();
        assert!(error.contains(part), "{url}: {error}");
    }
    let route = "[[route]]\nlisten = [\"tcp:127.0.0.1:1\"]\nserver = \"unix:///run/valkey.sock\"\n";
    assert!(Config::parse(route).is_ok());
    let error = Config::parse(&format!("{route}cluster = true")).unwrap_err().to_string();
    assert!(error.contains("a cluster makes no sense at a Unix socket"), "{error}");
}

#[tokio::test]
async fn a_reload_takes_another_socket() {
    let (one, other) = (Socket::new(), Socket::new());
    let (_first, _second) = (one.serve().await, other.serve().await);
    let mut settings = config(&one.url(), Share::Auto, Limits::default());
    let mut running = start(&settings).await;
    assert_eq!(running.client().await.say("SET k one").await, "OK");
    settings.routes[0].servers = vec![other.url()];
    running.gateway.reload(&settings, &Default::default()).await.unwrap();
    let mut client = running.client().await;
    assert_eq!(client.say("GET k").await, "(nil)");
}
