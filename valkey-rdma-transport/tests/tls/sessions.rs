//! Connections one after the other: sessions that go on, and files that change.

use std::fs;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_testkit::Authority;
use valkey_rdma_transport::AnyStream;
use valkey_rdma_transport::tls::{ClientTls, ServerTls, TlsAcceptor, TlsConnector, TlsError};

use crate::over_each;
use crate::pair::{Carrier, Server, client};

/// One byte each way, so that the tickets of the server have arrived.
async fn exchange(client: &mut AnyStream, server: &mut AnyStream) {
    let mut byte = [0];
    server.write_all(b"s").await.unwrap();
    server.flush().await.unwrap();
    client.read_exact(&mut byte).await.unwrap();
    client.write_all(b"c").await.unwrap();
    client.flush().await.unwrap();
    server.read_exact(&mut byte).await.unwrap();
}

#[tokio::test]
async fn a_second_connection_continues_the_session() {
    over_each(|carrier| async move {
        let server = Server::new();
        let tls = client(&server);
        let (mut first, mut accepted) = server.connect(carrier, &tls).await;
        assert!(!first.tls().unwrap().resumed);
        exchange(&mut first, &mut accepted).await;
        let (mut second, mut accepted) = server.connect(carrier, &tls).await;
        assert!(second.tls().unwrap().resumed, "{carrier:?}");
        exchange(&mut second, &mut accepted).await;
    })
    .await;
}

/// With TLS 1.3, the tickets come when the client has finished its handshake, and may be idle.
#[tokio::test]
async fn tickets_that_an_idle_connection_receives_end_no_read_and_continue_the_session() {
    over_each(|carrier| async move {
        let server = Server::new();
        let tls = client(&server);
        let (mut first, mut accepted) = server.connect(carrier, &tls).await;
        let mut byte = [0];
        let mut idle = pin!(first.read(&mut byte));
        loop {
            assert!(poll_fn(|cx| Poll::Ready(idle.as_mut().poll(cx).is_pending())).await, "{carrier:?}");
            let (second, _accepted) = server.connect(carrier, &tls).await;
            if second.tls().unwrap().resumed {
                break;
            }
        }
        accepted.write_all(b"s").await.unwrap();
        accepted.flush().await.unwrap();
        assert_eq!(idle.await.unwrap(), 1, "{carrier:?}");
        exchange(&mut first, &mut accepted).await;
    })
    .await;
}

#[tokio::test]
async fn a_client_reads_its_files_for_each_connection() {
    let server = Server::new();
    let other = Authority::new("other");
    let file = server.authority.folder().join("trusted.crt");
    fs::copy(other.ca(), &file).unwrap();
    let tls = TlsConnector::new(ClientTls::default().with_ca(&file));
    let (refused, _) = server.try_connect(Carrier::Tcp, &tls).await;
    assert!(matches!(refused.unwrap_err(), TlsError::UnknownIssuer));
    fs::copy(server.authority.ca(), &file).unwrap();
    server.connect(Carrier::Tcp, &tls).await;
    fs::remove_file(&file).unwrap();
    let (refused, _) = server.try_connect(Carrier::Tcp, &tls).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("trusted.crt"), "{refused}");
}

#[tokio::test]
async fn a_server_reads_its_files_again_when_it_is_told_to() {
    let server = Server::new();
    let (old, new) = (server.authority.issue(&["localhost"]), server.authority.issue(&["localhost"]));
    let acceptor = TlsAcceptor::new(ServerTls::new(&old.cert, &old.key)).unwrap();
    let server = Server { acceptor, ..server };
    // No session is continued, so that each connection shows its certificate.
    let shown = async || {
        let (client, accepted) = server.connect(Carrier::Tcp, &client(&server)).await;
        (client.tls().unwrap().peer_certificates[0].clone(), client, accepted)
    };
    let (before, mut first, mut accepted) = shown().await;
    fs::copy(&new.key, &old.key).unwrap();
    let error = server.acceptor.reload().unwrap_err();
    assert!(matches!(error, TlsError::KeyMismatch { .. }), "{error}");
    assert_eq!(shown().await.0, before, "the old ones stay in use");
    fs::copy(&new.cert, &old.cert).unwrap();
    server.acceptor.reload().unwrap();
    assert_ne!(shown().await.0, before);
    exchange(&mut first, &mut accepted).await;
}
