//! The example serves this project's client. Not in the package, which cannot name a crate that depends on this one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use valkey_rdma_client::{Client, Endpoint};
use valkey_rdma_server::{DeviceKind, Server, TransportConfig};

#[path = "../examples/counter.rs"]
#[expect(dead_code, reason = "its main is not for tests")]
mod counter;

/// In both protocols and over both transports.
#[tokio::test]
async fn the_example_serves_our_client() {
    let any_port = "127.0.0.1:0".parse().unwrap();
    let server = Server::builder(counter::Visits::default())
        .tcp(any_port)
        .rdma(DeviceKind::Emulated, any_port, &TransportConfig::default())
        .start()
        .await
        .unwrap();
    for (count, url) in server.urls().enumerate() {
        for (protocol, extra) in [("resp3", 0), ("resp2", 1)] {
            let endpoint: Endpoint = format!("{url}?protocol={protocol}").parse().unwrap();
            let client = Client::connect(endpoint).await.unwrap();
            let visits: i64 = client.command(["VISIT", "lobby"]).await.unwrap().convert().unwrap();
            assert_eq!(visits, 2 * i64::try_from(count).unwrap() + extra + 1);
            let refused = client.command(["SET", "k", "v"]).await.unwrap_err();
            assert_eq!(refused.to_string(), "ERR try VISIT name");
        }
    }
}
