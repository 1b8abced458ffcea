//! The emulated device: an RDMA device in software. A device for tests and trials; it is not RDMA, and its speed says
//! nothing of RDMA's.
//!
//! It is as strict as hardware where hardware is strict: keys, bounds and access rights are checked, a message
//! that finds no posted receive waits for one as often as the receiver has granted, queues have depths, an error
//! flushes everything behind it, and a send completes when the peer's device has acknowledged it. Nothing is lost or
//! reordered, because a reliable connection loses and reorders nothing.
//!
//! Connections take one of two links. Within one process, posting a send carries it out at once, by copying from one
//! side's region into the other's. Between processes a socket carries requests and answers, TCP or Unix. Which one is
//! [the device's](Link): by default the first if the listener is in this process, and TCP otherwise.
//!
//! | device name | link |
//! |---|---|
//! | none | [`Link::Any`] |
//! | `inprocess` | [`Link::InProcess`] |
//! | `tcp` | [`Link::Tcp`] |
//! | `unix:DIR` | [`Link::Unix`] |
//! | [`Device::name`] | that device's, with its delays and faults |
//!
//! The variable `VALKEY_RDMA_EMULATED_ADAPTER=small` of the environment makes the device one that can do less than any adapter known to serve
//! Valkey: 256 completions, nothing inline, one READ at a time. Queues are then as short as that.
//!
//! Sockets are neither authenticated nor encrypted: listen on loopback, or in a trusted network.

mod adapter;
mod connection;
mod device;
mod direct;
mod directory;
mod listener;
mod queue_pair;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::task::Waker;

use tokio::time::Instant;

use crate::device::{DeviceConnection, DeviceListener, DeviceOptions};
use crate::error::{RejectReason, TransportError};

pub use self::device::{Device, Link};

/// Makes an unconnected [`DeviceConnection`] towards `peer`.
pub(crate) async fn open(
    peer: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceConnection>, TransportError> {
    check_options(options)?;
    Ok(Box::new(connection::EmulatedConnection::open(peer, options).await?))
}

/// Listens on `addr`.
pub(crate) fn listen(
    addr: SocketAddr,
    options: &DeviceOptions,
) -> Result<Box<dyn DeviceListener>, TransportError> {
    check_options(options)?;
    Ok(Box::new(listener::EmulatedListener::bind(addr, options)?))
}

/// Wakes the tasks that wait.
#[expect(
    clippy::manual_flatten,
    reason = "this follows every call, and an adapter costs more than all the rest of it"
)]
fn wake<const N: usize>(wakers: [Option<Waker>; N]) {
    for waker in wakers {
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The earlier of two times; `None` is never.
fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn refused(call: &'static str, kind: io::ErrorKind) -> TransportError {
    TransportError::Device { call, source: kind.into() }
}

/// Largest message in bytes, as with most adapters.
const MAX_MESSAGE: u32 = 1 << 30;

/// Most reads in flight in one direction, as with most adapters.
const MAX_READS: u8 = 16;

/// The RNR retry count that means without end (InfiniBand specification, 9.7.5.2.8).
const RNR_RETRY_FOREVER: u8 = 7;

/// Nothing listens (IB CM reject reason "invalid service ID").
const REASON_NO_LISTENER: i32 = RejectReason::NO_LISTENER.0;

/// Refuses options that only an RDMA device has.
pub(super) fn check_options(options: &DeviceOptions) -> Result<(), TransportError> {
    let chosen = [
        ("gid", options.gid.is_some()),
        ("source", options.source.is_some()),
        ("completion vector", options.completion_vector != 0),
        ("completion group", options.shared_cq.is_some()),
        ("ACK timeout", options.ack_timeout.is_some()),
        ("retry count", options.retry_count.is_some()),
    ];
    match chosen.into_iter().find(|(_, chosen)| *chosen) {
        Some((option, _)) => Err(TransportError::EmulatedOption { option }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::device::SharedCq;

    #[test]
    fn the_emulated_device_refuses_choices_that_only_a_real_one_offers() {
        check_options(&DeviceOptions::default()).expect("no choices");
        let refused = |options| check_options(&options).expect_err("a choice").to_string();
        let base = DeviceOptions::default;
        for (option, options) in [
            ("gid", DeviceOptions { gid: Some(0), ..base() }),
            ("source", DeviceOptions { source: Some([127, 0, 0, 1].into()), ..base() }),
            ("completion vector", DeviceOptions { completion_vector: 1, ..base() }),
            ("completion group", DeviceOptions { shared_cq: Some(SharedCq::new()), ..base() }),
            ("ACK timeout", DeviceOptions { ack_timeout: Some(Duration::from_secs(1)), ..base() }),
            ("retry count", DeviceOptions { retry_count: Some(6), ..base() }),
        ] {
            assert!(refused(options).contains(option));
        }
    }
}
