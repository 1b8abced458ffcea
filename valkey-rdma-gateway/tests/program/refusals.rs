//! What the log says of commands that the gateway refuses: client libraries show another text.

use tokio::net::UnixStream;
use valkey_rdma_mock::{Mock, MockCluster};
use valkey_rdma_server::Reply;
use valkey_rdma_testkit::{Child, Signal};

use crate::program;
use crate::support::{Client, PATIENCE, mock_with, socket_path};

/// A cluster that takes any login.
async fn cluster() -> (MockCluster, String) {
    let mocks = MockCluster::start(3).await.unwrap();
    (0..3).for_each(|node| mocks.answer(node, "auth", Some(Reply::OK)));
    let url = mocks.urls().remove(0);
    (mocks, url)
}

/// Sends this command many times, as the user `app`, and returns the log.
async fn log(server: &[&str], line: &str) -> String {
    let socket = socket_path();
    let listen = format!("unix:{}", socket.display());
    let mut child = Child::start(program(&["--listen", &listen]).args(server)).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    let mut client = Client::new(UnixStream::connect(&socket).await.unwrap());
    assert_eq!(client.say("AUTH app pw").await, "OK");
    for _ in 0..20 {
        let reply = client.say(line).await;
        assert!(reply.starts_with("-ERR") || reply.starts_with("-CROSSSLOT"), "{line}: {reply}");
    }
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    child.stderr()
}

/// The lines with this text. There are few, however many commands there were.
fn few<'a>(log: &'a str, text: &str) -> Vec<&'a str> {
    let lines: Vec<_> = log.lines().filter(|line| line.contains(text)).collect();
    assert!((1..20).contains(&lines.len()), "{log}");
    assert!(!log.contains("s3cret"), "{log}");
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_in_cluster_mode_is_told_to_leave_it() {
    let (_mocks, url) = cluster().await;
    for line in ["CLUSTER SLOTS", "CLUSTER SHARDS", "cluster nodes"] {
        let log = log(&["--cluster", "--server", &url], line).await;
        let lines = few(&log, "without its cluster mode (GlideClient, not GlideClusterClient;");
        let name = line.to_uppercase();
        assert!(lines[0].contains("WARN") && lines[0].contains(&name) && lines[0].contains("app"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_gateway_of_a_cluster_refuses_is_logged() {
    let (_mocks, url) = cluster().await;
    for (line, name) in [
        ("CLIENT TRACKING ON PREFIX s3cret", "CLIENT TRACKING"),
        ("SUNION s3cret-a s3cret-b", "SUNION"),
        ("WAIT 1 0", "WAIT"),
        ("SELECT 7", "SELECT"),
    ] {
        let log = log(&["--cluster", "--server", &url], line).await;
        let lines = few(&log, "the command of a client was refused");
        assert!(lines[0].contains(&format!("\"{name}\"")) && lines[0].contains("\"app\""), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_requests_are_logged() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let socket = socket_path();
    let listen = format!("unix:{}", socket.display());
    let mut child = Child::start(program(&["--listen", &listen]).args(["--server", &url])).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    for _ in 0..20 {
        let mut client = Client::new(UnixStream::connect(&socket).await.unwrap());
        client.send("POST /s3cret HTTP/1.1\r\nHost: localhost\r\n\r\nSET k v\r\n").await;
        client.expect_end().await;
    }
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    assert_eq!(few(&child.stderr(), "an HTTP request").len(), 1);
}
