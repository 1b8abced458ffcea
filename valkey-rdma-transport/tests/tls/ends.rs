//! How a TLS connection ends, and what a peer that speaks something else gets.

use std::io::{ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::tls::TlsError;
use valkey_rdma_transport::{AnyStream, Config, FeatureSet, bridge};

use crate::over_each;
use crate::pair::{Carrier, Server, client, device, plain};

#[tokio::test]
async fn a_shutdown_is_an_end_after_all_bytes() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (mut client, mut accepted) = server.connect(carrier, &client(&server)).await;
        client.write_all(b"last words").await.unwrap();
        let (sent, mut received) = (client.shutdown(), Vec::new());
        let (sent, read) = tokio::join!(sent, accepted.read_to_end(&mut received));
        sent.unwrap();
        read.unwrap();
        assert_eq!(received, b"last words");
    })
    .await;
}

/// Otherwise a third party that cuts a connection could shorten its last message.
#[tokio::test]
async fn a_cut_is_an_error_and_no_end() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (client, mut accepted) = server.connect(carrier, &client(&server)).await;
        drop(client);
        let cut = accepted.read_to_end(&mut Vec::new()).await.unwrap_err();
        // The kernel resets a TCP connection that is closed with unread bytes.
        let kinds = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
        assert!(kinds.contains(&cut.kind()), "{carrier:?}: {cut}");
    })
    .await;
}

/// RDMA has no half-close: when this side has ended the connection, the peer can announce nothing.
#[tokio::test]
async fn after_our_own_end_over_a_device_no_end_of_the_peer_is_expected() {
    let server = Server::new();
    let (mut client, _accepted) = server.connect(Carrier::Emulated, &client(&server)).await;
    client.write_all(b"last words").await.unwrap();
    client.shutdown().await.unwrap();
    for _ in 0..2 {
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(end) = client.poll_read_now(&mut cx, &mut bytes::BytesMut::new()) else {
        panic!("it has ended")
    };
    assert_eq!(end.unwrap(), 0);
}

#[tokio::test]
async fn what_a_program_wrote_to_a_bridge_before_its_end_is_not_reported_as_lost() {
    let server = Server::new();
    let (client, mut accepted) = server.connect(Carrier::Emulated, &client(&server)).await;
    let (mut program, far) = UnixStream::pair().unwrap();
    program.write_all(b"last words").unwrap();
    drop(program);
    bridge::pump(far, client).await.unwrap();
    let mut received = Vec::new();
    accepted.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"last words");
}

/// Otherwise a third party could shorten the replies to the last requests.
#[tokio::test]
async fn a_cut_before_the_peers_end_is_an_error_also_after_our_own_end() {
    for carrier in [Carrier::Tcp, Carrier::Unix] {
        let server = Server::new();
        let (mut client, mut accepted) = server.connect(carrier, &client(&server)).await;
        client.shutdown().await.unwrap();
        accepted.read_to_end(&mut Vec::new()).await.unwrap();
        drop(accepted);
        let cut = client.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(cut.kind(), ErrorKind::UnexpectedEof, "{carrier:?}: {cut}");
    }
}

/// The same over a device, where replies arrive only until the end of our `linger`.
#[tokio::test]
async fn a_cut_by_the_peer_while_we_linger_is_an_error() {
    let server = Server::new();
    let config = Config::default().requires(FeatureSet::TLS).linger(Duration::from_secs(3600));
    let (connecting, mut accepting) = device(config, Config::default().offers(FeatureSet::TLS)).await;
    accepting.agreed().await.unwrap();
    let both = (AnyStream::Device(connecting), AnyStream::Device(accepting));
    let (mut client, mut accepted) = server.connect_over(both, &client(&server)).await;
    let cutting = async {
        accepted.read_to_end(&mut Vec::new()).await.unwrap();
        drop(accepted);
    };
    let (ended, ()) = tokio::join!(client.shutdown(), cutting);
    ended.unwrap();
    let cut = client.read_to_end(&mut Vec::new()).await.unwrap_err();
    assert_eq!(cut.kind(), ErrorKind::UnexpectedEof, "{cut}");
}

#[tokio::test]
async fn a_plain_client_is_refused_by_the_server() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (mut client, accepted) = plain(carrier).await;
        client.write_all(b"*1\r\n$4\r\nPING\r\n").await.unwrap();
        let error = server.acceptor.accept(accepted).await.unwrap_err();
        assert!(matches!(error, TlsError::NotTls), "{carrier:?}: {error}");
        // An alert of TLS is all that it may get.
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer[0] == 0x15, "{carrier:?}: {answer:?}");
    })
    .await;
}

#[tokio::test]
async fn a_plain_server_is_refused_by_the_client() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (connecting, mut accepted) = plain(carrier).await;
        accepted.write_all(b"-ERR Protocol error\r\n").await.unwrap();
        accepted.flush().await.unwrap();
        let error = client(&server).connect("localhost", connecting).await.unwrap_err();
        assert!(matches!(error, TlsError::NotTls), "{carrier:?}: {error}");
    })
    .await;
}

#[tokio::test]
async fn a_peer_that_leaves_in_the_handshake_is_named_so() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (connecting, accepted) = plain(carrier).await;
        drop(accepted);
        let error = client(&server).connect("localhost", connecting).await.unwrap_err();
        assert!(matches!(error, TlsError::Closed | TlsError::Io(_)), "{carrier:?}: {error}");
        let (leaving, accepted) = plain(carrier).await;
        drop(leaving);
        let error = server.acceptor.accept(accepted).await.unwrap_err();
        assert!(matches!(error, TlsError::Closed | TlsError::Io(_)), "{carrier:?}: {error}");
    })
    .await;
}
