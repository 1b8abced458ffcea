//! How connections are made, refused and given up.

use std::future::poll_fn;

use valkey_rdma_transport::TransportError;
use valkey_rdma_transport::device::{self as devices, CmEvent, DeviceOptions};

use super::super::device_peer::{Peer, accept, bounded, connect, device, listen, open, options};

#[tokio::test]
async fn both_sides_know_each_other_once_connected() {
    let mut listener = listen().await;
    let (active, passive) = connect(listener.as_mut()).await;
    let (active, passive) = (active.endpoint, passive.endpoint);
    assert_ne!(listener.local_addr().port(), 0);
    assert_eq!(active.peer_addr(), listener.local_addr());
    assert_eq!(passive.local_addr(), listener.local_addr());
    assert_eq!(passive.peer_addr(), active.local_addr());
    for endpoint in [active, passive] {
        assert_eq!(endpoint.device().kind, device());
        assert!(!endpoint.device().name.is_empty());
        let limits = endpoint.limits();
        assert!(limits.send_depth >= options().send_depth, "{limits:?}");
        assert!(limits.receive_depth >= options().receive_depth, "{limits:?}");
        assert!(limits.max_message >= 1 << 20, "{limits:?}");
    }
}

#[tokio::test]
async fn connecting_where_nobody_listens_is_rejected() {
    let addr = listen().await.local_addr();
    let mut active = open(addr).await;
    active.endpoint.establish().expect("asks");
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
}

#[tokio::test]
async fn who_asks_is_known_before_anything_is_made_and_is_rejected_by_a_drop() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    assert_eq!(request.peer_addr(), active.endpoint.local_addr());
    drop(request);
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { reason: 28 }), "{event:?}");
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn a_request_outlives_its_listener() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    let request = bounded(poll_fn(|cx| listener.poll_request(cx))).await.expect("a request");
    drop(listener);
    let mut passive = Peer::new(request.accept(&options()).expect("an endpoint"));
    passive.endpoint.establish().expect("accepts");
    assert_eq!(active.cm_event().await, CmEvent::Established);
}

#[tokio::test]
async fn a_device_of_another_name_is_not_used() {
    let wanted = DeviceOptions { device: Some("no-such-device".to_owned()), ..options() };
    let addr = listen().await.local_addr();
    let outcome = bounded(devices::open(device(), addr, &wanted)).await;
    let error = outcome.err().expect("an error");
    let named = matches!(error, TransportError::WrongDevice { .. } | TransportError::UnknownLink { .. });
    assert!(named, "{error:?}");
}

#[tokio::test]
async fn a_request_dropped_before_it_is_accepted_is_rejected() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    drop(accept(listener.as_mut()).await);
    let event = active.cm_event().await;
    assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    // The listener goes on.
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn a_listener_that_goes_rejects_the_requests_it_has() {
    let mut listener = listen().await;
    let mut active = open(listener.local_addr()).await;
    active.endpoint.establish().expect("asks");
    // The request is there for certain once a later one is.
    let mut later = open(listener.local_addr()).await;
    later.endpoint.establish().expect("asks");
    let first = accept(listener.as_mut()).await;
    drop(listener);
    drop(first);
    for side in [&mut active, &mut later] {
        let event = side.cm_event().await;
        assert!(matches!(event, CmEvent::Rejected { .. }), "{event:?}");
    }
}

#[tokio::test]
async fn an_address_is_listened_on_once() {
    let listener = listen().await;
    let second = devices::listen(device(), listener.local_addr(), &options()).await;
    assert!(matches!(second, Err(TransportError::Listen { .. })));
}

#[tokio::test]
async fn an_active_side_that_vanishes_leaves_the_listener_unharmed() {
    let mut listener = listen().await;
    let mut vanishing = open(listener.local_addr()).await;
    vanishing.endpoint.establish().expect("asks");
    let mut passive = accept(listener.as_mut()).await;
    drop(vanishing);
    // Accepting may fail at once, or the end is reported later: the peer was first.
    if passive.endpoint.establish().is_ok() {
        let event = passive.cm_event().await;
        assert_ne!(event, CmEvent::Established);
    }
    connect(listener.as_mut()).await;
}

#[tokio::test]
async fn many_requests_at_once_are_all_accepted() {
    const COUNT: usize = 20;
    let mut listener = listen().await;
    let mut active = Vec::new();
    for _ in 0..COUNT {
        let mut peer = open(listener.local_addr()).await;
        peer.endpoint.establish().expect("asks");
        active.push(peer);
    }
    let mut passive = Vec::new();
    for _ in 0..COUNT {
        let mut peer = accept(listener.as_mut()).await;
        peer.endpoint.establish().expect("accepts");
        passive.push(peer);
    }
    for peer in active.iter_mut().chain(&mut passive) {
        assert_eq!(peer.cm_event().await, CmEvent::Established);
    }
}

#[tokio::test]
async fn opening_may_move_between_threads() {
    let addr = listen().await.local_addr();
    let opened = tokio::spawn(async move { open(addr).await.endpoint.peer_addr() });
    assert_eq!(opened.await.expect("opens"), addr);
}
