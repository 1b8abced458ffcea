//! Connections over RDMA are dear to the server: what it refuses, and what is used seldom, must not make ever new ones.

use std::time::Duration;

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use valkey_rdma_gateway::Share;
use valkey_rdma_mock::{Mock, Server};

use crate::support::{Client, PATIENCE, Running, encode, gateway, mock_with, text};

/// A gateway in front of a server that requires a login, over the emulated device.
async fn with_password() -> (Server, Running) {
    let (server, url, _) = mock_with(Mock::new().requirepass("secret")).await;
    let gateway = gateway(&url, Share::Auto).await;
    (server, gateway)
}

fn accepted(server: &Server) -> u64 {
    server.monitor().counters().accepted
}

/// Lets time pass on a clock that goes on whenever nothing is left to do: connections send their keepalives meanwhile.
async fn pass(seconds: u64) {
    tokio::time::pause();
    sleep(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// Far more attempts than there are in the time that a test takes, and far fewer than it has commands.
const MANY: u64 = 20;

#[tokio::test]
async fn a_client_without_a_login_that_goes_on_asking_is_answered_from_memory() {
    let (server, gateway) = with_password().await;
    let mut client = gateway.client().await;
    for _ in 0..40 {
        assert!(client.say("PING").await.starts_with("-NOAUTH "));
    }
    assert!(accepted(&server) < MANY, "{}", accepted(&server));
    // These need a private connection.
    let before = accepted(&server);
    client.send(encode(["MULTI"]).repeat(100)).await;
    for _ in 0..100 {
        assert!(text(&client.reply().await).starts_with("-NOAUTH "));
    }
    assert!(accepted(&server) < before + MANY, "{}", accepted(&server));
    assert_eq!(client.say("AUTH secret").await, "OK");
    assert_eq!(client.say("SET k v").await, "OK");
}

#[tokio::test]
async fn databases_that_there_are_not_are_answered_from_memory() {
    let (server, gateway) = with_password().await;
    let mut client = gateway.client().await;
    assert_eq!(client.say("AUTH secret").await, "OK");
    let before = accepted(&server);
    for database in (99..130).chain([99; 30]) {
        assert_eq!(client.say(&format!("SELECT {database}")).await, "-ERR DB index is out of range");
    }
    assert!(accepted(&server) < before + MANY, "{}", accepted(&server));
    assert_eq!(client.say("SELECT 1").await, "OK");
    assert_eq!(client.say("SET k v").await, "OK");
}

/// Until it logs in, a client has the login of the URL, which has none here.
async fn log_in(gateway: &Running) -> Client {
    let mut client = gateway.client().await;
    assert_eq!(client.say("AUTH secret").await, "OK");
    assert_eq!(client.say("GET k").await, "(nil)");
    client
}

#[tokio::test]
async fn clients_that_log_in_make_no_attempt_without_a_login() {
    let (server, gateway) = with_password().await;
    let attempted = async {
        while gateway.info("gateway_logins_refused").await == 0 {
            yield_now().await;
        }
    };
    timeout(PATIENCE, attempted).await.expect("the first client makes one");
    drop(log_in(&gateway).await);
    let before = accepted(&server);
    for _ in 0..5 {
        // Longer than connections stay that the server has refused.
        pass(61).await;
        drop(log_in(&gateway).await);
    }
    assert_eq!(accepted(&server), before);
}

#[tokio::test]
async fn what_runs_once_a_minute_has_one_connection_over_rdma() {
    let (server, emulated, tcp) = mock_with(Mock::new().requirepass("secret")).await;
    for (url, stays) in [(emulated, true), (tcp, false)] {
        let gateway = gateway(&url, Share::Auto).await;
        let mut client = log_in(&gateway).await;
        let round = async |client: &mut Client| {
            assert_eq!(client.say("AUTH secret").await, "OK");
            client.say("EVAL script 0").await;
            assert_eq!(client.say("WATCH k").await, "OK");
            assert_eq!(client.say("UNWATCH").await, "OK");
            assert_eq!(client.say("GET k").await, "(nil)");
        };
        round(&mut client).await;
        let before = accepted(&server);
        for _ in 0..3 {
            pass(125).await;
            round(&mut client).await;
        }
        assert_eq!(accepted(&server) == before, stays, "{url}: {before}, {}", accepted(&server));
    }
}

/// It would count for `limits.upstreams`, and keep its memory, for as long as one that is of use.
#[tokio::test]
async fn an_unused_connection_that_the_server_has_closed_is_let_go() {
    let (server, url, _) = mock_with(Mock::new()).await;
    let gateway = gateway(&url, Share::Auto).await;
    let mut client = gateway.client().await;
    for (line, expected) in [("WATCH k", "OK"), ("UNWATCH", "OK"), ("GET k", "(nil)")] {
        assert_eq!(client.say(line).await, expected);
    }
    drop(client);
    server.cut().await;
    pass(125).await;
    gateway.until("gateway_connections", |count| count == 0).await;
}

/// As the server has it: the client has logged in once more, where it had state.
#[tokio::test]
async fn a_login_that_is_accepted_on_a_private_connection_is_not_refused_from_memory() {
    let (_server, gateway) = with_password().await;
    let [mut admin, mut other, mut client] =
        [log_in(&gateway).await, log_in(&gateway).await, log_in(&gateway).await];
    assert_eq!(client.say("WATCH k").await, "OK");
    assert_eq!(admin.say("CONFIG SET requirepass another").await, "OK");
    // Scripts have another connection, which is refused.
    assert!(other.say("EVAL script 0").await.starts_with("-WRONGPASS "));
    assert_eq!(admin.say("CONFIG SET requirepass secret").await, "OK");
    for (line, expected) in [("AUTH secret", "OK"), ("UNWATCH", "OK")] {
        assert_eq!(client.say(line).await, expected);
    }
    let answered = client.say("EVAL script 0").await;
    assert!(!answered.starts_with("-WRONGPASS "), "{answered}");
}
