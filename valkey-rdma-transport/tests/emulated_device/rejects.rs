//! Connect requests that the peer's connection manager rejects before its program sees them.

use valkey_rdma_transport::emulated::{Device, Link};
use valkey_rdma_transport::{Config, DeviceKind, Listener, RejectReason, Stream, TransportError};

use super::device_peer::bounded;
use super::{ANY, links};

/// The status of a host that remembers an earlier connection.
const STALE: RejectReason = RejectReason(10);

/// How a connect ends whose first requests are rejected, at a listener that accepts none.
async fn rejected(device: &Device, count: u32, reason: RejectReason) -> TransportError {
    let config = Config::default().device(device.name());
    let listener = Listener::bind(DeviceKind::Emulated, ANY, &config).await.expect("listens");
    device.reject_requests(count, reason);
    let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
    bounded(connecting).await.expect_err("rejected")
}

#[tokio::test]
async fn a_connect_goes_past_two_transient_rejects() {
    for link in links() {
        let device = Device::new(link.clone());
        let config = Config::default().device(device.name());
        let mut listener = Listener::bind(DeviceKind::Emulated, ANY, &config).await.expect("listens");
        device.reject_requests(2, STALE);
        let connecting = Stream::connect(DeviceKind::Emulated, listener.local_addr(), &config);
        let (connected, accepted) = bounded(async { tokio::join!(connecting, listener.accept()) }).await;
        connected.unwrap_or_else(|error| panic!("{link}: {error}"));
        accepted.expect("a client");
    }
}

#[tokio::test]
async fn the_third_transient_reject_is_the_error_and_has_its_status() {
    for link in links() {
        let error = rejected(&Device::new(link.clone()), 3, STALE).await;
        assert!(matches!(error, TransportError::Rejected { reason: STALE, .. }), "{link}: {error:?}");
    }
}

/// Another request would be accepted, or wait for ever.
#[tokio::test]
async fn a_reject_that_is_not_transient_is_the_error_at_once() {
    for reason in [RejectReason(3), RejectReason(28)] {
        let error = rejected(&Device::new(Link::InProcess), 1, reason).await;
        assert!(
            matches!(error, TransportError::Rejected { reason: found, .. } if found == reason),
            "{error:?}"
        );
    }
}
