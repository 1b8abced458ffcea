//! Logins to servers that should be nodes of a cluster.

use super::*;

/// A connector to a server that should be a certain node, with RESP2 and without a password.
fn connector_to_node(address: SocketAddr) -> Connector {
    let endpoint = format!("valkey://{address}?protocol=resp2").parse().expect("a good URL");
    let connector = Connector::new(endpoint, Config::default());
    connector.members.set(["a node".to_owned()].into());
    connector.members.require(true);
    connector
}

/// Answers as many connections, one after the other, and closes each.
async fn answering(answers: &'static [&'static str]) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let server = tokio::spawn(async move {
        for answer in answers {
            let mut stream = listener.accept().await.expect("a client").0;
            assert_ne!(stream.read(&mut [0; 512]).await.expect("open"), 0);
            stream.write_all(answer.as_bytes()).await.expect("open");
            stream.shutdown().await.expect("open");
            // What is left unread when a socket closes may cost its peer what was written.
            while stream.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
        }
    });
    (address, server)
}

/// The first command of the login is then the question for the id, whose refusal says nothing else.
#[tokio::test]
async fn a_node_with_too_many_clients_says_so() {
    let (address, server) = answering(&["-ERR max number of clients reached\r\n"]).await;
    let error = connector_to_node(address).dial_logged_in().await.expect_err("refused").to_string();
    assert!(error.contains("the server said \"ERR max number of clients reached\""), "{error}");
    server.await.expect("no panic");
}

/// The first login was closed, as some proxies do at a command that they do not know.
#[tokio::test]
async fn a_login_without_what_proxies_do_not_know_asks_for_the_id_all_the_same() {
    let (address, server) = answering(&["", "$7\r\nanother\r\n+PONG\r\n"]).await;
    let error = connector_to_node(address).dial_logged_in().await.expect_err("another node");
    assert!(matches!(error.cause(), ConnectCause::AnotherCluster { .. }), "{error}");
    server.await.expect("no panic");
}
