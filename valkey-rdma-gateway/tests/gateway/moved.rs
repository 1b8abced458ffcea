//! A name that comes to mean another server, while the old one stays as a replica.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet, yield_now};
use tokio::time::timeout;
use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{Command, Mock, MockServer, Reply};

use crate::scripted::{Scripted, expect};
use crate::support::{
    Client, PATIENCE, config, encode, gateway, mock_with, text, until_unhealthy, with_health,
};

const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

/// Leads new connections to one server. Those that there are stay where they are.
struct Name {
    url: String,
    meaning: Arc<Mutex<SocketAddr>>,
    serving: JoinHandle<()>,
}

impl Name {
    async fn of(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let meaning = Arc::new(Mutex::new(addr(url)));
        let means = meaning.clone();
        let serving = tokio::spawn(async move {
            let mut clients = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let server = *means.lock().unwrap();
                clients.spawn(async move {
                    let mut server = TcpStream::connect(server).await.unwrap();
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        Self { url: url.replace(&addr(url).to_string(), &name), meaning, serving }
    }

    fn comes_to_mean(&self, url: &str) {
        *self.meaning.lock().unwrap() = addr(url);
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn addr(url: &str) -> SocketAddr {
    url.split_once("://").unwrap().1.parse().unwrap()
}

fn hello(role: &'static str) -> Reply {
    Reply::Map(vec![(Reply::bulk("role"), Reply::bulk(role))])
}

/// From now on it is a replica.
fn demote(mock: &Mock) {
    mock.on("HELLO").reply(hello("replica"));
    mock.on("SET").error(READ_ONLY);
}

async fn until_ok(client: &mut Client, line: &str) {
    let accepted = async {
        while client.say(line).await != "OK" {
            yield_now().await;
        }
    };
    timeout(PATIENCE, accepted).await.expect("the new primary is found");
}

/// A name, the server that it means and the one that it will mean.
async fn servers() -> (Name, MockServer, MockServer) {
    let (old, new) = (MockServer::start().await, MockServer::start().await);
    (Name::of(old.tcp_url()).await, old, new)
}

#[tokio::test]
async fn clients_that_share_a_connection_follow_a_name_to_the_new_primary() {
    let (name, old, new) = servers().await;
    let gateway = gateway(&name.url, Share::Auto).await;
    let (mut client, mut reader) = (gateway.client().await, gateway.client().await);
    assert_eq!(client.say("SET k old").await, "OK");
    assert_eq!(reader.say("GET k").await, "old");
    demote(&old);
    name.comes_to_mean(new.tcp_url());
    assert_eq!(client.say("SET k lost").await, format!("-{READ_ONLY}"));
    until_ok(&mut client, "SET k new").await;
    assert_eq!(reader.say("GET k").await, "new", "it got no error itself");
    assert_eq!(gateway.info("gateway_connections_lost").await, 0);
}

#[tokio::test]
async fn clients_with_state_end_and_their_next_connections_lead_to_the_new_primary() {
    let (name, old, new) = servers().await;
    let gateway = gateway(&name.url, Share::Auto).await;
    let (mut client, mut subscriber) = (gateway.client().await, gateway.client().await);
    assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
    assert_eq!(client.say("WATCH k").await, "OK");
    assert_eq!(client.say("UNWATCH").await, "OK");
    demote(&old);
    name.comes_to_mean(new.tcp_url());
    // READONLY comes on a private connection only. It would be kept for the next client.
    let found = async {
        while new.get("k").is_none() {
            let mut client = gateway.client().await;
            for line in ["WATCH k", "SET k v", "UNWATCH"] {
                let is_sent = client.stream_send(&encode(line.split(' '))).await.is_some();
                // Its connection may be one that ends.
                if !is_sent || client.try_reply().await.is_none() {
                    break;
                }
            }
        }
    };
    timeout(PATIENCE, found).await.expect("the new primary is found");
    subscriber.expect_end().await;
    let mut subscriber = gateway.client().await;
    assert_eq!(subscriber.say("SUBSCRIBE c").await, "[subscribe c :1]");
    assert_eq!(new.execute(&Command::new("PUBLISH", ["c", "m"])), Reply::Integer(1));
}

#[tokio::test]
async fn what_was_sent_to_the_old_primary_is_answered_before_its_connection_ends() {
    let (old, new) = (Scripted::start().await, Scripted::start().await);
    let name = Name::of(&old.url).await;
    let gateway = gateway(&name.url, Share::Auto).await;
    let mut client = gateway.client().await;
    client.command("SET k v").await;
    let mut before = old.accept().await;
    expect(&mut before, &encode(["SET", "k", "v"])).await;
    name.comes_to_mean(&new.url);
    before.write_all(format!("-{READ_ONLY}\r\n").as_bytes()).await.unwrap();
    assert_eq!(text(&client.reply().await), format!("-{READ_ONLY}"));

    expect(&mut before, &encode(["HELLO"])).await;
    client.command("GET k").await;
    expect(&mut before, &encode(["GET", "k"])).await;
    before.write_all(b"*2\r\n$4\r\nrole\r\n$7\r\nreplica\r\n").await.unwrap();
    let mut found = new.accept_as("", 8).await;
    expect(&mut found, &encode(["HELLO"])).await;
    found.write_all(b"*2\r\n$4\r\nrole\r\n$6\r\nmaster\r\n").await.unwrap();
    before.write_all(b"+V\r\n").await.unwrap();
    client.expect_bytes(b"+V\r\n").await;

    client.command("GET k").await;
    // It may have been sent before the new primary was known.
    while timeout(PATIENCE, before.read(&mut [0; 64])).await.expect("in time").unwrap() > 0 {
        before.write_all(b"+V\r\n").await.unwrap();
        client.expect_bytes(b"+V\r\n").await;
        client.command("GET k").await;
    }
    let mut after = new.accept().await;
    expect(&mut after, &encode(["GET", "k"])).await;
    after.write_all(b"+W\r\n").await.unwrap();
    client.expect_bytes(b"+W\r\n").await;
}

#[tokio::test]
async fn a_replica_on_purpose_is_not_connected_to_again_and_again() {
    let mock = Mock::new();
    demote(&mock);
    let (server, emulated, tcp) = mock_with(mock).await;
    for (url, most) in [(emulated, 1), (tcp, 1 + 2)] {
        let gateway = gateway(&url, Share::Auto).await;
        let mut client = gateway.client().await;
        for _ in 0..50 {
            assert_eq!(client.say("SET k v").await, format!("-{READ_ONLY}"));
            assert_eq!(client.say("GET k").await, "(nil)");
        }
        let accepted = server.monitor().counters().accepted;
        assert!(accepted <= most, "{url}: {accepted}");
    }
}

/// A user who may run scripts could make them say so.
#[tokio::test]
async fn a_primary_that_answers_with_readonly_keeps_its_connections() {
    let mock = Mock::new();
    mock.on("SET").error("READONLY said a script");
    let asked = mock.on("HELLO").reply(hello("master"));
    let (server, _, url) = mock_with(mock).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k v").await, "-READONLY said a script");
    while asked.matched() == 0 {
        yield_now().await;
    }
    assert_eq!(client.say("GET k").await, "(nil)");
    assert_eq!(server.monitor().counters().accepted, 1);
}

#[tokio::test]
async fn health_asks_about_the_role_where_clients_send_their_commands() {
    let server = Scripted::start().await;
    let (gateway, health) = with_health(config(&server.url, Share::Auto, Limits::default())).await;
    let mut client = gateway.client().await;
    client.command("SET k v").await;
    let mut shared = server.accept().await;
    expect(&mut shared, &encode(["SET", "k", "v"])).await;
    shared.write_all(format!("-{READ_ONLY}\r\n").as_bytes()).await.unwrap();
    let answers = tokio::spawn(async move {
        loop {
            expect(&mut shared, &encode(["HELLO"])).await;
            shared.write_all(b"*2\r\n$4\r\nrole\r\n$7\r\nreplica\r\n").await.unwrap();
        }
    });
    // Nothing is said on another connection.
    until_unhealthy(health, "answers -READONLY: its role is replica").await;
    answers.abort();
}
