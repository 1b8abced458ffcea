//! The emulated device: an RDMA device in software, inside this process. A device for tests and trials.
//!
//! It is as strict as hardware where hardware is strict: keys, bounds and access rights are checked, a message
//! that finds no posted receive waits for one, queues have depths, an error flushes everything behind it.
//! Nothing is lost or reordered, because a reliable connection loses and reorders nothing.
//!
//! The two ends of a connection share one [`Link`](link::Link); posting a send carries it out at once, by copying from one
//! side's region into the other's.

mod endpoint;
mod fabric;
mod link;
mod memory;
mod side;

use std::net::SocketAddr;

use crate::device::{Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

/// Makes an unconnected endpoint towards `peer`.
pub(crate) fn open(peer: SocketAddr, options: &EndpointOptions) -> Result<Box<dyn Endpoint>, TransportError> {
    check_device(peer, options)?;
    Ok(Box::new(endpoint::EmulatedEndpoint::active(peer, options)))
}

/// Listens on `addr` within this process.
pub(crate) fn listen(
    addr: SocketAddr,
    options: &EndpointOptions,
) -> Result<Box<dyn PassiveEndpoint>, TransportError> {
    check_device(addr, options)?;
    Ok(Box::new(fabric::EmulatedListener::bind(addr)?))
}

/// There is one device.
const NAME: &str = "emulated0";

/// Fails if another device was asked for.
fn check_device(peer: SocketAddr, options: &EndpointOptions) -> Result<(), TransportError> {
    match &options.device {
        Some(wanted) if wanted != NAME => {
            Err(TransportError::WrongDevice { peer, wanted: wanted.clone(), found: NAME.to_owned() })
        }
        _ => Ok(()),
    }
}
