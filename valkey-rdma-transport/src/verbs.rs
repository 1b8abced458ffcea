//! Kernel verbs: the device contract over rdma-core (libibverbs and librdmacm).
//!
//! The one part of the project with `unsafe`. Each C object has one owner type, which frees it in its own `Drop`;
//! `sys` alone calls into C. Rooms, from the bottom:
//!
//! - `sys`: the C functions, one thin wrapper each, with C's error conventions turned into [`std::io::Result`].
//! - `translate`: C's numbers, unions and addresses to ours and back; no pointers.
//! - `inventory`: what devices and addresses there are, from sysfs.
//! - `cm`: connection-manager identifiers and their event channels.
//! - `domain`: the protection domain. `memory`: pages with guards, and their registration.
//! - `completion`: completion queue and completion channel. `sharing`: how several connections have one; `shared_queue`: one
//!   that they have. `completions`: either, as a connection sees it.
//! - `queue_pair`: posting.
//! - `async_events`: what a device reports outside of any completion. `removal`: letting go of one that is gone.
//! - `endpoint`, `listener`: the contract, put together from these.
//!
//! Every connection has objects of its own, shared with no other: nothing that happens to one can reach another,
//! and no thread but the one that holds the endpoint touches them. The `unsafe impl Send` of the owner types rest
//! on that. Two things are shared: a device's stream of asynchronous events, which `async_events` takes apart; and
//! the completion queue of those that ask for it. Every use of ours is behind a lock; that queue pairs are made and destroyed
//! on it outside of the lock is for libibverbs to allow, whose calls may come from any thread.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;

pub(crate) use self::shared_cq::Queues;
use self::sysfs::Sysfs;
use crate::device::{DeviceConnection, DeviceListener, DeviceOptions};
use crate::error::TransportError;

mod async_events;
mod cm;
mod connection;
mod cq;
mod cq_handle;
mod device_removal;
mod listener;
mod mr;
mod pd;
mod qp;
mod shared_cq;
mod sys;
mod sysfs;

/// Makes an unconnected endpoint towards `peer`, with address and route resolved.
///
/// Cancel safety: dropping the future frees everything it made.
pub(crate) async fn open(
    peer: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceConnection>, TransportError> {
    sys::load()?;
    let with_diagnosis = |error| with_diagnosis(error, options);
    let id = cm::CmId::resolve(peer, options).await.map_err(with_diagnosis)?;
    Ok(Box::new(connection::VerbsConnection::new(id, options)?))
}

/// Listens for connect requests on `addr`. Needs the tokio runtime around it.
pub(crate) fn listen(
    addr: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceListener>, TransportError> {
    sys::load()?;
    let listener =
        listener::VerbsListener::bind(addr, options).map_err(|error| with_diagnosis(error, options))?;
    Ok(Box::new(listener))
}

/// Names the cause behind a failure to set out, where the machine shows one: with no device at all, or none that is
/// up, the calls fail in many ways.
fn with_diagnosis(error: TransportError, options: &DeviceOptions) -> TransportError {
    if !is_vague(&error) {
        return error;
    }
    let told = &error as &dyn std::error::Error;
    tracing::debug!(error = told, "a failure to set out, which may have its cause in the devices");
    let inventory = Sysfs::of_this_machine();
    if sys::device_count() == 0 {
        let devices = inventory.devices().join(", ");
        return if devices.is_empty() {
            TransportError::NoDevice
        } else {
            TransportError::NoProvider { devices }
        };
    }
    inventory.all_down(options.device.as_deref()).unwrap_or(error)
}

/// Whether a failure may have its cause in the machine's devices. What is taken, or not allowed, is so on any device; and
/// without a number it is a refusal of ours, which says all there is.
fn is_vague(error: &TransportError) -> bool {
    match error {
        TransportError::Gid { .. } => true,
        TransportError::Resolve { source, .. }
        | TransportError::Source { source, .. }
        | TransportError::Listen { source, .. }
        | TransportError::Device { source, .. } => {
            source.raw_os_error().is_some_and(|number| !matches!(number, libc::EADDRINUSE | libc::EACCES))
        }
        _ => false,
    }
}

/// Turns an OS error into the [`TransportError`] of the `call` that failed.
fn failed(call: &'static str) -> impl FnOnce(io::Error) -> TransportError {
    move |source| match source.raw_os_error() {
        Some(libc::EMFILE) => TransportError::Descriptors { call, limit: sys::descriptor_limit(), source },
        Some(libc::ENFILE) => TransportError::SystemDescriptors { call, source },
        _ => TransportError::Device { call, source },
    }
}

/// Reports a teardown that failed: `Drop` has nobody to return it to.
fn log_teardown(call: &'static str, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::warn!(call, %error, "an RDMA object could not be freed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_of_descriptors_names_the_limit_and_the_remedy() {
        let error = failed("rdma_create_event_channel")(io::Error::from_raw_os_error(libc::EMFILE));
        let limit = sys::descriptor_limit().expect("a limit").to_string();
        let text = error.to_string();
        assert!(matches!(error, TransportError::Descriptors { .. }), "{error:?}");
        for part in ["rdma_create_event_channel", &limit, "ulimit -n"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_shortage_of_the_whole_system_is_not_blamed_on_the_process() {
        let error = failed("ibv_create_comp_channel")(io::Error::from_raw_os_error(libc::ENFILE));
        let text = error.to_string();
        assert!(matches!(error, TransportError::SystemDescriptors { .. }), "{error:?}");
        for part in ["ibv_create_comp_channel", "fs.file-max"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("ulimit"), "{text}");
    }

    #[test]
    fn what_no_device_would_change_is_not_blamed_on_the_devices() {
        let addr = SocketAddr::from(([192, 0, 2, 1], 6379));
        let listen = |source| TransportError::Listen { addr, device: crate::DeviceKind::Verbs, source };
        for (source, vague) in [
            (io::Error::from_raw_os_error(libc::EADDRNOTAVAIL), true),
            (io::Error::from_raw_os_error(libc::ENODEV), true),
            (io::Error::from_raw_os_error(libc::EADDRINUSE), false),
            (io::Error::from_raw_os_error(libc::EACCES), false),
            (io::ErrorKind::InvalidInput.into(), false),
        ] {
            let error = listen(source);
            assert_eq!(is_vague(&error), vague, "{error:?}");
        }
    }

    #[test]
    fn any_other_failure_names_its_call() {
        let error = failed("ibv_create_cq")(io::Error::from_raw_os_error(libc::EINVAL));
        assert!(matches!(error, TransportError::Device { call: "ibv_create_cq", .. }), "{error:?}");
    }
}
