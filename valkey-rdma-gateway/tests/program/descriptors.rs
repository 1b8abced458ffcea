//! What happens when file descriptors are few: clients never take those that servers, `/health` and `/metrics` need.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tokio::net::{TcpSocket, UnixStream};
use valkey_rdma_mock::{Mock, Server};
use valkey_rdma_testkit::{Child, Signal};

use crate::support::{Client, PATIENCE, encode, get, mock_with, socket_path, text, until_health};

/// Bound, so that nothing else takes the port; the returned socket does not listen.
fn reserved() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The program with these limits of open files, in front of this server.
fn limited(limits: &str, server: SocketAddr, metrics: SocketAddr) -> (Child, PathBuf) {
    let socket = socket_path();
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_valkey-rdma-gateway");
    command.args(["-c", &format!("{limits}; exec \"$@\""), "sh", program]);
    command.args(["--listen", &format!("unix:{}", socket.display())]);
    command.args(["--server", &format!("valkey://{server}"), "--metrics", &metrics.to_string()]);
    let child = Child::start(&mut command).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    (child, socket)
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
    let ((_held, port), (_also_held, metrics)) = (reserved(), reserved());
    let server = Server::builder(Mock::new()).tcp(port).start().await.unwrap();
    let (mut child, socket) = limited("ulimit -n 64", port, metrics);
    let mut clients = served(&socket, 80).await;
    assert!((1..60).contains(&clients.len()), "{} are served", clients.len());
    until_health(metrics, "200").await;
    server.shutdown().await;
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
    let (_held, metrics) = reserved();
    let (_child, socket) = limited("ulimit -S -n 64 && ulimit -H -n 400", server, metrics);
    assert_eq!(served(&socket, 80).await.len(), 80);
    assert!(get(metrics, "/metrics").await.contains("\nprocess_max_fds 400\n"));
}
