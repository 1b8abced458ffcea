//! Addresses and ports for ends that have no socket of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU16, Ordering};

/// The loopback address of the same family.
pub(super) fn loopback_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}

/// A port of the dynamic range, for an end or a listener that has no socket's.
pub(super) fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    FIRST_PORT + NEXT.fetch_add(1, Ordering::Relaxed) % DYNAMIC_PORTS
}

/// Where the dynamic range begins.
const FIRST_PORT: u16 = 49_152;

/// How many ports it has. It divides the range of a counter that wraps, so that none comes up too early.
pub(super) const DYNAMIC_PORTS: u16 = 1 << 14;
