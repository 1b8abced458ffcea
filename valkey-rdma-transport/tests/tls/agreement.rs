//! Which features an accepted stream has, over the emulated device.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use valkey_rdma_transport::{CloseReason, Config, DeviceKind, FeatureSet, Listener, Stream, TransportError};

use crate::LIMIT;
use crate::pair::device;

fn offering() -> Config {
    Config::default().offers(FeatureSet::TLS)
}

/// F-6: the server learns what the client has chosen, and before its first byte.
#[tokio::test]
async fn a_choice_is_known_before_the_first_byte() {
    for driven in [false, true] {
        let (client, server) = device(Config::default().requires(FeatureSet::TLS), offering()).await;
        let mut server = if driven { server.driven() } else { server };
        let agreed = tokio::time::timeout(LIMIT, server.agreed()).await.unwrap();
        assert_eq!(agreed.unwrap(), FeatureSet::TLS);
        drop(client);
    }
}

/// F-7: bytes without a choice before them are plain, and none is lost.
#[tokio::test]
async fn bytes_without_a_choice_mean_that_nothing_is_agreed() {
    for driven in [false, true] {
        let (mut client, server) = device(Config::default(), offering()).await;
        let mut server = if driven { server.driven() } else { server };
        client.write_all(b"PING\r\n").await.unwrap();
        let agreed = tokio::time::timeout(LIMIT, server.agreed()).await.unwrap();
        assert_eq!(agreed.unwrap(), FeatureSet::NONE);
        let mut bytes = [0; 6];
        server.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"PING\r\n");
    }
}

#[tokio::test]
async fn a_peer_that_leaves_before_it_chooses_ends_the_wait() {
    for driven in [false, true] {
        let (client, server) = device(Config::default(), offering()).await;
        let mut server = if driven { server.driven() } else { server };
        drop(client);
        let agreed = tokio::time::timeout(LIMIT, server.agreed()).await.unwrap();
        assert_eq!(agreed.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn nothing_on_offer_is_agreed_at_once() {
    let (mut client, mut server) = device(Config::default(), Config::default()).await;
    assert_eq!(server.agreed().await.unwrap(), FeatureSet::NONE);
    assert_eq!(client.agreed().await.unwrap(), FeatureSet::NONE);
}

/// F-8: a client that needs a feature ends the connection of a server that does not offer it, as no released Valkey does.
#[tokio::test]
async fn a_server_that_offers_nothing_is_left_without_a_byte() {
    let any = "127.0.0.1:0".parse().unwrap();
    let mut listener = Listener::bind(DeviceKind::Emulated, any, &Config::default()).await.unwrap();
    let addr = listener.local_addr();
    let needs = Config::default().requires(FeatureSet::TLS);
    let (client, server) =
        tokio::join!(Stream::connect(DeviceKind::Emulated, addr, &needs), listener.accept());
    let error = client.unwrap_err();
    let missing = FeatureSet::TLS;
    assert!(
        matches!(&error, TransportError::Lost(reason) if *reason == CloseReason::NotOffered { missing }),
        "{error}"
    );
    let mut bytes = Vec::new();
    server.unwrap().read_to_end(&mut bytes).await.unwrap();
    assert!(bytes.is_empty());
}
