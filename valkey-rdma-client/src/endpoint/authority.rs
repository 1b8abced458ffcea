//! Host and port, as URLs have them.

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn authority(host: &str, port: u16) -> String {
    let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
    format!("{open}{host}{close}:{port}")
}
