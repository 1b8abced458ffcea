//! Kernel verbs: the device contract over rdma-core (libibverbs and librdmacm).
//!
//! The one part of the project with `unsafe`. Each C object has one owner type, which frees it in its own `Drop`;
//! `sys` alone calls into C. Rooms, from the bottom:
//!
//! - `sys`: the C functions, one thin wrapper each, with C's error conventions turned into [`std::io::Result`].
//! - `translate`: C's numbers, unions and addresses to ours and back; no pointers.
//! - `cm`: connection-manager identifiers and their event channels.
//! - `domain`: the protection domain. `memory`: pages with guards, and their registration.
//! - `completion`: completion queue and completion channel. `queue_pair`: posting.
//! - `endpoint`, `listener`: the contract, put together from these.
//!
//! Every connection has objects of its own, shared with no other: nothing that happens to one can reach another,
//! and no thread but the one that holds the endpoint touches them. The `unsafe impl Send` of the owner types rest
//! on that.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;

use crate::device::{Endpoint, EndpointOptions, PassiveEndpoint};
use crate::error::TransportError;

mod cm;
mod completion;
mod domain;
mod endpoint;
mod listener;
mod memory;
mod queue_pair;
mod sys;
mod translate;

/// Makes an unconnected endpoint towards `peer`, with address and route resolved.
///
/// Cancel safety: dropping the future frees everything it made.
pub(crate) async fn open(
    peer: SocketAddr,
    options: &EndpointOptions,
) -> Result<Box<dyn Endpoint>, TransportError> {
    let id = cm::Identifier::resolve(peer, options).await.map_err(or_no_device)?;
    Ok(Box::new(endpoint::VerbsEndpoint::new(id, options)?))
}

/// Listens for connect requests on `addr`. Needs the tokio runtime around it.
pub(crate) fn listen(
    addr: SocketAddr,
    options: &EndpointOptions,
) -> Result<Box<dyn PassiveEndpoint>, TransportError> {
    Ok(Box::new(listener::VerbsListener::bind(addr, options).map_err(or_no_device)?))
}

/// Names the cause behind any failure to set out: with no device at all, the calls fail in many ways.
fn or_no_device(error: TransportError) -> TransportError {
    match error {
        TransportError::WrongDevice { .. } => error,
        _ if sys::device_count() == 0 => TransportError::NoDevice,
        _ => error,
    }
}

/// Turns an OS error into [`TransportError::Device`] naming the `call`.
fn failed(call: &'static str) -> impl FnOnce(io::Error) -> TransportError {
    move |source| TransportError::Device { call, source }
}

/// Reports a teardown that failed: `Drop` has nobody to return it to.
fn log_teardown(call: &'static str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(call, %error, "an RDMA object could not be freed");
    }
}
