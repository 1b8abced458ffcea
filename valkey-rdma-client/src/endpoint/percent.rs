//! Text of a URL, decoded and encoded.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use super::EndpointError;

/// Encodes all but letters, digits and the marks that need no encoding in a URL.
pub(super) fn percent_encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, RESERVED).to_string()
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// As [`percent_encode`], for a value of the query: paths and addresses stay readable.
pub(super) fn encode_value(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, RESERVED_IN_VALUES).to_string()
}

const RESERVED_IN_VALUES: &AsciiSet = &RESERVED.remove(b':').remove(b'/');

/// Names and values of a query. A `+` is a plus sign, as in the rest of a URL: only HTML forms write blanks so.
pub(super) fn query_pairs(query: &str) -> impl Iterator<Item = Result<(String, String), EndpointError>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Ok((percent_decode(name)?, percent_decode(value)?))
    })
}

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
