//! Handshakes that do not end well: the error says at which step, and nothing follows.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use valkey_rdma_client::transport::tls::TlsAcceptor;
use valkey_rdma_client::transport::{AnyStream, Config as TransportConfig, DeviceKind, FeatureSet, Listener};
use valkey_rdma_client::{Config, ConnectCause, ConnectStep, Dialer, Error, TlsError};

use crate::{Encrypted, refusal, server_tls};

/// Passes on what the client sends, and the first `bytes` of what the server sends. Then it is silent, or ends.
async fn pass_on(listener: TcpListener, server: String, bytes: u64, ends: bool) {
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(&server).await.expect("it listens");
        tokio::spawn(async move {
            let ((mut from_client, mut to_client), (from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let rest = tokio::spawn(async move { copy(&mut from_client, &mut to_server).await });
            let _ = copy(&mut from_server.take(bytes), &mut to_client).await;
            if ends {
                let _ = to_client.shutdown().await;
            } else {
                let _ = rest.await;
            }
        });
    }
}

/// How connecting fails, and in which step.
async fn failure(url: &str) -> (Error, Option<ConnectStep>) {
    let last = Arc::<Mutex<Option<ConnectStep>>>::default();
    let failed = last.clone();
    let dialer = Dialer::new(url, &Config::default()).expect("a good URL").observed(move |report| {
        if report.outcome.is_err() {
            *failed.lock().expect("no panic") = Some(report.step);
        }
    });
    let error = dialer.dial_logged_in().await.expect_err("no handshake");
    let step = *last.lock().expect("no panic");
    (error, step)
}

#[tokio::test]
async fn a_server_that_stops_in_the_handshake_is_told_of_with_the_step_and_the_limit() {
    let encrypted = Encrypted::start().await;
    let server = encrypted.mock.tcp_url().trim_start_matches("valkeys://");
    for (bytes, ends) in [(0, false), (5, false), (500, false), (0, true), (5, true), (500, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let proxy = tokio::spawn(pass_on(listener, server.to_owned(), bytes, ends));
        let limit = if ends { "60s" } else { "200ms" };
        let url = format!("valkeys://{address}?ca={}&timeout={limit}", encrypted.issuer.ca().display());
        let (error, step) = failure(&url).await;
        let Error::Connect(failed) = &error else { panic!("{error}") };
        assert_eq!(step, Some(ConnectStep::Encrypt), "{bytes}: {error}");
        match failed.cause() {
            ConnectCause::Tls(cause) if ends => {
                assert!(matches!(**cause, TlsError::Closed), "{bytes}: {error}")
            }
            ConnectCause::SilentInTls { .. } if !ends => {
                assert!(
                    error.to_string().contains("did not complete the TLS handshake within 200ms"),
                    "{error}"
                );
            }
            _ => panic!("{bytes}: {error:#}"),
        }
        proxy.abort();
    }
}

#[tokio::test]
async fn a_server_that_agrees_on_tls_over_rdma_and_then_stops_is_told_of() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let offer = TransportConfig::default().offers(FeatureSet::TLS);
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &offer).await.expect("a free port");
    let url = format!("emulateds://{}?verify=none&timeout=300ms", listener.local_addr());
    let accept = async { listener.accept().await.expect("a client") };
    let ((error, step), _kept) = tokio::join!(failure(&url), accept);
    assert_eq!(step, Some(ConnectStep::Encrypt), "{error}");
    assert!(error.to_string().contains("did not complete the TLS handshake within 300ms"), "{error}");
}

/// A login is sent to a server that was verified, and to no other.
#[tokio::test]
async fn a_server_with_a_wrong_certificate_sees_no_login() {
    let encrypted = Encrypted::start().await;
    let expired = encrypted.issuer.issue_for_days(&["127.0.0.1"], -10, -2);
    for pair in [expired, encrypted.issuer.issue(&["valkey.example"])] {
        let acceptor = TlsAcceptor::new(server_tls(&pair)).expect("a good pair");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let url = format!("valkeys://:secret@{address}?ca={}", encrypted.issuer.ca().display());
        let serve = async {
            let stream = AnyStream::Tcp(listener.accept().await.expect("a client").0);
            match acceptor.accept(stream).await {
                Ok(mut stream) => {
                    let mut received = Vec::new();
                    let _ = stream.read_to_end(&mut received).await;
                    received
                }
                // The client's alert.
                Err(_) => Vec::new(),
            }
        };
        let (_, received) = tokio::join!(refusal(&url), serve);
        assert!(received.is_empty(), "{}", received.escape_ascii());
    }
}
