//! Inline commands: a line that a person typed, or that a tool without RESP sent.

use bytes::{Bytes, BytesMut};

/// Splits a line into words at blanks. Escapes in `"..."` are `\n`, `\r`, `\t`, `\b`, `\a` and `\xHH`; in `'...'` only `\'`.
/// `None` if a quote is not closed, or if no blank follows its end.
///
/// Source: valkey `src/sds.c`, `sdssplitargs`.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while !rest.is_empty() {
        let mut word = BytesMut::new();
        rest = take_word(rest, &mut word)?.trim_ascii_start();
        words.push(word.freeze());
    }
    Some(words)
}

/// Whether a command of this name is a line of an HTTP request: a web page can make a browser send one to any port, with
/// commands in its body. No command has such a name, so close the connection before anything after it runs.
///
/// Source: valkey `src/server.c`, `processCommand`; `src/networking.c`, `securityWarningCommand`.
#[inline]
#[must_use]
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"POST") || name.eq_ignore_ascii_case(b"HOST:")
}

/// Appends one word to `word` and returns the text after it. A quote may also open in the middle of a word.
fn take_word<'a>(mut rest: &'a [u8], word: &mut BytesMut) -> Option<&'a [u8]> {
    while let [byte, tail @ ..] = rest {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0 => return Some(tail),
            b'"' => return take_quoted(tail, word, b'"'),
            b'\'' => return take_quoted(tail, word, b'\''),
            byte => word.extend_from_slice(&[*byte]),
        }
        rest = tail;
    }
    Some(rest)
}

fn take_quoted<'a>(mut rest: &'a [u8], word: &mut BytesMut, quote: u8) -> Option<&'a [u8]> {
    loop {
        let (byte, tail) = match rest {
            [b'\\', b'x', high, low, tail @ ..] if quote == b'"' && is_hex(*high) && is_hex(*low) => {
                (hex(*high) << 4 | hex(*low), tail)
            }
            [b'\\', escaped, tail @ ..] if quote == b'"' => (unescape(*escaped), tail),
            [b'\\', b'\'', tail @ ..] if quote == b'\'' => (b'\'', tail),
            [byte, tail @ ..] if *byte == quote => {
                let ends_word = tail.first().is_none_or(u8::is_ascii_whitespace);
                return ends_word.then_some(tail);
            }
            [byte, tail @ ..] => (*byte, tail),
            [] => return None,
        };
        word.extend_from_slice(&[byte]);
        rest = tail;
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn is_hex(byte: u8) -> bool {
    byte.is_ascii_hexdigit()
}

/// Value of a digit for which [`is_hex`] holds.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_http, split};

    fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
        split(line).map(|words| words.into_iter().map(|word| word.to_vec()).collect())
    }

    #[test]
    fn blanks_separate_words() {
        assert_eq!(
            words(b"  SET  key\tvalue\r"),
            Some(vec![b"SET".to_vec(), b"key".to_vec(), b"value".to_vec()])
        );
        assert_eq!(words(b""), Some(vec![]));
        assert_eq!(words(b" \r"), Some(vec![]));
    }

    #[test]
    fn quotes_keep_blanks_and_know_escapes() {
        assert_eq!(
            words(br#"ECHO "a b\x00\n\"" 'c \' d\n' """#),
            Some(vec![b"ECHO".to_vec(), b"a b\0\n\"".to_vec(), b"c ' d\\n".to_vec(), b"".to_vec(),])
        );
    }

    #[test]
    fn the_first_words_of_an_http_request_are_recognised() {
        for name in ["POST", "post", "Host:", "HOST:"] {
            assert!(is_http(name.as_bytes()), "{name}");
        }
        for name in ["", "GET", "POSTS", "HOST", "XHOST:"] {
            assert!(!is_http(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn an_open_or_glued_quote_is_refused() {
        for line in [&b"ECHO \"a"[..], b"ECHO 'a", b"ECHO \"a\"b", b"ECHO 'a'b", b"ECHO \"a\\"] {
            assert_eq!(words(line), None, "{}", line.escape_ascii());
        }
    }
}
