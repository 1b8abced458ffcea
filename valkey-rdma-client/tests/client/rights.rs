//! Users who may run little: the client needs no more than what the program asks for.

use valkey_rdma_client::{Client, Config, Endpoint, Protocol};
use valkey_rdma_mock::{Mock, MockServer};

/// A mock whose users may not run these commands.
async fn refusing(commands: &[&str]) -> (MockServer, String) {
    let mock = Mock::new();
    for command in commands {
        mock.on(command).error(format!("NOPERM User app has no permissions to run the '{command}' command"));
    }
    let server = MockServer::start_with(mock).await.expect("free ports");
    let url = server.url().to_owned();
    (server, url)
}

fn named() -> Config {
    Config::default().name("worker")
}

#[tokio::test]
async fn what_is_only_useful_is_not_required() {
    let (_server, url) = refusing(&["CLIENT", "PING"]).await;
    for protocol in ["resp2", "resp3"] {
        let client = Client::connect_with(format!("{url}?protocol={protocol}"), &named()).await;
        let client = client.unwrap_or_else(|error| panic!("{protocol}: {error:#}"));
        client.command(["SET", "k", "v"]).await.expect("written");
    }
}

#[tokio::test]
async fn what_the_connection_would_be_wrong_without_is_required() {
    let (_server, url) = refusing(&["SELECT"]).await;
    let error = Client::connect(format!("{url}/3")).await.expect_err("another database");
    assert!(error.to_string().contains("'SELECT'"), "{error}");
}

#[tokio::test]
async fn a_name_that_no_server_takes_is_an_error() {
    let (_server, url) = refusing(&[]).await;
    let error = Client::connect_with(url, &Config::default().name("a b")).await.expect_err("a blank");
    assert!(error.to_string().contains("cannot contain spaces"), "{error}");
}

/// In Valkey, every user may run HELLO and AUTH.
#[tokio::test]
#[ignore = "wants a real server with ACLs in VALKEY_RDMA_TEST_SERVER"]
async fn users_of_a_real_server_need_no_more_than_what_they_run() {
    let url = std::env::var("VALKEY_RDMA_TEST_SERVER").expect("VALKEY_RDMA_TEST_SERVER names a server");
    let endpoint: Endpoint = url.parse().expect("a URL");
    let admin = Client::connect(&endpoint).await.expect("connected");
    admin.command(["SET", "rights:k", "v"]).await.expect("written");
    for (at, rules) in
        [&["+@all", "-@dangerous"][..], &["-@all", "+get"], &["+@read"]].into_iter().enumerate()
    {
        let user = format!("rights-{at}");
        let create = ["ACL", "SETUSER", &user, "reset", "on", ">pw", "~*", "&*"];
        admin.command(create.iter().chain(rules).copied().collect::<Vec<_>>()).await.expect("created");
        for protocol in [Protocol::Resp2, Protocol::Resp3] {
            let endpoint = endpoint.clone().with_login(&user, "pw").with_protocol(protocol);
            let client = Client::connect_with(&endpoint, &named()).await;
            let client = client.unwrap_or_else(|error| panic!("{rules:?}, {protocol}: {error:#}"));
            let value = client.command(["GET", "rights:k"]).await.expect("allowed");
            assert_eq!(value.as_str(), Some("v"), "{rules:?}, {protocol}");
            client.close().await;
        }
        admin.command(["ACL", "DELUSER", &user]).await.expect("deleted");
    }
}
