//! The zone of an IPv6 address in a URL.

use std::borrow::Cow;
use std::net::Ipv6Addr;

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
