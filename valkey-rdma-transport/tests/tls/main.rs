//! TLS over the streams of this crate, and the agreement on it over a device (spec clauses F-5 to F-8). Not in the package, which has no
//! test kit.
#![cfg(all(feature = "emulated", feature = "tls"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod broken_writes;
mod ends;
mod nested;
mod pair;
mod sessions;
mod verification;

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::AnyStream;

use crate::pair::{Carrier, Server, client};

/// A test that waits this long hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Runs a test's future over each carrier.
pub(crate) async fn over_each<F: Future<Output = ()>>(test: impl Fn(Carrier) -> F) {
    for carrier in [Carrier::Tcp, Carrier::Emulated, Carrier::Unix] {
        tokio::time::timeout(LIMIT, test(carrier)).await.unwrap_or_else(|_| panic!("{carrier:?} hangs"));
    }
}

#[tokio::test]
async fn bytes_pass_both_ways_unchanged() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (mut client, mut accepted) = server.connect(carrier, &client(&server)).await;
        let sent: Vec<u8> = (0..20_000_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
        let back = sent.clone();
        let answering = tokio::spawn(async move {
            let mut received = vec![0; back.len()];
            accepted.read_exact(&mut received).await.unwrap();
            assert!(received == back, "changed on the way");
            accepted.write_all(&received).await.unwrap();
            accepted.flush().await.unwrap();
            accepted
        });
        client.write_all(&sent).await.unwrap();
        client.flush().await.unwrap();
        let mut received = vec![0; sent.len()];
        client.read_exact(&mut received).await.unwrap();
        assert!(received == sent, "changed on the way back");
        drop(answering.await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn the_carrier_sees_no_plain_byte() {
    let server = Server::new();
    let (seen_by, carrier) = pair::Tap::pair();
    let (mut client, mut accepted) = server.connect_over(carrier, &client(&server)).await;
    client.write_all(b"a secret value").await.unwrap();
    client.flush().await.unwrap();
    let mut received = [0; 14];
    accepted.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"a secret value");
    let seen = seen_by.bytes();
    assert!(seen.len() > 500, "the handshake passed here");
    assert!(!seen.windows(6).any(|bytes| bytes == b"secret"), "a plain byte passed");
}

#[tokio::test]
async fn the_version_and_the_suite_are_known_on_both_sides() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (client, accepted) = server.connect(carrier, &client(&server)).await;
        let (client, accepted) = (client.tls().unwrap(), accepted.tls().unwrap());
        assert_eq!((client.version, client.cipher), ("TLS 1.3", "TLS_AES_256_GCM_SHA384"));
        assert_eq!((accepted.version, accepted.cipher), (client.version, client.cipher));
        assert_eq!((client.peer_certificates.len(), accepted.peer_certificates.len()), (1, 0));
    })
    .await;
}

#[tokio::test]
async fn a_stream_below_tls_can_be_driven() {
    let server = Server::new();
    let (client, accepted) = server.connect(Carrier::Emulated, &client(&server)).await;
    assert!(!accepted.is_driven() && !client.is_driven());
    let (mut client, mut accepted) = (client.driven(), accepted.driven());
    assert!(client.is_driven() && accepted.is_driven());
    assert!(client.monitor().is_some() && client.close_error().is_none());
    let answering = tokio::spawn(async move {
        let mut one = [0];
        accepted.read_exact(&mut one).await.unwrap();
        accepted.write_all(&one).await.unwrap();
        accepted.flush().await.unwrap();
        assert!(!accepted.resting().is_driven());
    });
    let mut one = [7];
    client.write_all(&one).await.unwrap();
    client.flush().await.unwrap();
    client.read_exact(&mut one).await.unwrap();
    answering.await.unwrap();
    assert_eq!(one, [7]);
}

#[tokio::test]
async fn bytes_that_wait_in_the_kernel_are_found_without_the_reactor() {
    over_each(|carrier| async move {
        let server = Server::new();
        let (mut client, mut accepted) = server.connect(carrier, &client(&server)).await;
        accepted.write_all(b"pushed").await.unwrap();
        accepted.flush().await.unwrap();
        let mut read = bytes::BytesMut::new();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while read.len() < 6 {
            // Session tickets come first, and are not bytes of the server's program.
            let _ = client.poll_read_now(&mut cx, &mut read).map(Result::unwrap);
            tokio::task::yield_now().await;
        }
        assert_eq!(&read[..], b"pushed");
        assert!(client.poll_read_now(&mut cx, &mut read).is_pending());
        assert_eq!(client.is_over_tcp(), matches!(carrier, Carrier::Tcp));
        let _: AnyStream = client.move_to(&tokio::runtime::Handle::current()).unwrap();
    })
    .await;
}
