//! The wire protocol of Valkey over RDMA and its connection state machine, without I/O.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod error;
pub mod work;

pub use error::{CloseReason, ProtocolError};

/// An event.
#[derive(Debug)]
pub enum Event {
    /// Closed.
    Closed {
        /// Why.
        reason: CloseReason,
    },
}
