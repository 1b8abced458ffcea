//! Addresses as people write them, and the order in which a name's addresses are tried. All programs use these functions.
//!
//! A link-local IPv6 address (`fe80::/10`) exists on each link, so it needs a zone: the interface, by name or number, as in
//! `fe80::1%eth0` or `fe80::1%3`. In a URL the `%` may be encoded as [RFC 6874](https://www.rfc-editor.org/rfc/rfc6874) asks:
//! `rdma://[fe80::1%25eth0]:6379`.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;
use std::{fmt, io};

use nix::net::if_::{if_indextoname, if_nametoindex};
use tokio::time::Instant;

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Not an IP address and a port.
    #[error(
        "not an address and port: use ADDR:PORT, with brackets around an IPv6 address, as in [fd00::1]:6379"
    )]
    Form,
    /// The zone is not an interface of this machine.
    #[error("{ip}%{zone}: this machine has no network interface `{zone}`; `ip link` lists them")]
    NoInterface {
        /// The address.
        ip: Ipv6Addr,
        /// Its zone.
        zone: String,
    },
    /// An address that is the same on all interfaces has a zone.
    #[error("{ip}%{zone}: only a link-local address (fe80::/10) has an interface: leave `%{zone}` out")]
    NotLinkLocal {
        /// The address.
        ip: Ipv6Addr,
        /// Its zone.
        zone: String,
    },
    /// A link-local address has no zone.
    #[error("{0} is link-local: add the interface that leads to it, as in {0}%eth0 (`ip link` lists them)")]
    NeedsInterface(Ipv6Addr),
}

impl AddressError {
    /// The one inside of an error of [`resolve`].
    #[must_use]
    pub fn within(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl From<AddressError> for io::Error {
    fn from(error: AddressError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}

/// The address that `host` is, such as `10.0.0.1`, `fd00::1` or `fe80::1%eth0`. `None` if it is a name.
///
/// # Errors
/// [`AddressError::NoInterface`], [`AddressError::NotLinkLocal`].
pub fn literal(host: &str, port: u16) -> Option<Result<SocketAddr, AddressError>> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Some(Ok(SocketAddr::new(ip, port)));
    }
    let (ip, zone) = split(host)?;
    Some(scope(ip, zone).map(|scope| SocketAddrV6::new(ip, port, 0, scope).into()))
}

/// The address of `ADDRESS:PORT`, such as `10.0.0.1:6379` or `[fe80::1%eth0]:6379`.
///
/// # Errors
/// Those of [`literal`], and [`AddressError::Form`].
pub fn parse(text: &str) -> Result<SocketAddr, AddressError> {
    let (host, port) = split_port(text).ok_or(AddressError::Form)?;
    literal(host, port).unwrap_or(Err(AddressError::Form))
}

/// The addresses of `HOST:PORT`, where the host is an address as for [`parse`] or a name.
///
/// # Errors
/// Those of [`resolve`]. If the text has another form, [`AddressError::Form`] within.
///
/// # Cancel safety
/// Cancel safe.
pub async fn resolve_text(text: &str) -> io::Result<Vec<SocketAddr>> {
    let (host, port) = split_port(text).ok_or(AddressError::Form)?;
    resolve(host, port).await
}

/// The addresses of a host: its own, if it is an address as for [`literal`], or those that its name has.
///
/// # Errors
/// The system's. [`AddressError::within`] finds those of [`literal`].
///
/// # Cancel safety
/// Cancel safe.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match literal(host, port) {
        Some(address) => Ok(vec![address?]),
        None => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
    }
}

/// Checks that a link-local address has its interface. The system refuses the address with "Invalid argument" otherwise.
///
/// # Errors
/// [`AddressError::NeedsInterface`].
pub fn check_interface(address: SocketAddr) -> Result<(), AddressError> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(AddressError::NeedsInterface(*v6.ip()))
        }
        _ => Ok(()),
    }
}

/// The address to connect from: `source`, on the interface of `peer` if it is link-local.
#[must_use]
pub fn source_towards(source: IpAddr, peer: SocketAddr) -> SocketAddr {
    match (source, peer) {
        (IpAddr::V6(ip), SocketAddr::V6(peer)) if ip.is_unicast_link_local() => {
            SocketAddrV6::new(ip, 0, 0, peer.scope_id()).into()
        }
        _ => SocketAddr::new(source, 0),
    }
}

/// The addresses in order, each with the time that it has: an equal share of what is left until `deadline`. So an address that
/// does not answer leaves time for the next ones.
pub fn shares(addresses: &[SocketAddr], deadline: Instant) -> impl Iterator<Item = (SocketAddr, Duration)> {
    let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    (1..=count)
        .rev()
        .zip(addresses)
        .map(move |(left, address)| (*address, deadline.saturating_duration_since(Instant::now()) / left))
}

/// Why a program cannot listen on an address, and what to do, where the system's error has a usual cause. It begins with a
/// semicolon, or is empty.
#[must_use]
pub fn listen_advice(address: SocketAddr, error: &io::Error) -> impl fmt::Display + use<> {
    ListenAdvice { address, kind: error.kind() }
}

/// The text of [`listen_advice`].
#[derive(Clone, Copy, Debug)]
struct ListenAdvice {
    address: SocketAddr,
    kind: io::ErrorKind,
}

impl fmt::Display for ListenAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind, check_interface(self.address)) {
            (io::ErrorKind::AddrInUse, _) => {
                f.write_str("; stop the program that listens there, or choose another port")
            }
            (_, Err(error)) => write!(f, "; {error}"),
            (io::ErrorKind::AddrNotAvailable, _) => {
                f.write_str("; choose an address of this machine, as `ip address` lists them")
            }
            (io::ErrorKind::PermissionDenied, _) if (1..1024).contains(&self.address.port()) => {
                f.write_str("; only root may use ports below 1024, choose another")
            }
            _ => Ok(()),
        }
    }
}

/// `ADDRESS:PORT` as it stands in a URL, with the zone encoded as RFC 6874 asks.
#[must_use]
pub fn authority(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => {
            format!("[{}%25{}]:{}", v6.ip(), v6.scope_id(), v6.port())
        }
        other => other.to_string(),
    }
}

/// Host and port of `HOST:PORT`, without the brackets of an IPv6 address.
fn split_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = bracketed.or((!host.contains(':')).then_some(host))?;
    // The number's own parser takes a plus sign.
    let port = Some(port).filter(|port| port.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()?;
    Some((host, port)).filter(|(host, _)| !host.is_empty())
}

/// The number of a zone's interface.
fn scope(ip: Ipv6Addr, zone: &str) -> Result<u32, AddressError> {
    if !ip.is_unicast_link_local() {
        return Err(AddressError::NotLinkLocal { ip, zone: zone.to_owned() });
    }
    // A zone that was copied from a URL.
    let encoded = || zone.strip_prefix("25").and_then(interface);
    interface(zone).or_else(encoded).ok_or_else(|| AddressError::NoInterface { ip, zone: zone.to_owned() })
}

/// The number of the interface with this name or number.
fn interface(zone: &str) -> Option<u32> {
    // nix reports an unknown number as an interface without a name.
    let is_there = |number: &u32| if_indextoname(*number).is_ok_and(|name| !name.is_empty());
    let number = || zone.parse().ok().filter(is_there);
    if_nametoindex(zone).ok().or_else(number)
}

/// Address and zone of a text such as `fe80::1%eth0`.
pub(super) fn split(host: &str) -> Option<(Ipv6Addr, &str)> {
    let (ip, zone) = host.split_once('%')?;
    Some((ip.parse().ok()?, zone))
}

/// The host of a URL whose brackets hold `text`: the zone may stand behind `%25`, as RFC 6874 asks, or behind `%`, as `ping` takes
/// it. `%25` alone is interface 25.
#[must_use]
pub fn from_url(text: &str) -> Cow<'_, str> {
    match text.split_once('%').map(|(ip, zone)| (ip, zone.strip_prefix("25"))) {
        Some((ip, Some(zone))) if !zone.is_empty() => format!("{ip}%{}", decoded(zone)).into(),
        _ => text.into(),
    }
}

/// `host` as it stands in a URL: with brackets around an IPv6 address, and its zone encoded as RFC 6874 asks.
///
/// ```
/// use valkey_rdma_transport::address;
///
/// assert_eq!(address::to_url("fe80::1%eth0"), "[fe80::1%25eth0]");
/// assert_eq!(address::to_url("store"), "store");
/// ```
#[must_use]
pub fn to_url(host: &str) -> Cow<'_, str> {
    match split(host) {
        Some((ip, zone)) => format!("[{ip}%25{}]", encoded(zone)).into(),
        None if host.contains(':') => format!("[{host}]").into(),
        None => host.into(),
    }
}

/// `host` on the interface of `other`, if `host` is a link-local address without a zone, and `other` has one. The nodes of a cluster
/// announce such addresses.
#[must_use]
pub fn on_interface_of(host: String, other: &str) -> String {
    let is_link_local = host.parse().is_ok_and(|ip: Ipv6Addr| ip.is_unicast_link_local());
    match split(other) {
        Some((_, zone)) if is_link_local => format!("{host}%{zone}"),
        _ => host,
    }
}

/// Encodes all but the marks that need no encoding in a URL.
fn encoded(zone: &str) -> String {
    let byte = |byte: u8| match byte {
        b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    zone.bytes().map(byte).collect()
}

/// Decodes `%XX`. Anything else stays.
fn decoded(zone: &str) -> String {
    let mut bytes = Vec::with_capacity(zone.len());
    let mut rest = zone.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
