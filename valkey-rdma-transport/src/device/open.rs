//! Picks the implementation for a [`DeviceKind`].

use std::net::SocketAddr;

use super::{DeviceConnection, DeviceKind, DeviceListener, DeviceOptions};
#[cfg(feature = "emulated")]
use crate::emulated;
use crate::error::TransportError;
#[cfg(feature = "verbs")]
use crate::verbs;

/// Makes an unconnected [`DeviceConnection`] towards `peer`, with address and route resolved.
///
/// # Errors
/// As for [`QueuePair::open`](crate::raw::QueuePair::open).
///
/// Cancel safety: dropping the future frees everything it made.
pub async fn open(
    kind: DeviceKind,
    peer: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceConnection>, TransportError> {
    match kind {
        #[cfg(feature = "verbs")]
        DeviceKind::Verbs => verbs::open(peer, options).await,
        #[cfg(not(feature = "verbs"))]
        DeviceKind::Verbs => Err(TransportError::NotBuilt { device: kind }),
        #[cfg(feature = "emulated")]
        DeviceKind::Emulated => emulated::open(peer, options).await,
        #[cfg(not(feature = "emulated"))]
        DeviceKind::Emulated => Err(TransportError::NotBuilt { device: kind }),
    }
}

/// Listens for connect requests on `addr`; port 0 takes a free one.
///
/// # Errors
/// As for [`Listener::bind`](crate::raw::Listener::bind).
pub async fn listen(
    kind: DeviceKind,
    addr: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceListener>, TransportError> {
    match kind {
        #[cfg(feature = "verbs")]
        DeviceKind::Verbs => verbs::listen(addr, options),
        #[cfg(not(feature = "verbs"))]
        DeviceKind::Verbs => Err(TransportError::NotBuilt { device: kind }),
        #[cfg(feature = "emulated")]
        DeviceKind::Emulated => emulated::listen(addr, options),
        #[cfg(not(feature = "emulated"))]
        DeviceKind::Emulated => Err(TransportError::NotBuilt { device: kind }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_was_not_built_names_its_cargo_feature() {
        for (device, feature) in [(DeviceKind::Verbs, "verbs"), (DeviceKind::Emulated, "emulated")] {
            let text = TransportError::NotBuilt { device }.to_string();
            assert!(text.contains(&format!("`--features {feature}`")), "{text}");
        }
    }
}
