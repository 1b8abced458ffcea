//! Devices and the async byte stream of Valkey over RDMA.
#![deny(unsafe_code)]

pub mod device;
mod emulated;
mod error;
#[cfg(feature = "verbs")]
mod verbs;

pub use device::DeviceKind;
pub use error::TransportError;
