//! What is particular to kernel verbs. Needs an RDMA device: `./dev lab`, or `VALKEY_RDMA_TEST_ADDR` set to the
//! address of one, and `cargo test -- --ignored`.
#![cfg(feature = "verbs")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use device_peer::{Peer, any_port, bounded, device, listen, open, options};
use valkey_rdma_transport::device::{
    self as devices, CmEvent, DeviceConnection, DeviceListener, DeviceOptions,
};
use valkey_rdma_transport::{GidProblem, TransportError};

mod device_peer;

async fn listen_with(
    addr: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceListener>, TransportError> {
    devices::listen(device(), addr, options).await
}

async fn open_with(
    peer: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceConnection>, TransportError> {
    bounded(devices::open(device(), peer, options)).await
}

fn on_device(name: &str) -> DeviceOptions {
    DeviceOptions { device: Some(name.to_owned()), ..options() }
}

/// The error of something that is to fail.
fn error_of<T>(outcome: Result<T, TransportError>) -> TransportError {
    outcome.err().expect("an error")
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn the_route_leads_to_the_device_asked_for_or_nowhere() {
    let name = open(listen().await.local_addr()).await.endpoint.device().name;
    open_with(any_port(), &on_device(&name)).await.expect("a path");
    let error = error_of(open_with(any_port(), &on_device("mlx5_99")).await);
    assert!(matches!(&error, TransportError::WrongDevice { found, .. } if *found == name), "{error:?}");
    let error = error_of(listen_with(any_port(), &on_device("mlx5_99")).await);
    assert!(matches!(&error, TransportError::WrongDevice { found, .. } if *found == name), "{error:?}");
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_listener_on_every_address_rejects_what_comes_over_another_device() {
    let any: IpAddr = match any_port() {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut listener = listen_with(SocketAddr::new(any, 0), &on_device("mlx5_99")).await.expect("listens");
    let mut active = open(SocketAddr::new(any_port().ip(), listener.local_addr().port())).await;
    active.endpoint.establish().expect("asks");
    let refused = bounded(std::future::poll_fn(|cx| listener.poll_request(cx))).await;
    assert!(matches!(error_of(refused), TransportError::WrongDevice { .. }));
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn an_address_without_a_device_cannot_be_reached_or_listened_on() {
    // A documentation address: no machine has it (RFC 5737).
    let nowhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 6379);
    let error = error_of(open_with(nowhere, &options()).await);
    assert!(matches!(error, TransportError::Resolve { .. }), "{error:?}");
    let error = error_of(listen_with(nowhere, &options()).await);
    assert!(matches!(error, TransportError::Listen { .. }), "{error:?}");
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_queue_deeper_than_the_device_allows_is_refused() {
    let deep = DeviceOptions { send_depth: 1 << 24, ..options() };
    let error = error_of(open_with(any_port(), &deep).await);
    let TransportError::QueueDepth { queue: "send queue", asked: 16_777_216, limit, .. } = error else {
        panic!("{error:?}");
    };
    // One more than the device has is too many, all that it has is not.
    let too_deep = DeviceOptions { receive_depth: limit + 1, ..options() };
    let error = error_of(open_with(any_port(), &too_deep).await);
    assert!(matches!(error, TransportError::QueueDepth { queue: "receive queue", .. }), "{error:?}");
    let no_such_vector = DeviceOptions { completion_vector: 10_000, ..options() };
    let error = error_of(open_with(any_port(), &no_such_vector).await);
    assert!(matches!(error, TransportError::CompletionVector { asked: 10_000, .. }), "{error:?}");
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_connection_comes_from_the_address_asked_for_or_from_nowhere() {
    let listener = listen().await;
    let ip = listener.local_addr().ip();
    let from = DeviceOptions { source: Some(ip), ..options() };
    assert_eq!(open_with(listener.local_addr(), &from).await.expect("a path").local_addr().ip(), ip);
    listen_with(any_port(), &from).await.expect("its own address");
    // A documentation address: no machine has it (RFC 5737).
    let strange = DeviceOptions { source: Some([192, 0, 2, 1].into()), ..options() };
    let error = error_of(open_with(listener.local_addr(), &strange).await);
    assert!(matches!(error, TransportError::Source { .. }), "{error:?}");
    let error = error_of(listen_with(any_port(), &strange).await);
    assert!(matches!(error, TransportError::Listen { .. }), "{error:?}");
}

/// The table of soft-RoCE: 0 is the link-local address, and one of the others is the one under test.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn a_gid_index_chooses_the_address_or_says_what_can_be_chosen() {
    let listener = listen().await;
    let peer = listener.local_addr();
    let by_index = |index| DeviceOptions { gid: Some(index), ..options() };
    let mut found = None;
    for index in 0..16 {
        match open_with(peer, &by_index(index)).await {
            Ok(endpoint) if endpoint.local_addr().ip() == peer.ip() => found = Some(index),
            Ok(_) | Err(TransportError::Source { .. } | TransportError::Gid { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    let index = found.expect("the index of the address under test");
    listen_with(any_port(), &by_index(index)).await.expect("its own address");
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let chosen = listen_with(SocketAddr::new(any, 0), &by_index(index)).await.expect("the index's address");
    assert_eq!(chosen.local_addr().ip(), peer.ip());
    // Contradictions and what is not there.
    let both = DeviceOptions { source: Some([192, 0, 2, 1].into()), ..by_index(index) };
    let problem = gid_problem(open_with(peer, &both).await);
    assert!(matches!(problem, GidProblem::OtherAddress { .. }), "{problem:?}");
    let problem = gid_problem(listen_with(any_port(), &by_index(60_000)).await);
    assert!(matches!(problem, GidProblem::OutOfRange { .. }), "{problem:?}");
    let elsewhere = DeviceOptions { device: Some("mlx5_99".to_owned()), ..by_index(index) };
    let problem = gid_problem(open_with(peer, &elsewhere).await);
    assert!(matches!(problem, GidProblem::NoSuchDevice { .. }), "{problem:?}");
}

fn gid_problem<T>(outcome: Result<T, TransportError>) -> GidProblem {
    match error_of(outcome) {
        TransportError::Gid { problem, .. } => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn inline_is_granted_as_far_as_the_device_can() {
    let greedy = DeviceOptions { max_inline: 1 << 20, ..options() };
    let endpoint = open_with(any_port(), &greedy).await.expect("an endpoint");
    let granted = endpoint.limits().max_inline;
    assert!((1..1 << 20).contains(&granted), "{granted} bytes inline");
    let without = DeviceOptions { max_inline: 0, ..options() };
    let endpoint = open_with(any_port(), &without).await.expect("an endpoint");
    assert_eq!(endpoint.limits().max_inline, 0);
    let link = endpoint.device();
    assert!(link.mtu.is_some_and(|mtu| mtu >= 256), "{link:?}");
    assert!(link.software || !link.name.starts_with("rxe"), "{link:?}");
}

/// A request whose sender is gone may fail to become an endpoint, fail to be accepted, or be accepted in vain. The
/// last is found out by the connection manager after its retries, a minute or more. The others are served at once.
#[tokio::test]
#[ignore = "needs an RDMA device"]
async fn requests_whose_sender_is_gone_do_not_hold_up_the_others() {
    let mut listener = listen().await;
    for _ in 0..20 {
        let mut gone = open(listener.local_addr()).await;
        gone.endpoint.establish().expect("asks");
        drop(gone);
        let mut active = open(listener.local_addr()).await;
        active.endpoint.establish().expect("asks");
        let mut accepted = Vec::new();
        let event = loop {
            tokio::select! {
                event = active.cm_event() => break event,
                request = std::future::poll_fn(|cx| listener.poll_request(cx)) => {
                    let Ok(endpoint) = request.and_then(|request| request.accept(&options())) else { continue };
                    let mut passive = Peer::new(endpoint);
                    if passive.endpoint.establish().is_ok() {
                        accepted.push(passive);
                    }
                }
            }
        };
        assert_eq!(event, CmEvent::Established);
    }
}
