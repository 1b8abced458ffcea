//! TLS inside TLS: a dialer's tunnel may be encrypted too.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::AnyStream;

use crate::over_each;
use crate::pair::{Server, client};

#[tokio::test]
async fn a_tls_connection_carries_another() {
    over_each(|carrier| async move {
        let server = Server::new();
        let outer = server.connect(carrier, &client(&server)).await;
        let inner = (AnyStream::Other(Box::new(outer.0)), AnyStream::Other(Box::new(outer.1)));
        let (mut client, mut accepted) = server.connect_over(inner, &client(&server)).await;
        client.write_all(b"hello").await.unwrap();
        client.flush().await.unwrap();
        let mut received = [0; 5];
        accepted.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"hello");
    })
    .await;
}
