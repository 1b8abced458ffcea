//! `fallback=tcp`: never in silence.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::TcpSocket;
use valkey_rdma_client::{Client, Config, Transport};

use crate::target::target;

#[tokio::test]
async fn with_leave_to_fall_back_tcp_is_used_and_the_reason_told() {
    let target = target().await;
    // Only TCP listens on this port.
    let url = target.tcp.replace("valkey", "emulated") + "?device=inprocess&fallback=tcp";
    let client = Client::connect(url.as_str()).await.expect("connected");
    assert_eq!(client.info().transport, Transport::Tcp);
    let info = client.info();
    assert!(info.fallback.as_ref().is_some_and(|reason| reason.contains("nothing listens there")), "{info}");
    assert!(info.to_string().contains(", instead of rdma: "), "{info}");
    assert_eq!(client.command(["PING"]).await.expect("alive").as_str(), Some("PONG"));

    let strict = target.tcp.replace("valkey", "emulated") + "?device=inprocess";
    assert!(Client::connect(strict.as_str()).await.is_err());
}

#[tokio::test]
async fn where_rdma_works_there_is_no_fallback() {
    let target = target().await;
    if !target.is_mock() {
        return assert!(Client::connect(target.url.as_str()).await.is_ok());
    }
    let client = Client::connect(format!("{}?fallback=tcp", target.url).as_str()).await.expect("connected");
    assert_eq!(client.info().transport, Transport::Emulated);
    assert_eq!(client.info().fallback, None);
}

/// They bring mocks of their own: a real server beside them shows nothing.
mod mocks_only {
    use super::*;

    /// The program chose what to dial: another transport would dial the same.
    #[tokio::test]
    async fn a_dialer_is_not_called_again_for_a_fallback() {
        let calls = Arc::new(AtomicUsize::new(0));
        let dialer = {
            let calls = calls.clone();
            move || {
                calls.fetch_add(1, Ordering::Relaxed);
                // Its other end is gone.
                ready(Ok(tokio::io::duplex(64).0))
            }
        };
        let url = "rdma://localhost?fallback=tcp";
        let error = Client::connect_with_dialer(url, &Config::default(), dialer).await.expect_err("lost");
        assert_eq!(calls.load(Ordering::Relaxed), 1, "{error}");
    }

    #[tokio::test]
    async fn a_fallback_that_fails_too_is_told() {
        // Bound without a listener, so that no other program gets the port.
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a free port");
        let address = socket.local_addr().expect("bound");
        let error = Client::connect(format!("emulated://{address}?fallback=tcp").as_str())
            .await
            .expect_err("nothing there");
        let text = error.to_string();
        let (rdma, tcp) = text.split_once("; and over tcp instead: ").expect("both failures");
        assert!(rdma.starts_with(&format!("cannot connect to {address} over emulated: ")), "{text}");
        assert!(rdma.contains("nothing listens there"), "{text}");
        assert_eq!(tcp, "connection refused; is a server listening on this port?");
    }
}
