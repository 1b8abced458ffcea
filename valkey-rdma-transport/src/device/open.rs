//! Picks the implementation for a [`DeviceKind`].

use std::net::SocketAddr;

use super::{DeviceKind, Endpoint, EndpointOptions, PassiveEndpoint};
use crate::emulated;
use crate::error::TransportError;
#[cfg(feature = "verbs")]
use crate::verbs;

/// Makes an unconnected endpoint towards `peer`, with address and route resolved.
///
/// # Errors
/// [`TransportError::NotBuilt`] if this build lacks the device, [`TransportError::Resolve`] if no device leads
/// to the peer, [`TransportError::EmulatedOption`] if the emulated device is asked for what only a real one has,
/// [`TransportError::UnknownLink`] if it has no link of that name, [`TransportError::Unreachable`] if its socket finds no
/// way to the peer, [`TransportError::Socket`] if it cannot be connected to, [`TransportError::Descriptors`] if the process
/// may open no more, [`TransportError::QueueDepth`] if a queue is beyond the device, [`TransportError::Device`] and [`TransportError::Memory`] if an object cannot be made.
///
/// Cancel safety: dropping the future frees everything it made.
pub async fn open(
    kind: DeviceKind,
    peer: SocketAddr,
    options: &EndpointOptions,
) -> Result<Box<dyn Endpoint>, TransportError> {
    match kind {
        #[cfg(feature = "verbs")]
        DeviceKind::Verbs => verbs::open(peer, options).await,
        #[cfg(not(feature = "verbs"))]
        DeviceKind::Verbs => Err(TransportError::NotBuilt { device: kind }),
        DeviceKind::Emulated => {
            check_emulated(options)?;
            emulated::open(peer, options).await
        }
    }
}

/// Refuses choices that only an RDMA device offers.
fn check_emulated(options: &EndpointOptions) -> Result<(), TransportError> {
    let chosen = [
        ("gid", options.gid.is_some()),
        ("source", options.source.is_some()),
        ("completion vector", options.completion_vector != 0),
        ("completion group", options.completion_group.is_some()),
        ("huge pages", options.huge_pages),
        ("ACK timeout", options.ack_timeout.is_some()),
        ("retry count", options.retry_count.is_some()),
    ];
    match chosen.into_iter().find(|(_, chosen)| *chosen) {
        Some((option, _)) => Err(TransportError::EmulatedOption { option }),
        None => Ok(()),
    }
}

/// Listens for connect requests on `addr`; port 0 takes a free one.
///
/// # Errors
/// [`TransportError::NotBuilt`] if this build lacks the device, [`TransportError::EmulatedOption`] and
/// [`TransportError::UnknownLink`] as for [`open()`], [`TransportError::Listen`] if the address cannot be listened on.
pub async fn listen(
    kind: DeviceKind,
    addr: SocketAddr,
    options: &EndpointOptions,
) -> Result<Box<dyn PassiveEndpoint>, TransportError> {
    match kind {
        #[cfg(feature = "verbs")]
        DeviceKind::Verbs => verbs::listen(addr, options),
        #[cfg(not(feature = "verbs"))]
        DeviceKind::Verbs => Err(TransportError::NotBuilt { device: kind }),
        DeviceKind::Emulated => {
            check_emulated(options)?;
            emulated::listen(addr, options)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::CompletionGroup;

    #[test]
    fn the_emulated_device_refuses_choices_that_only_a_real_one_offers() {
        check_emulated(&EndpointOptions::default()).expect("no choices");
        let refused = |options| check_emulated(&options).expect_err("a choice").to_string();
        let base = EndpointOptions::default;
        for (option, options) in [
            ("gid", EndpointOptions { gid: Some(0), ..base() }),
            ("source", EndpointOptions { source: Some([127, 0, 0, 1].into()), ..base() }),
            ("completion vector", EndpointOptions { completion_vector: 1, ..base() }),
            (
                "completion group",
                EndpointOptions { completion_group: Some(CompletionGroup::new()), ..base() },
            ),
            ("huge pages", EndpointOptions { huge_pages: true, ..base() }),
            ("ACK timeout", EndpointOptions { ack_timeout: Some(Duration::from_secs(1)), ..base() }),
            ("retry count", EndpointOptions { retry_count: Some(6), ..base() }),
        ] {
            assert!(refused(options).contains(option));
        }
    }
}
