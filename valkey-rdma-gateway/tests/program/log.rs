//! What an operator reads in the log: one line for each change of state.

use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use valkey_rdma_mock::{Mock, MockCluster};
use valkey_rdma_server::{Command, Handler, Peer, Reply, Server};
use valkey_rdma_testkit::{Child, ReservedPort, Signal};

use crate::program;
use crate::scripted::{Scripted, expect};
use crate::support::{Client, PATIENCE, encode, mock_with, socket_path, text};

/// The program, in front of this server.
struct Gateway {
    child: Child,
    socket: PathBuf,
}

impl Gateway {
    fn start(server: &str) -> Self {
        Self::start_with(server, "info")
    }

    fn start_with(server: &str, level: &str) -> Self {
        let socket = socket_path();
        let listen = format!("unix:{}", socket.display());
        let program = program(&["--listen", &listen, "--server", server]);
        // Children are started without RUST_LOG.
        let mut env = std::process::Command::new("env");
        env.arg(format!("RUST_LOG={level}")).arg(program.get_program()).args(program.get_args());
        let child = Child::start(&mut env).unwrap();
        child.line_with("ready ", PATIENCE).unwrap();
        Self { child, socket }
    }

    /// The same with these limits, and the configuration file.
    fn with_limits(server: &str, limits: &str) -> (Self, PathBuf) {
        let socket = socket_path();
        let file = socket.with_extension("toml");
        write_limits(&file, &socket, server, limits);
        let child = Child::start(&mut program(&["--config", file.to_str().unwrap()])).unwrap();
        child.line_with("ready ", PATIENCE).unwrap();
        (Self { child, socket }, file)
    }

    async fn client(&self) -> Client {
        Client::new(UnixStream::connect(&self.socket).await.unwrap())
    }

    fn waits_for(&self, text: &str) -> String {
        self.child.line_with(text, PATIENCE).unwrap()
    }

    /// Its log, when it has ended.
    fn log(mut self) -> String {
        self.child.signal(Signal::TERM);
        assert!(self.child.wait(PATIENCE).unwrap().success());
        self.child.stderr()
    }
}

fn write_limits(file: &Path, socket: &Path, server: &str, limits: &str) {
    let listen = socket.display();
    let text =
        format!("[[route]]\nlisten = [\"unix:{listen}\"]\nserver = \"{server}\"\n[limits]\n{limits}\n");
    std::fs::write(file, text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_connections_that_is_reached_is_logged_seldom() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (gateway, file) = Gateway::with_limits(&url, "upstreams = 2");
    let mut first = gateway.client().await;
    assert_eq!(first.say("WATCH k").await, "OK");
    for _ in 0..20 {
        let mut client = gateway.client().await;
        assert_eq!(client.say("GET k").await, "(nil)");
        assert!(client.say("WATCH k").await.starts_with("-NOUPSTREAM "));
    }
    std::fs::remove_file(&file).unwrap();
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("all 2 connections")).collect();
    assert!((1..20).contains(&lines.len()), "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("raise limits.upstreams"), "{log}");
    assert!(lines[0].contains("unlogged=0"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_of_a_client_is_logged_for_those_who_look_for_a_fault() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = Gateway::start_with(&url, "valkey_rdma_gateway=debug");
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k secret").await, "OK");
    assert_eq!(client.say("WATCH k").await, "OK");
    assert_eq!(client.say("UNWATCH").await, "OK");
    assert_eq!(client.say("GET k").await, "secret");
    drop(client);
    gateway.waits_for("a client has left");
    let log = gateway.log();
    let steps = ["has connected", "class=State(Watch)", "is back on the shared connection", "has left"];
    let found = steps.map(|step| log.find(step).unwrap_or_else(|| panic!("no {step:?} in {log}")));
    assert!(found.is_sorted() && !log.contains("secret"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_clients_that_is_reached_is_logged_seldom() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (gateway, file) = Gateway::with_limits(&url, "clients = 1");
    let mut first = gateway.client().await;
    assert_eq!(first.say("GET k").await, "(nil)");
    for _ in 0..20 {
        let reply = gateway.client().await.reply().await;
        assert_eq!(text(&reply), "-ERR max number of clients reached");
    }
    std::fs::remove_file(&file).unwrap();
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("max number of clients reached")).collect();
    assert!((1..20).contains(&lines.len()), "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains("raise limits.clients"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_refuses_clients_is_logged_seldom() {
    let (_server, _, url) = mock_with(Mock::new().requirepass("secret")).await;
    let gateway = Gateway::start(&url);
    let (mut user, mut stranger) = (gateway.client().await, gateway.client().await);
    assert_eq!(user.say("AUTH secret").await, "OK");
    for database in 100..120 {
        assert_eq!(user.say(&format!("SELECT {database}")).await, "-ERR DB index is out of range");
        assert!(stranger.say("GET k").await.starts_with("-NOAUTH "));
    }
    let log = gateway.log();
    let is_refusal = |line: &&str| line.contains("cannot connect") || line.contains(NO_DATABASE);
    let lines: Vec<_> = log.lines().filter(is_refusal).collect();
    assert!((1..20).contains(&lines.len()) && lines[0].contains("unlogged=0"), "{log}");
}

const NO_DATABASE: &str = "the server refused the database that a client has chosen";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_a_client_chooses_and_the_server_lacks_is_logged_as_that() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = Gateway::start(&url);
    let mut client = gateway.client().await;
    assert_eq!(client.say("SELECT 99").await, "-ERR DB index is out of range");
    let line = gateway.waits_for(NO_DATABASE);
    assert!(line.contains("WARN") && line.contains("db=99 ") && line.contains("out of range"), "{line}");
    let log = gateway.log();
    assert!(!log.contains("cannot connect"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_that_need_a_restart_are_named_at_a_reload() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (gateway, file) = Gateway::with_limits(&url, "upstreams = 12\nclients = 7");
    write_limits(&file, &gateway.socket, &url, "upstreams = 100\nclients = 8");
    gateway.child.signal(Signal::HUP);
    let line = gateway.waits_for("needs a restart");
    assert!(line.contains("WARN") && line.contains("limits.upstreams 12 -> 100 needs a restart"), "{line}");
    // It still holds, and is named again, until the file says the old number.
    write_limits(&file, &gateway.socket, &url, "upstreams = 12");
    gateway.child.signal(Signal::HUP);
    gateway.child.lines("ready ", 3, PATIENCE).unwrap();
    std::fs::remove_file(&file).unwrap();
    let log = gateway.log();
    assert_eq!(log.matches("needs a restart").count(), 1, "{log}");
}

/// It holds for listeners that are new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_buffers_of_a_listener_is_named_at_a_reload() {
    let file = socket_path().with_extension("toml");
    let configure = |limits: &str| {
        let route = "[[route]]\nlisten = [\"emulated:127.0.0.1:0\"]\nserver = \"valkey://127.0.0.1:1\"\n";
        std::fs::write(&file, format!("{route}[limits]\n{limits}\n")).unwrap();
    };
    configure("");
    let child = Child::start(&mut program(&["--config", file.to_str().unwrap()])).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    configure("client_buffer_bytes = 65536");
    child.signal(Signal::HUP);
    let line = child.line_with("needs a restart", PATIENCE).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(line.contains("WARN"), "{line}");
    assert!(line.contains("limits.client_buffer_bytes 1048576 -> 65536 needs a restart"), "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_without_any_file_says_so() {
    let (_server, _, url) = mock_with(Mock::new()).await;
    let gateway = Gateway::start(&url);
    gateway.child.signal(Signal::HUP);
    let line = gateway.waits_for("there is no configuration file");
    assert!(line.contains("no password file: there is nothing to read again"), "{line}");
}

/// Over TCP nothing ends the connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_freezes_and_goes_on_is_logged() {
    let server = Scripted::start().await;
    let gateway = Gateway::start(&server.url);
    let mut client = gateway.client().await;
    client.send([encode(["GET", "a"]), encode(["GET", "b"])].concat()).await;
    let mut connection = server.accept().await;
    expect(&mut connection, &[encode(["GET", "a"]), encode(["GET", "b"])].concat()).await;
    let line = gateway.waits_for("the server owes a reply");
    assert!(line.contains("WARN") && line.contains(&server.url), "{line}");
    connection.write_all(b"+A\r\n+B\r\n").await.unwrap();
    client.expect_bytes(b"+A\r\n+B\r\n").await;
    let line = gateway.waits_for("the server answers again");
    assert!(line.contains("INFO") && line.contains(&server.url), "{line}");
    let log = gateway.log();
    assert_eq!(log.matches("owes a reply").count(), 1, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_connections_that_are_lost_are_logged_seldom() {
    let (server, _, url) = mock_with(Mock::new()).await;
    let gateway = Gateway::start(&url);
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = gateway.client().await;
        assert_eq!(client.say("WATCH k").await, "OK");
        clients.push(client);
    }
    server.shutdown().await;
    for client in &mut clients {
        client.expect_end().await;
    }
    let line = gateway.waits_for("the private connection of a client was lost");
    assert!(line.contains("WARN") && line.contains(&url), "{line}");
    let log = gateway.log();
    assert!(log.matches("the private connection of a client").count() < 20, "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_reads_its_data_is_logged() {
    let mock = valkey_rdma_mock::MockServer::start().await;
    mock.on("GET").error("LOADING wait");
    let gateway = Gateway::start(mock.tcp_url());
    let mut client = gateway.client().await;
    for _ in 0..3 {
        assert_eq!(client.say("GET k").await, "-LOADING wait");
    }
    gateway.waits_for("the server answers with LOADING");
    let log = gateway.log();
    assert_eq!(log.matches("LOADING").count(), 2, "one line, with the reply: {log}");
}

/// All nodes are connected, so no other line says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_are_closed_because_a_slot_has_no_node_are_logged_seldom() {
    let mocks = MockCluster::start(2).await.unwrap();
    let slot = MockCluster::slot("lonely");
    mocks.unassign(slot..=slot);
    let socket = socket_path();
    let (listen, server) = (format!("unix:{}", socket.display()), mocks.url(0));
    let args = ["--listen", &listen, "--cluster", "--server", &server, "--offline-ms", "100"];
    let child = Child::start(&mut program(&args)).unwrap();
    child.line_with("ready ", PATIENCE).unwrap();
    let gateway = Gateway { child, socket };
    for _ in 0..10 {
        let mut client = gateway.client().await;
        client.command("GET lonely").await;
        client.expect_end().await;
    }
    let log = gateway.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("client closed: no node")).collect();
    assert!((1..10).contains(&lines.len()), "{log}");
    assert!(lines[0].contains("WARN") && lines[0].contains(&format!("no node serves slot {slot}")), "{log}");
}

/// Reports the primary.
#[derive(Clone)]
struct Sentinel(Vec<Reply>);

impl Handler for Sentinel {
    type Session = ();

    fn session(&self, _: &Peer) {}

    async fn call(&self, _: &mut Peer, (): &mut (), command: Command) -> Result<Reply, Reply> {
        if command.is("SUBSCRIBE") {
            let channel = Reply::Bulk(command.args()[0].clone());
            return Ok(Reply::Push(vec![Reply::bulk("subscribe"), channel, Reply::Integer(1)]));
        }
        Ok(Reply::Array(self.0.clone()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_does_not_answer_is_logged_while_the_server_does() {
    let reserved = ReservedPort::new();
    let address = reserved.addr();
    let (_server, _, url) = mock_with(Mock::new()).await;
    let (host, port) = url.split_once("://").unwrap().1.split_once(':').unwrap();
    let primary = Sentinel(vec![Reply::bulk(host.to_owned()), Reply::bulk(port.to_owned())]);
    let sentinel = Server::builder(primary.clone()).tcp(address).start().await.unwrap();
    let gateway = Gateway::start(&format!("valkey+sentinel://{address}/mymaster"));
    let mut client = gateway.client().await;
    assert_eq!(client.say("GET k").await, "(nil)");
    sentinel.shutdown().await;
    let line = gateway.waits_for("a Sentinel does not answer");
    assert!(line.contains("WARN") && line.contains(&address.to_string()), "{line}");
    assert_eq!(client.say("GET k").await, "(nil)");
    let sentinel = Server::builder(primary).tcp(address).start().await.unwrap();
    gateway.waits_for("a Sentinel answers again");
    let log = gateway.log();
    assert_eq!(log.matches("a Sentinel does not answer").count(), 1, "{log}");
    drop(sentinel);
}
