//! A build without the feature `verbs` says so when it is asked for RDMA. The mock's own message is tested with the mock.
#![cfg(not(feature = "verbs"))]

use valkey_rdma_client::Client;
use valkey_rdma_mock::{DeviceKind, Mock, Server, TransportConfig};

#[tokio::test]
async fn a_client_names_the_missing_device() {
    let error = Client::connect("rdma://127.0.0.1:1").await.expect_err("nothing to connect with");
    let error = format!("{error:#}");
    assert!(error.contains("over rdma: ") && error.contains("no `verbs` device"), "{error}");
}

#[tokio::test]
async fn a_server_names_the_missing_device() {
    let (any, config) = ("127.0.0.1:0".parse().expect("an address"), TransportConfig::default());
    let started = Server::builder(Mock::new()).rdma(DeviceKind::Verbs, any, &config).start().await;
    let error = started.expect_err("nothing to listen on").to_string();
    assert!(error.contains("no `verbs` device"), "{error}");
}
