//! What happens when file descriptors are few: clients never take those that servers, `/health` and `/metrics` need.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::net::UnixStream;
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Child, ReservedPort, Signal};

use crate::shut_down;
use crate::support::{Client, PATIENCE, encode, get, mock_with, socket_path, text, until, until_health};

/// The program with these limits of open files.
fn with_limits(limits: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_valkey-rdma-gateway");
    command.args(["-c", &format!("{limits}; exec \"$@\""), "sh", program]).args(arguments);
    let child = Child::start(&mut command).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    child
}

/// The same, in front of this server.
fn limited(limits: &str, server: SocketAddr, metrics: SocketAddr) -> (Child, PathBuf) {
    let socket = socket_path();
    let (listen, server) = (format!("unix:{}", socket.display()), format!("valkey://{server}"));
    let arguments = ["--listen", &listen, "--server", &server, "--metrics", &metrics.to_string()];
    (with_limits(limits, &arguments), socket)
}

/// Connects this many clients, each with a command. Returns those that were served.
async fn served(socket: &Path, clients: usize) -> Vec<Client> {
    let mut served = Vec::new();
    for _ in 0..clients {
        let mut client = Client::new(UnixStream::connect(socket).await.unwrap());
        // It may be closed already, with an error to be read.
        let _ = client.stream_send(&encode(["PING"])).await;
        match client.try_reply().await {
            Some(reply) if text(&reply) == "PONG" => served.push(client),
            Some(reply) => assert_eq!(text(&reply), "-ERR max number of clients reached"),
            None => {}
        }
    }
    served
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_returns_and_health_answers_however_many_clients_there_are() {
    let reserved = [ReservedPort::new(), ReservedPort::new()];
    let [port, metrics] = reserved.each_ref().map(ReservedPort::addr);
    let server = Server::builder(Mock::new()).tcp(port).start().await.unwrap();
    let (mut child, socket) = limited("ulimit -n 64", port, metrics);
    let mut clients = served(&socket, 80).await;
    assert!((1..60).contains(&clients.len()), "{} are served", clients.len());
    until_health(metrics, "200").await;
    shut_down(server, port).await;
    until_health(metrics, "503").await;
    let _server = Server::builder(Mock::new()).tcp(port).start().await.unwrap();
    for client in &mut clients {
        assert_eq!(client.say("GET k").await, "(nil)");
    }
    assert!(get(metrics, "/metrics").await.contains("\nprocess_max_fds 64\n"));
    child.signal(Signal::TERM);
    assert!(child.wait(PATIENCE).unwrap().success());
    let log = child.stderr();
    assert_eq!(log.matches("this process may open 64 files, which allows").count(), 1, "{log}");
    let refused: Vec<_> = log.lines().filter(|line| line.contains("max number of clients reached")).collect();
    assert!((1..20).contains(&refused.len()) && refused[0].contains("WARN"), "{log}");
    assert!(refused[0].contains("raise LimitNOFILE="), "{log}");
    assert!(!log.contains("Too many open files"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_soft_limit_of_open_files_is_raised() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let server = url.split_once("://").unwrap().1.parse().unwrap();
    let reserved = ReservedPort::new();
    let metrics = reserved.addr();
    let (_child, socket) = limited("ulimit -S -n 64 && ulimit -H -n 400", server, metrics);
    assert_eq!(served(&socket, 80).await.len(), 80);
    assert!(get(metrics, "/metrics").await.contains("\nprocess_max_fds 400\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_have_their_places_after_a_reload_to_another_server() {
    let (former, current) = (mock_with(Mock::new()).await, mock_with(Mock::new()).await);
    let reserved = ReservedPort::new();
    let metrics = reserved.addr();
    let (socket, file) = (socket_path(), socket_path().with_extension("toml"));
    let listen = format!("listen = [\"unix:{}\"]", socket.display());
    let lead_to = |url: &str| {
        let route = format!("metrics = \"{metrics}\"\n[[route]]\n{listen}\nserver = \"{url}\"\n");
        std::fs::write(&file, route).unwrap();
    };
    lead_to(&former.2);
    let child = with_limits("ulimit -n 82", &["--config", file.to_str().unwrap()]);
    // 31 are left for clients and servers, of which 15 are for each server.
    until(metrics, "/metrics", "\nvalkey_rdma_gateway_clients_limit 16\n").await;
    let stays = served(&socket, 1).await;
    lead_to(&current.2);
    child.signal(Signal::HUP);
    // Half, beside two servers.
    until(metrics, "/metrics", "\nvalkey_rdma_gateway_clients_limit 15\n").await;
    assert_eq!(served(&socket, 1).await.len(), 1);
    drop(stays);
    until(metrics, "/metrics", "\nvalkey_rdma_gateway_clients_limit 16\n").await;
    std::fs::remove_file(&file).unwrap();
}
