//! Host and port, as errors and URLs have them.

use std::net::Ipv6Addr;

use valkey_rdma_transport::address;

use super::percent::percent_encode;

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{host}{close}:{port}")
}

/// As [`authority`], in a URL: a name may have any characters.
pub(super) fn authority_in_url(host: &str, port: u16) -> String {
    match ipv6(host) {
        Some(_) => format!("{}:{port}", address::to_url(host)),
        None => format!("{}:{port}", percent_encode(host)),
    }
}

/// The form of a host that its URL has too: an IPv6 address without brackets, in its shortest form. Everything else stays.
pub(super) fn canonical(host: String) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    match ipv6(bare) {
        Some((address, "")) => address.to_string(),
        Some((address, zone)) => format!("{address}%{zone}"),
        None => host,
    }
}

/// An IPv6 address and its zone, which may be empty.
fn ipv6(host: &str) -> Option<(Ipv6Addr, &str)> {
    let (address, zone) = host.split_once('%').unwrap_or((host, ""));
    Some((address.parse().ok()?, zone))
}
