//! The emulated device.
use std::net::SocketAddr;

use crate::device::{Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

pub(crate) fn open(_peer: SocketAddr, _options: &EndpointOptions) -> Result<Box<dyn Endpoint>, TransportError> {
    Err(TransportError::NoDevice)
}

pub(crate) fn listen(_addr: SocketAddr, _options: &EndpointOptions) -> Result<Box<dyn PassiveEndpoint>, TransportError> {
    Err(TransportError::NoDevice)
}
