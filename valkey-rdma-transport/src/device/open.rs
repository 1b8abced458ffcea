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
/// to the peer, [`TransportError::Device`] and [`TransportError::Memory`] if an object cannot be made.
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
        DeviceKind::Emulated => emulated::open(peer, options).await,
    }
}

/// Listens for connect requests on `addr`; port 0 takes a free one.
///
/// # Errors
/// [`TransportError::NotBuilt`] if this build lacks the device, [`TransportError::Listen`] if the address
/// cannot be listened on.
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
        DeviceKind::Emulated => emulated::listen(addr, options),
    }
}
