//! A primary that Sentinels report, and that moves.

use std::sync::{Arc, Mutex};

use valkey_rdma_gateway::{Limits, Share};
use valkey_rdma_mock::{MockCluster, Server, Transports};
use valkey_rdma_server::{Command, Handler, Peer, Pusher, Reply};

use crate::support::{config, gateway, start};

/// Reports an address.
#[derive(Clone, Default)]
struct Sentinel(Arc<Mutex<Known>>);

#[derive(Default)]
struct Known {
    address: Vec<Reply>,
    listeners: Vec<Pusher>,
}

impl Sentinel {
    /// Reports this node from now on, without a message.
    fn report(&self, pair: &MockCluster, node: usize) {
        let url = pair.url(node);
        let (host, port) = url.split_once("://").unwrap().1.split_once(':').unwrap();
        self.0.lock().unwrap().address = vec![Reply::bulk(host.to_owned()), Reply::bulk(port.to_owned())];
    }

    fn announce(&self) {
        for listener in &self.0.lock().unwrap().listeners {
            let message = ["message", "+switch-master", "mymaster 127.0.0.1 1 127.0.0.1 2"];
            listener.push(Reply::Push(message.map(Reply::bulk).to_vec()));
        }
    }
}

impl Handler for Sentinel {
    type Session = ();

    fn session(&self, _: &Peer) {}

    async fn call(&self, peer: &mut Peer, _: &mut (), command: Command) -> Result<Reply, Reply> {
        let mut known = self.0.lock().unwrap();
        if command.is("SUBSCRIBE") {
            known.listeners.push(peer.pusher());
            let channel = Reply::Bulk(command.args()[0].clone());
            return Ok(Reply::Push(vec![Reply::bulk("subscribe"), channel, Reply::Integer(1)]));
        }
        Ok(Reply::Array(known.address.clone()))
    }
}

/// A primary, node 0, its replica, node 1, and a Sentinel.
async fn pair() -> (MockCluster, Sentinel, Server, String) {
    let pair = MockCluster::builder(1).replicas(1).transports(Transports::Tcp).start().await.unwrap();
    let sentinel = Sentinel::default();
    sentinel.report(&pair, 0);
    let server = Server::builder(sentinel.clone()).tcp("127.0.0.1:0".parse().unwrap()).start().await.unwrap();
    let sentinels = format!("+sentinel://{}/mymaster", server.listening()[0].addr);
    let url = match pair.url(0).starts_with("valkeys:") {
        true => format!("valkeys{sentinels}?sentinel_tls=no"),
        false => format!("valkey{sentinels}"),
    };
    (pair, sentinel, server, url)
}

#[tokio::test]
async fn clients_follow_a_primary_that_moves() {
    let (pair, sentinel, _server, url) = pair().await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("SET k 1").await, "OK");
    pair.fail_over(1);
    sentinel.report(&pair, 1);
    sentinel.announce();
    gateway.until("gateway_connections_lost", |count| count > 0).await;
    assert_eq!(client.say("INCR k").await, ":2", "the new primary has the value");
}

/// With a transaction, or without a look at its commands.
#[tokio::test]
async fn a_private_connection_ends_when_the_primary_moves() {
    for share in [Share::Auto, Share::Never] {
        let (pair, sentinel, _server, url) = pair().await;
        let gateway = gateway(&url, share).await;
        let mut client = gateway.client().await;
        assert_eq!(client.say("WATCH k").await, "OK");
        pair.fail_over(1);
        sentinel.report(&pair, 1);
        sentinel.announce();
        client.expect_end().await;
        let mut next = gateway.client().await;
        assert_eq!(next.say("SET k 1").await, "OK");
    }
}

#[tokio::test]
async fn a_server_that_is_not_the_primary_gets_no_commands() {
    let (pair, sentinel, _server, url) = pair().await;
    sentinel.report(&pair, 1);
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    client.command("SET k 1").await;
    gateway.until("gateway_connect_failures", |count| count > 1).await;
    sentinel.report(&pair, 0);
    assert_eq!(crate::support::text(&client.reply().await), "OK");
}

/// Users without ROLE: the reply to HELLO says the role in RESP3, and in RESP2 the Sentinels are believed.
#[tokio::test]
async fn a_user_who_may_not_ask_for_the_role_reaches_the_primary() {
    let (pair, sentinel, _server, url) = pair().await;
    for node in [0, 1] {
        for command in ["role", "client|id", "client|setname"] {
            pair.answer(node, command, Some(Reply::error("NOPERM User app has no permissions")));
        }
    }
    for share in [Share::Auto, Share::Never] {
        let gateway = gateway(&url, share).await;
        let mut client = gateway.client().await;
        assert_eq!(client.say("SET k 1").await, "OK", "{share:?}");
        client.hello3("").await;
        assert_eq!(client.say("SET k 1").await, "OK", "{share:?}");
    }
    sentinel.report(&pair, 1);
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    let corrected = async {
        gateway.until("gateway_connect_failures", |count| count > 1).await;
        sentinel.report(&pair, 0);
    };
    let (hello, ()) = tokio::join!(client.hello3(""), corrected);
    assert!(crate::support::text(&hello).contains("role=master"), "{hello:?}");
    assert_eq!(client.say("SET k 1").await, "OK");
}

/// `mymaster` is the name that most installations have.
#[tokio::test]
async fn services_with_one_name_behind_other_sentinels_are_other_servers() {
    let ((_pair, _sentinel, _server, url), (_other_pair, _other_sentinel, _other_server, other_url)) =
        (pair().await, pair().await);
    let mut both = config(&url, Share::Auto, Limits::default());
    both.routes.extend(config(&other_url, Share::Auto, Limits::default()).routes);
    let gateway = start(&both).await;
    let [mut client, mut other] = gateway.client_of_each_route().await.try_into().ok().unwrap();
    let id = other.say("CLIENT ID").await;
    let id = id.trim_start_matches(':');
    assert_eq!(client.say(&format!("CLIENT LIST ID {id}")).await, "");
    assert_eq!(client.say(&format!("CLIENT KILL ID {id}")).await, ":0");
    assert_eq!(other.say("CLIENT ID").await, format!(":{id}"));
}

/// The order in which a URL names them means nothing.
#[tokio::test]
async fn routes_by_the_same_sentinels_lead_to_the_same_server() {
    let (_pair, _sentinel, _server, url) = pair().await;
    let (sentinel, service) = url.split_once("://").unwrap().1.split_once('/').unwrap();
    let both = [format!("{sentinel},127.0.0.1:1"), format!("127.0.0.1:1,{sentinel}")];
    let [mut both, other] = both.map(|sentinels| {
        let url = url.replace(&format!("{sentinel}/{service}"), &format!("{sentinels}/{service}"));
        config(&url, Share::Auto, Limits::default())
    });
    both.routes.extend(other.routes);
    let gateway = start(&both).await;
    let [mut client, mut other] = gateway.client_of_each_route().await.try_into().ok().unwrap();
    let id = other.say("CLIENT ID").await;
    assert_eq!(client.say(&format!("CLIENT KILL ID {}", id.trim_start_matches(':'))).await, ":1");
    other.expect_end().await;
}
