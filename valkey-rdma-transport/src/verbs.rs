//! Kernel verbs: the device contract over rdma-core (libibverbs and librdmacm).
//!
//! This is the only part of the crate with unsafe code; outside of it, `ForeignBytes` is an unsafe trait, without a block. Each C object has one owner type, which frees it in its `Drop`. Only
//! `sys` calls into C. The files, lowest first:
//!
//! | file | purpose |
//! |---|---|
//! | `sys` | loads the libraries; one thin wrapper for each C function; `sys::convert` converts numbers, unions and addresses |
//! | `sysfs` | the devices, ports and addresses that the kernel lists |
//! | `event_channel` | where events of the connection manager arrive; closes a device that was removed |
//! | `cm` | connection-manager identifiers |
//! | `mr` | memory between guard pages, its registration, and the protection domain |
//! | `cq`, `shared_cq` | a completion queue with its channel; one shared by connections, and the choice of either |
//! | `qp` | the queue pair, where work requests are posted |
//! | `async_events` | errors and port changes that a device reports outside of any completion |
//! | `contract` | connections and listeners: the device contract, built from these |
//!
//! Each connection owns its objects and one thread at a time uses them, because `&mut` access to the connection is needed
//! for that. The `unsafe impl Send` of the owner types rest on this. Two things are shared between connections. The
//! device's stream of asynchronous events is read by one thread of `async_events`. A shared completion queue is used under
//! its lock; queue pairs are created and destroyed on it outside of the lock, which libibverbs allows from any thread.
#![allow(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::path::Path;

pub(crate) use self::shared_cq::Queues;
use self::sysfs::Sysfs;
use crate::device::obstacle::{self, Obstacle};
use crate::device::{DeviceConnection, DeviceListener, DeviceOptions};
use crate::error::TransportError;

mod async_events;
mod cm;
mod contract;
mod cq;
mod event_channel;
mod mr;
mod qp;
mod shared_cq;
mod sys;
mod sysfs;

/// Makes an unconnected [`DeviceConnection`] towards `peer`, with address and route resolved.
///
/// Cancel safety: dropping the future frees everything it made.
pub(crate) async fn open(
    peer: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceConnection>, TransportError> {
    sys::load()?;
    let with_diagnosis = |error| with_diagnosis(error, options);
    let id = cm::CmId::resolve(peer, options).await.map_err(with_diagnosis)?;
    Ok(Box::new(contract::VerbsConnection::new(id, options)?))
}

/// Listens for connect requests on `addr`. Needs the tokio runtime around it.
pub(crate) fn listen(
    addr: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceListener>, TransportError> {
    sys::load()?;
    let listener =
        contract::VerbsListener::bind(addr, options).map_err(|error| with_diagnosis(error, options))?;
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
    diagnosis(Path::new("/"), options.device.as_deref(), sys::device_count).unwrap_or(error)
}

/// The cause that the files below `root` show. `known` counts the devices that libibverbs finds: it skips those without a device
/// file as it skips those without a driver, so files come first.
fn diagnosis(root: &Path, wanted: Option<&str>, known: impl FnOnce() -> usize) -> Option<TransportError> {
    let names = obstacle::devices(root);
    if names.is_empty() {
        return Some(TransportError::NoDevice);
    }
    let devices = names.join(", ");
    if let Some(obstacle) = Obstacle::of(root, wanted) {
        return Some(TransportError::Obstacle { devices, obstacle });
    }
    if known() == 0 {
        return Some(TransportError::NoProvider { devices });
    }
    Sysfs::below(root).all_down(wanted)
}

/// Whether a failure may have its cause in the machine's devices. What is taken, or not allowed, is so on any device; and
/// without a number it is a refusal of ours, which says all there is.
fn is_vague(error: &TransportError) -> bool {
    match error {
        TransportError::Gid { .. } => true,
        TransportError::Resolve { source, .. }
        | TransportError::Source { source, .. }
        | TransportError::Listen { source, .. } => {
            source.raw_os_error().is_some_and(|number| !matches!(number, libc::EADDRINUSE | libc::EACCES))
        }
        // A call into the device needs the device's files, and no address.
        TransportError::Device { source, .. } => source.raw_os_error().is_some(),
        _ => false,
    }
}

/// Turns an OS error into the [`TransportError`] of the `call` that failed.
fn failed(call: &'static str) -> impl FnOnce(io::Error) -> TransportError {
    move |source| TransportError::of_call(call, source)
}

/// Reports a teardown that failed: `Drop` cannot return it.
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
        let limit = crate::error::descriptor_limit().expect("a limit").to_string();
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
        let listen = |source: io::Error| TransportError::Listen {
            addr,
            device: crate::DeviceKind::Verbs,
            source: source.into(),
        };
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
    fn a_call_that_is_not_allowed_may_have_its_cause_in_the_device_files() {
        for number in [libc::EACCES, libc::EPERM, libc::ENOENT] {
            let error = failed("rdma_create_event_channel")(io::Error::from_raw_os_error(number));
            assert!(is_vague(&error), "{error:?}");
        }
    }

    /// A container without `--device` sees the host's sysfs, and libibverbs then finds no device. Before, the error asked for
    /// providers, which were there.
    #[test]
    fn each_cause_on_the_machine_has_its_own_error() {
        let root = std::env::temp_dir().join(format!("valkey-rdma-diagnosis-{}", std::process::id()));
        let put = |file: &str, text: &str| {
            let file = root.join(file);
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            std::fs::write(file, text).expect("written");
        };
        let found = |known| diagnosis(&root, None, || known).map(|error| error.to_string());
        let starts = |found: Option<String>, text: &str| {
            let found = found.expect("a cause");
            assert!(found.starts_with(text), "{found}");
        };
        starts(found(0), "no RDMA device on this machine");
        put("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
        starts(found(0), "RDMA device rxe0 cannot be used here: not loaded: ib_uverbs rdma_ucm; `modprobe");
        put("sys/class/infiniband_verbs/uverbs0/ibdev", "rxe0");
        put("sys/module/rdma_ucm/initstate", "live");
        starts(
            found(0),
            "RDMA device rxe0 cannot be used here: /dev/infiniband/rdma_cm is missing; in a container",
        );
        put("dev/infiniband/rdma_cm", "");
        starts(
            found(0),
            "RDMA device rxe0 cannot be used here: /dev/infiniband/uverbs0 is missing; in a container",
        );
        put("dev/infiniband/uverbs0", "");
        starts(found(0), "no driver in user space for RDMA device rxe0");
        assert_eq!(found(1), None);
        put("sys/class/infiniband/rxe0/ports/1/state", "1: DOWN");
        starts(found(1), "port 1 of RDMA device rxe0 is DOWN");
        let _ = std::fs::remove_dir_all(root);
    }

    #[test]
    fn any_other_failure_names_its_call() {
        let error = failed("ibv_create_cq")(io::Error::from_raw_os_error(libc::EINVAL));
        assert!(matches!(error, TransportError::Device { call: "ibv_create_cq", .. }), "{error:?}");
    }
}
