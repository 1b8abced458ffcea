//! [`shown`]: what a program may print of a text that a user gave it as an address or URL.

use std::borrow::Cow;

/// What may be printed of a text that may be a URL with a login: of a URL its scheme and `***`, of any other text with an `@`, `?` or
/// `#` only `***`, and the whole of all others, such as `store:7000`.
///
/// It is for texts that no [`Endpoint`] has been made of, because they are wrong or in the wrong place. In those, no rule finds where a
/// password ends: its `@`, `/`, `?` or `#` may be unescaped, and its host may be missing. Of an endpoint, print its `Display`.
///
/// ```
/// use valkey_rdma_program::shown;
///
/// assert_eq!(shown("rdma://app:s3cret?@10.0.0.7"), "rdma://***");
/// assert_eq!(shown("app:s3cret@10.0.0.7"), "***");
/// assert_eq!(shown("10.0.0.7:6379"), "10.0.0.7:6379");
/// ```
///
/// [`Endpoint`]: https://docs.rs/valkey-rdma-client/latest/valkey_rdma_client/struct.Endpoint.html
#[must_use]
pub fn shown(text: &str) -> Cow<'_, str> {
    match text.split_once("://") {
        Some((scheme, _)) if is_scheme(scheme) => format!("{scheme}://***").into(),
        Some(_) => "***".into(),
        None if text.contains(['@', '?', '#']) => "***".into(),
        None => text.into(),
    }
}

/// RFC 3986, section 3.1. A user and a password before `://` have a `:` between them.
fn is_scheme(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_the_scheme_is_shown() {
        for (text, expected) in [
            ("rdma://h:1/2?device=a", "rdma://***"),
            ("rdma+sentinel://u:se@cret@h1,h2/m?sentinel_password=hush", "rdma+sentinel://***"),
            ("valkey://u:no-host-here", "valkey://***"),
            ("u:se://cret@h", "***"),
            ("://u:secret@h", "***"),
            ("u:secret@h:1", "***"),
            ("h:1?password=secret", "***"),
            ("fe80::1%eth0", "fe80::1%eth0"),
            ("unix:/run/valkey.sock", "unix:/run/valkey.sock"),
            ("", ""),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }
}
