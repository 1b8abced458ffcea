//! Text of a URL, decoded.

use std::borrow::Cow;

use super::EndpointError;

/// Decodes `%XX`. Unlike the crate, it refuses a `%` without two hexadecimal digits.
pub(super) fn percent_decode(text: &str) -> Result<String, EndpointError> {
    let is_hex = |digits: &[u8]| digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let escapes = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    if !escapes.into_iter().all(|(at, _)| bytes.get(at + 1..at + 3).is_some_and(is_hex)) {
        return Err(EndpointError::BadEncoding);
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| EndpointError::BadEncoding)
}
