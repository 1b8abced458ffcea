//! What the client's device refuses, and what the transport refuses before.

use tokio::io::AsyncReadExt;
use valkey_rdma_transport::raw::{Access, FailureStatus};
use valkey_rdma_transport::{AnyStream, CloseReason, FeatureSet, RemoteRange, Stream, TransportError};

use super::peers::{direct_config, direct_pair, expose, hear, memory, part, say};
use super::stream_pair::{bounded, pair};

/// The connection has ended at the server because of its access, and at the client.
async fn assert_refused(error: TransportError, client: &mut Stream) {
    let refused = TransportError::Lost(CloseReason::Failed(FailureStatus::RemoteAccess));
    assert_eq!(error.to_string(), refused.to_string());
    let _ = bounded(client.read(&mut [0])).await;
    assert!(client.close_error().is_some());
}

#[tokio::test]
async fn writes_that_the_client_has_not_exposed_end_the_connection_and_change_no_byte_d2() {
    let wrong: [fn(RemoteRange) -> RemoteRange; 5] = [
        |range| RemoteRange { rkey: range.rkey.wrapping_add(0x1000), ..range },
        |range| RemoteRange { addr: range.addr + 2000, ..range },
        |range| RemoteRange { addr: range.addr - 101, ..range },
        |range| RemoteRange { addr: u64::MAX - 10, ..range },
        |range| part(range, 899, 100),
    ];
    for wrong in wrong {
        let (mut client, _server, direct) = direct_pair().await;
        let memory = memory(1000);
        let exposed = expose(&client, &memory, 100..1000, 0xa5, Access::RemoteWrite);
        let error = bounded(direct.write(wrong(exposed.remote()), vec![1; 100])).await.expect_err("refused");
        assert_refused(error, &mut client).await;
        assert!(exposed.withdraw().iter().all(|byte| *byte == 0xa5));
        assert!(memory.take(0..100).expect("free").iter().all(|byte| *byte == 0));
    }
}

#[tokio::test]
async fn memory_exposed_for_one_direction_is_closed_to_the_other_d2() {
    let (mut client, _server, direct) = direct_pair().await;
    let memory = memory(200);
    let exposed = expose(&client, &memory, 0..100, 5, Access::RemoteRead);
    let error = bounded(direct.write(exposed.remote(), vec![1; 100])).await.expect_err("read only");
    assert_refused(error, &mut client).await;
    assert_eq!(exposed.withdraw()[..], [5; 100]);

    let (mut client, _server, direct) = direct_pair().await;
    let exposed = expose(&client, &memory, 100..200, 6, Access::RemoteWrite);
    let into = super::peers::memory(100).take(0..100).expect("free");
    let error = bounded(direct.read(exposed.remote(), into)).await.expect_err("write only");
    assert_refused(error, &mut client).await;
}

#[tokio::test]
async fn both_directions_of_one_memory_have_keys_of_their_own_d2() {
    let (client, _server, direct) = direct_pair().await;
    let memory = memory(200);
    let written = expose(&client, &memory, 0..100, 0, Access::RemoteWrite);
    let read = expose(&client, &memory, 100..200, 6, Access::RemoteRead);
    assert_ne!(written.remote().rkey, read.remote().rkey);
    bounded(direct.write(written.remote(), vec![1; 100])).await.expect("written");
    let into = super::peers::memory(100).take(0..100).expect("free");
    let found = bounded(direct.read(read.remote(), into)).await.expect("read");
    assert_eq!((&found[..], &written.withdraw()[..]), (&[6; 100][..], &[1; 100][..]));
}

#[tokio::test]
async fn a_key_opens_nothing_on_another_connection_d2() {
    let (mut client, _server, direct) = direct_pair().await;
    let (other_client, mut other_server, other) = direct_pair().await;
    let memory = memory(100);
    let exposed = expose(&other_client, &memory, 0..100, 9, Access::RemoteReadWrite);
    let error = bounded(direct.write(exposed.remote(), vec![1; 100])).await.expect_err("not its key");
    assert_refused(error, &mut client).await;
    // Where it belongs, it is as good as before.
    let into = super::peers::memory(100).take(0..100).expect("free");
    assert_eq!(bounded(other.read(exposed.remote(), into)).await.expect("read")[..], [9; 100]);
    let mut other_client = other_client;
    say(&mut other_server, 1).await;
    assert_eq!(hear(&mut other_client).await, 1);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_before_anything_is_sent_d2() {
    let (mut client, mut server, direct) = direct_pair().await;
    let memory = memory(10);
    let exposed = expose(&client, &memory, 0..10, 0, Access::RemoteReadWrite);
    let error = bounded(direct.write(exposed.remote(), vec![1; 11])).await.expect_err("too long");
    assert!(matches!(error, TransportError::DirectRange { bytes: 11, room: 10 }), "{error:?}");
    let own = super::peers::memory(11);
    let error = bounded(direct.read(exposed.remote(), own.take(0..11).expect("free"))).await;
    assert!(matches!(error.expect_err("too long"), TransportError::DirectRange { bytes: 11, room: 10 }));
    assert!(own.take(0..11).is_ok(), "given back");
    say(&mut server, 1).await;
    assert_eq!(hear(&mut client).await, 1);
}

#[tokio::test]
async fn over_tcp_nothing_is_exposed_or_transferred_d1() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let addr = listener.local_addr().expect("listening");
    let stream = AnyStream::Tcp(bounded(tokio::net::TcpStream::connect(addr)).await.expect("connects"));
    assert!(stream.direct().is_none());
    let memory = memory(10);
    let error = stream.expose(memory.take(0..10).expect("free"), Access::RemoteWrite).expect_err("no device");
    assert!(matches!(error, TransportError::DirectOff), "{error:?}");
    assert!(memory.take(0..10).is_ok(), "given back");
}

#[tokio::test]
async fn streams_of_any_kind_pass_transfers_on_to_their_device_d1() {
    let (client, server, _direct) = direct_pair().await;
    let (client, server) = (AnyStream::Device(client), AnyStream::Device(server));
    let slice = memory(10).take(0..10).expect("free");
    let exposed = client.expose(slice, Access::RemoteWrite).expect("exposed");
    let direct = server.direct().expect("agreed");
    bounded(direct.write(exposed.remote(), &b"0123456789"[..])).await.expect("written");
    assert_eq!(exposed.withdraw()[..], *b"0123456789");
}

#[tokio::test]
async fn a_client_that_needs_tls_does_not_choose_plain_transfers_d1() {
    let client = direct_config().requires(FeatureSet::TLS);
    let (mut client, _server) =
        pair(&client, &direct_config().offers(FeatureSet::DIRECT | FeatureSet::TLS)).await;
    assert_eq!(bounded(client.agreed()).await.expect("agreed"), FeatureSet::TLS);
}
